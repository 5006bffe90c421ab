//! The engines, and what can be broken about each.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use clap::ValueEnum;
use ferrolho_testkit::{Etcd, Flow, Postgres, PostgresOptions, Proxy};
use serde_json::Value;

/// Which engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum EngineName {
    Sqlite,
    Postgres,
    Etcd,
    /// Which forgets everything when it is killed: the run must find that.
    Memory,
}

/// How large the volume is that a SQLite file lies on, when we may make one.
const VOLUME_BYTES: u64 = 96 << 20;

/// The database on the PostgreSQL server.
const DATABASE: &str = "ferrolho";

/// A running engine.
#[derive(Debug)]
pub(crate) enum Engine {
    Memory,
    Sqlite(Volume),
    Postgres {
        server: Postgres,
        /// From each of our servers to it.
        cables: Vec<Proxy>,
    },
    Etcd {
        cluster: Etcd,
        /// From each of our servers to each member.
        cables: Vec<Vec<Proxy>>,
    },
}

impl Engine {
    /// Starts it; nothing when it is not installed.
    pub(crate) async fn start(name: EngineName, directory: &Path) -> Result<Option<Self>> {
        Ok(match name {
            EngineName::Memory => Some(Self::Memory),
            EngineName::Sqlite => Some(Self::Sqlite(Volume::make(directory)?)),
            EngineName::Postgres => {
                let options = PostgresOptions {
                    settings: vec!["max_connections = 200".to_owned()],
                    ..PostgresOptions::default()
                };
                let Some(server) = Postgres::start_with(&options) else {
                    return Ok(None);
                };
                server.create_database(DATABASE);
                let mut cables = Vec::new();
                for _ in 0..name.servers() {
                    cables.push(Proxy::start_local(server.port()).await);
                }
                Some(Self::Postgres { server, cables })
            }
            EngineName::Etcd => {
                let Some(cluster) = Etcd::start_cluster() else {
                    return Ok(None);
                };
                let mut cables = Vec::new();
                for _ in 0..name.servers() {
                    let mut members = Vec::new();
                    for member in 0..cluster.count() {
                        let address: SocketAddr = cluster.address(member).parse()?;
                        members.push(Proxy::start(address).await);
                    }
                    cables.push(members);
                }
                Some(Self::Etcd { cluster, cables })
            }
        })
    }

    /// The store's URL for one of our servers.
    pub(crate) fn store(&self, server: usize) -> String {
        match self {
            Self::Memory => "memory:".to_owned(),
            Self::Sqlite(volume) => format!("sqlite:{}", volume.database().display()),
            Self::Postgres {
                server: database,
                cables,
            } => database.url_at(cables[server].port(), DATABASE),
            Self::Etcd { cables, .. } => {
                let members: Vec<String> = cables[server]
                    .iter()
                    .map(|cable| cable.address().to_string())
                    .collect();
                format!("etcd://{}", members.join(","))
            }
        }
    }

    /// The cables between one of our servers and the engine.
    pub(crate) fn cables(&self, server: usize) -> Vec<&Proxy> {
        match self {
            Self::Memory | Self::Sqlite(_) => Vec::new(),
            Self::Postgres { cables, .. } => vec![&cables[server]],
            Self::Etcd { cables, .. } => cables[server].iter().collect(),
        }
    }

    /// Ends all sessions of our servers, as an operator may.
    pub(crate) fn end_sessions(&self) {
        if let Self::Postgres { server, .. } = self {
            server.terminate_sessions(DATABASE, "%");
        }
    }
}

impl Engine {
    /// Waits until the engine, asked directly, does its work.
    pub(crate) fn wait_until_up(&mut self) {
        match self {
            Self::Etcd { cluster, .. } => cluster.wait_until_up(),
            // PostgreSQL was waited for when it was started.
            Self::Memory | Self::Sqlite(_) | Self::Postgres { .. } => {}
        }
    }

    /// Has a cluster forget all but its present state.
    pub(crate) fn compact(&self) -> Result<()> {
        let Self::Etcd { cluster, .. } = self else {
            return Ok(());
        };
        let control = |arguments: &[&str]| {
            let limit = ["--command-timeout", "2s"];
            cluster
                .try_control(&[&limit, arguments].concat())
                .map_err(|cause| anyhow!(cause))
        };
        let state: Value = serde_json::from_str(&control(&["get", "nothing", "-w", "json"])?)?;
        let revision = state["header"]["revision"].as_u64().context("a revision")?;
        control(&["compact", &revision.to_string()]).map(drop)
    }
}

