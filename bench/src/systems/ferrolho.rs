//! ferrolho itself, from the release binary of this workspace, with its defaults.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::Result;
use clap::ValueEnum as _;
use rustix::process::Signal;

use super::process::{Process, Start};
use super::{Kind, System};
use crate::load::Scenario;
use crate::programs::Programs;
use crate::wire::ferrolho as wire;

/// So many callers may wait in one run, and for one lock; the defaults are 10 000 and 1 000.
const MAX_WAITERS: u32 = 20_000;

/// Where the locks are kept.
#[derive(Clone, Debug)]
pub(crate) enum Store {
    Memory,
    /// In a file in the server's directory.
    Sqlite,
    Url(String),
}

impl Store {
    fn url(&self) -> String {
        match self {
            Self::Memory => "memory:".to_owned(),
            Self::Sqlite => "sqlite:ferrolho.db".to_owned(),
            Self::Url(url) => url.clone(),
        }
    }
}

/// A server that can be stopped and started again on the same directory.
pub(crate) struct Ferrolho {
    program: PathBuf,
    directory: PathBuf,
    store: Store,
    pub(crate) process: Process,
    pub(crate) address: std::net::SocketAddr,
}

impl Ferrolho {
    /// Starts a server, and waits until it is ready.
    pub(crate) fn start(programs: &Programs, directory: &Path, store: Store) -> Result<Self> {
        std::fs::create_dir_all(directory)?;
        let (process, address) = start(&programs.ferrolho, directory, &store)?;
        Ok(Self {
            program: programs.ferrolho.clone(),
            directory: directory.to_owned(),
            store,
            process,
            address,
        })
    }

    /// Ends the server.
    pub(crate) fn stop(&mut self, signal: Signal) -> Result<()> {
        self.process.end(signal)
    }

    /// Starts it again, and waits until it is ready.
    pub(crate) fn restart(&mut self) -> Result<()> {
        (self.process, self.address) = start(&self.program, &self.directory, &self.store)?;
        Ok(())
    }
}

fn start(program: &Path, directory: &Path, store: &Store) -> Result<(Process, std::net::SocketAddr)> {
    let waiters = MAX_WAITERS.to_string();
    let arguments = [
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--store",
        &store.url(),
        "--max-waiters",
        &waiters,
        "--max-waiters-per-resource",
        &waiters,
    ];
    Start {
        program,
        directory,
        user: None,
        arguments: arguments.map(str::to_owned).to_vec(),
        variables: Vec::new(),
    }
    .announcing()
}

/// ferrolho as one of the systems; `engine` is the server that it keeps its locks in, if there is one.
pub(super) fn system(
    programs: &Programs,
    kind: Kind,
    directory: &Path,
    store: &Store,
    engine: Option<Rc<Process>>,
) -> Result<System> {
    let (process, address) = start(&programs.ferrolho, directory, store)?;
    let mut processes = vec![Rc::new(process)];
    processes.extend(engine);
    Ok(System {
        kind,
        version: programs.ferrolho_version()?,
        durability: match store {
            Store::Memory => "none: memory",
            Store::Sqlite => "synced before every answer (WAL, synchronous=FULL)",
            Store::Url(_) => "as its engine: synced before every answer",
        },
        address,
        processes,
        scenarios: Scenario::value_variants(),
        dialect: Box::new(|| Box::new(wire::Ferrolho::default())),
    })
}
