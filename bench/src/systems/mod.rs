//! The systems that are compared: how each is started, what it keeps when the power goes, how it is spoken to.
//!
//! Every server has the settings that its documentation recommends for locks, and the file system of the others.
//! Where a setting differs from the default, the reason stands beside it.

mod etcd;
mod ferrolho;
mod lockserver;
mod postgres;
mod process;
mod redis;
mod usage;
mod zookeeper;

use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;

use anyhow::{Context, Result};
use clap::ValueEnum;

pub(crate) use ferrolho::{Ferrolho, Store};
pub(crate) use process::{Process, complete, find};
pub(crate) use usage::{memory_bytes, own_processor, processor};

use crate::load::{Endpoint, Scenario};
use crate::programs::Programs;
use crate::wire::Dialect;

/// A system that can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Kind {
    /// ferrolho on SQLite, its default
    FerrolhoSqlite,
    /// ferrolho in memory
    FerrolhoMemory,
    /// ferrolho on PostgreSQL
    FerrolhoPostgres,
    /// ferrolho on etcd
    FerrolhoEtcd,
    /// Redis that syncs its log on every write
    RedisAlways,
    /// Redis without persistence
    RedisMemory,
    /// etcd's lock API
    EtcdLock,
    /// etcd asked as its client library's mutex asks: one transaction, one delete
    EtcdTxn,
    /// PostgreSQL asked directly: one upsert, one delete
    Postgres,
    /// PostgreSQL's advisory locks
    PostgresAdvisory,
    /// ZooKeeper: an ephemeral node
    Zookeeper,
    /// The lockserver crate
    Lockserver,
}

/// A system that runs.
pub(crate) struct System {
    pub(crate) kind: Kind,
    /// The product and its version.
    pub(crate) version: String,
    /// What is on disk when a grant is answered.
    pub(crate) durability: &'static str,
    pub(crate) address: SocketAddr,
    /// Its processes; another system may use some of them too.
    pub(crate) processes: Vec<Rc<Process>>,
    /// What it can do at all.
    pub(crate) scenarios: &'static [Scenario],
    pub(crate) dialect: Box<dyn Fn() -> Box<dyn Dialect> + Sync>,
}

impl System {
    /// Where it is and how it is spoken to.
    pub(crate) fn endpoint(&self) -> Endpoint<'_> {
        Endpoint {
            address: self.address,
            dialect: &*self.dialect,
        }
    }

    /// The numbers of its processes.
    pub(crate) fn ids(&self) -> Vec<u32> {
        self.processes.iter().map(|process| process.id()).collect()
    }
}

impl Kind {
    /// Its name in tables.
    pub(crate) fn name(self) -> String {
        self.to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// The systems that run, and what is not there.
pub(crate) struct Field {
    pub(crate) systems: Vec<System>,
    /// Those that could not be started, and why.
    pub(crate) missing: Vec<(Kind, String)>,
}

/// Starts these systems, each in a directory of its own below `directory`.
pub(crate) fn start(kinds: &[Kind], programs: &Programs, directory: &Path) -> Field {
    let mut starter = Starter {
        programs,
        directory,
        postgres: None,
        etcd: None,
    };
    let mut field = Field {
        systems: Vec::new(),
        missing: Vec::new(),
    };
    for kind in kinds {
        match starter.start(*kind) {
            Ok(system) => field.systems.push(system),
            Err(error) => field.missing.push((*kind, format!("{error:#}"))),
        }
    }
    field
}

/// A server that several systems use.
#[derive(Clone)]
struct Shared {
    process: Rc<Process>,
    address: SocketAddr,
    version: String,
}

struct Starter<'a> {
    programs: &'a Programs,
    directory: &'a Path,
    postgres: Option<Shared>,
    etcd: Option<Shared>,
}

impl Starter<'_> {
    fn start(&mut self, kind: Kind) -> Result<System> {
        let directory = self.directory.join(kind.name());
        std::fs::create_dir_all(&directory)?;
        match kind {
            Kind::FerrolhoSqlite => ferrolho::system(self.programs, kind, &directory, &Store::Sqlite, None),
            Kind::FerrolhoMemory => ferrolho::system(self.programs, kind, &directory, &Store::Memory, None),
            Kind::FerrolhoPostgres => {
                let engine = self.postgres()?;
                let url = format!("postgres://postgres@{}/ferrolho", engine.address);
                ferrolho::system(
                    self.programs,
                    kind,
                    &directory,
                    &Store::Url(url),
                    Some(engine.process),
                )
            }
            Kind::FerrolhoEtcd => {
                let engine = self.etcd()?;
                let url = format!("etcd://{}", engine.address);
                ferrolho::system(
                    self.programs,
                    kind,
                    &directory,
                    &Store::Url(url),
                    Some(engine.process),
                )
            }
            Kind::RedisAlways | Kind::RedisMemory => redis::system(kind, &directory),
            Kind::EtcdLock | Kind::EtcdTxn => Ok(etcd::system(kind, self.etcd()?)),
            Kind::Postgres | Kind::PostgresAdvisory => Ok(postgres::system(kind, self.postgres()?)),
            Kind::Zookeeper => zookeeper::system(&directory),
            Kind::Lockserver => lockserver::system(self.programs, &directory),
        }
    }

    fn postgres(&mut self) -> Result<Shared> {
        if self.postgres.is_none() {
            self.postgres = Some(postgres::start(&self.directory.join("postgres-server"))?);
        }
        self.postgres.clone().context("PostgreSQL does not run")
    }

    fn etcd(&mut self) -> Result<Shared> {
        if self.etcd.is_none() {
            self.etcd = Some(etcd::start(&self.directory.join("etcd-server"))?);
        }
        self.etcd.clone().context("etcd does not run")
    }
}