impl EngineName {
    /// How many servers there are: memory and SQLite's file take one.
    pub(crate) fn servers(self) -> usize {
        match self {
            Self::Memory | Self::Sqlite => 1,
            Self::Postgres | Self::Etcd => 3,
        }
    }
}

/// Breaks a cable, in one of the ways in which cables break.
pub(crate) fn break_cable(cable: &Proxy, how: CableFault) {
    match how {
        CableFault::Cut => cable.cut(),
        CableFault::Refuse => cable.refuse(),
        CableFault::Hold => cable.set(Flow::Hold),
        CableFault::HoldAnswers => cable.set_to_client(Flow::Hold),
        CableFault::Lose => cable.set(Flow::Lose),
        CableFault::LoseAnswers => cable.set_to_client(Flow::Lose),
    }
}

/// How a cable breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CableFault {
    /// Every connection is reset.
    Cut,
    /// Likewise, and no new one is taken.
    Refuse,
    /// Nothing passes for a while; then it comes late.
    Hold,
    /// Likewise, but requests still arrive.
    HoldAnswers,
    /// Nothing passes, and connections stay half-open for ever.
    Lose,
    /// Likewise, but requests still arrive.
    LoseAnswers,
}

impl CableFault {
    pub(crate) const ALL: [Self; 6] = [
        Self::Cut,
        Self::Refuse,
        Self::Hold,
        Self::HoldAnswers,
        Self::Lose,
        Self::LoseAnswers,
    ];
}

/// What another program does with a SQLite file for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intrusion {
    /// The log cannot start over.
    Reads,
    /// Nobody else can write.
    Writes,
}

/// Where a SQLite file lies: a small volume of its own, that can be filled. Only root may make one.
#[derive(Debug)]
pub(crate) struct Volume {
    path: PathBuf,
    is_mounted: bool,
}

impl Volume {
    fn make(directory: &Path) -> Result<Self> {
        let path = directory.join("volume");
        fs::create_dir_all(&path)?;
        if !rustix::process::geteuid().is_root() {
            eprintln!("NOT DONE: no full disk, since only root may make a volume that can be filled");
            return Ok(Self {
                path,
                is_mounted: false,
            });
        }
        let image = directory.join("volume.ext4");
        fs::File::create(&image)?.set_len(VOLUME_BYTES)?;
        must_run(Command::new("mkfs.ext4").arg("-q").arg(&image))?;
        must_run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&path))?;
        Ok(Self {
            path,
            is_mounted: true,
        })
    }

    /// Whether the volume can be filled.
    pub(crate) fn can_be_filled(&self) -> bool {
        self.is_mounted
    }

    /// Where the locks are.
    fn database(&self) -> PathBuf {
        self.path.join("ferrolho.db")
    }

    /// Begins a transaction on the database, as another program may, that reads or keeps others from writing.
    pub(crate) fn intrude(&self, how: Intrusion) -> Result<rusqlite::Connection> {
        let database = rusqlite::Connection::open(self.database())?;
        database.busy_timeout(Duration::from_secs(5))?;
        database.execute_batch(match how {
            Intrusion::Reads => "BEGIN; SELECT count(*) FROM distributed_locks",
            Intrusion::Writes => "BEGIN IMMEDIATE",
        })?;
        Ok(database)
    }

    /// Fills it to the last block.
    pub(crate) fn fill(&self) -> Result<()> {
        let mut ballast = fs::File::create(self.ballast())?;
        let piece = vec![0_u8; 64 << 10];
        // Large pieces until one does not fit, then small ones.
        for piece in [&piece[..], &piece[..512]] {
            while std::io::Write::write_all(&mut ballast, piece).is_ok() {}
        }
        // Whether it could be synced does not matter.
        let _ = ballast.sync_all();
        Ok(())
    }

    /// Makes room again.
    pub(crate) fn free(&self) -> Result<()> {
        fs::remove_file(self.ballast()).context("the ballast")
    }

    fn ballast(&self) -> PathBuf {
        self.path.join("ballast")
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        if self.is_mounted {
            // Lazily, since a server may be about to end.
            let _ = Command::new("umount").arg("--lazy").arg(&self.path).status();
        }
    }
}

fn must_run(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}
