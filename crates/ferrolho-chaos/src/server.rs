//! A `ferrolho serve` under control: always on the same port, its wall clock and its life in our hands.

use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use ferrolho_testkit::faketime_library;
use rustix::process::{Pid, Signal, kill_process};

use crate::http::{Caller, Request};
use crate::pulse::Pulse;

/// How long a server may take to stop when asked to: the promise is 10 s.
const STOP_LIMIT: Duration = Duration::from_secs(12);

/// How often it is looked whether a server has started or stopped.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What a server is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Running,
    Paused,
    Down,
}

#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    program: PathBuf,
    store: String,
    directory: PathBuf,
    child: Option<Child>,
    state: State,
    has_false_clock: bool,
}

impl Server {
    /// A server of this number, not started yet. What it writes goes to `directory`.
    pub(crate) fn new(program: &Path, store: String, directory: &Path, number: usize) -> Result<Self> {
        let directory = directory.join(format!("server-{number}"));
        fs::create_dir_all(&directory)?;
        let server = Self {
            address: (Ipv4Addr::LOCALHOST, free_port()?).into(),
            program: program.canonicalize().context("the program")?,
            store,
            directory,
            child: None,
            state: State::Down,
            has_false_clock: faketime_library().is_some(),
        };
        server.set_clock(0)?;
        Ok(server)
    }

    pub(crate) fn state(&self) -> State {
        self.state
    }

    /// Whether its wall clock can be stepped.
    pub(crate) fn has_false_clock(&self) -> bool {
        self.has_false_clock
    }

    /// Sets its wall clock to so many seconds from the real one.
    pub(crate) fn set_clock(&self, seconds: i64) -> Result<()> {
        // Renamed into place, since it is read at every look at the clock.
        let next = self.directory.join("clock.next");
        fs::write(&next, format!("{seconds:+}"))?;
        fs::rename(next, self.clock_file())?;
        Ok(())
    }

    fn clock_file(&self) -> PathBuf {
        self.directory.join("clock")
    }

    /// Starts it and waits until it answers, again and again if it ends, as a service manager does.
    pub(crate) async fn start(&mut self, pulse: &Pulse, limit: Duration) -> Result<()> {
        let begun = Instant::now();
        while pulse.awake_since(begun) < limit {
            let has_ended = match &mut self.child {
                None => true,
                Some(child) => child.try_wait()?.is_some(),
            };
            if has_ended {
                self.child = Some(self.spawn()?);
                self.state = State::Running;
            }
            if self.is_alive().await {
                return Ok(());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        bail!("server {} did not start within {limit:?}", self.address)
    }

    async fn is_alive(&self) -> bool {
        let mut caller = Caller::new(self.address);
        let answer = caller
            .call(&Request::get("/healthz".to_owned()), Duration::from_secs(1))
            .await;
        answer.is_ok_and(|answer| answer.status == 200)
    }

    fn spawn(&self) -> io::Result<Child> {
        let log = File::options().create(true).append(true).open(self.log_file())?;
        // The kernel ends it when this program ends in any way.
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "--"])
            .arg(&self.program)
            .args([
                "serve",
                "--listen",
                &self.address.to_string(),
                "--store",
                &self.store,
            ])
            .current_dir(&self.directory)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        if let Some(library) = faketime_library() {
            command
                .env("LD_PRELOAD", library)
                .env("FAKETIME_TIMESTAMP_FILE", self.clock_file())
                .env("FAKETIME_NO_CACHE", "1")
                .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        }
        command.spawn()
    }

    fn log_file(&self) -> PathBuf {
        self.directory.join("log")
    }

    /// All that it has logged.
    pub(crate) fn log(&self) -> String {
        fs::read(self.log_file())
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) -> Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        self.state = State::Down;
        Ok(())
    }

    /// Asks it to stop. Says how it ended, if it did in time.
    pub(crate) async fn stop(&mut self, pulse: &Pulse) -> Result<()> {
        self.signal(Signal::TERM)?;
        let Some(mut child) = self.child.take() else {
            return Ok(());
        };
        self.state = State::Down;
        let asked = Instant::now();
        while pulse.awake_since(asked) < STOP_LIMIT {
            if let Some(status) = child.try_wait()? {
                if status.success() {
                    return Ok(());
                }
                bail!("server {} ended with {status} when asked to stop", self.address);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        child.kill()?;
        child.wait()?;
        bail!("server {} did not stop within {STOP_LIMIT:?}", self.address)
    }

    /// Stops it in its tracks.
    pub(crate) fn pause(&mut self) -> Result<()> {
        self.signal(Signal::STOP)?;
        self.state = State::Paused;
        Ok(())
    }

    /// Lets it go on.
    pub(crate) fn resume(&mut self) -> Result<()> {
        self.signal(Signal::CONT)?;
        self.state = State::Running;
        Ok(())
    }

    /// Says what it died of, if it ended without being told to.
    pub(crate) fn died(&mut self) -> Result<Option<String>> {
        let Some(child) = &mut self.child else {
            return Ok(None);
        };
        Ok(child
            .try_wait()?
            .map(|status| format!("server {} ended by itself: {status}", self.address)))
    }

    /// How much memory it has in use, in KiB, and how many descriptors it has open.
    pub(crate) fn usage(&self) -> Option<(u64, usize)> {
        let process = PathBuf::from(format!("/proc/{}", self.child.as_ref()?.id()));
        let status = fs::read_to_string(process.join("status")).ok()?;
        let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
        let memory = line.split_whitespace().nth(1)?.parse().ok()?;
        Some((memory, fs::read_dir(process.join("fd")).ok()?.count()))
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        if let Some(child) = &self.child {
            kill_process(Pid::from_child(child), signal)?;
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended before.
        let _ended = self.kill();
    }
}

/// A port of the loopback address that nobody used a moment ago.
fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}
