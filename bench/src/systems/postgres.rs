//! PostgreSQL, asked directly: rows, or advisory locks.

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::process::{Start, complete, find, free_address};
use super::{Kind, Shared, System};
use crate::load::Scenario;
use crate::wire::postgres as wire;

/// More than the 100 of the default, since every client has a connection of its own here.
const MAX_CONNECTIONS: u32 = 1_200;

/// Makes a cluster, starts it, and makes the table and a database for ferrolho.
pub(super) fn start(directory: &Path) -> Result<Shared> {
    let directories = debian_directories();
    let locate = |name| find(name, &directories).context("not installed (Debian's package postgresql)");
    let (program, initdb, psql) = (locate("postgres")?, locate("initdb")?, locate("psql")?);
    let version = complete(Command::new(&program).arg("--version"))?;
    fs::create_dir_all(directory)?;
    // It refuses to run as root.
    let user = rustix::process::geteuid().is_root().then_some("postgres");
    if user.is_some() {
        let id = |flag| -> Result<u32> {
            Ok(complete(Command::new("id").args([flag, "postgres"]))?
                .trim()
                .parse()?)
        };
        chown(directory, Some(id("-u")?), Some(id("-g")?))?;
    }
    let address = free_address()?;
    let connections = format!("max_connections={MAX_CONNECTIONS}");
    let port = address.port().to_string();
    let run = |program: &PathBuf, arguments: &[&str]| {
        Start {
            program,
            directory,
            user,
            arguments: arguments.iter().map(|&word| word.to_owned()).collect(),
            variables: Vec::new(),
        }
        .command()
    };
    complete(&mut run(
        &initdb,
        &[
            "-D",
            "data",
            "--auth=trust",
            "--username=postgres",
            "--encoding=UTF8",
            "--locale=C.UTF-8",
        ],
    ))?;
    let process = Start {
        program: &program,
        directory,
        user,
        arguments: [
            "-D",
            "data",
            "-p",
            &port,
            "-c",
            "listen_addresses=127.0.0.1",
            "-c",
            "unix_socket_directories=",
            "-c",
            &connections,
        ]
        .map(str::to_owned)
        .to_vec(),
        variables: Vec::new(),
    }
    .listening_at(address)?;
    let ask = ["-h", "127.0.0.1", "-p", &port, "-U", "postgres", "-q"];
    wait_until_it_takes_requests(|| run(&psql, &[&ask[..], &["-c", "SELECT 1"]].concat()))?;
    complete(&mut run(
        &psql,
        &[&ask[..], &["-c", wire::TABLE, "-c", "CREATE DATABASE ferrolho"]].concat(),
    ))?;
    Ok(Shared {
        process: process.into(),
        address,
        version: version
            .split(" (Debian")
            .next()
            .unwrap_or_default()
            .trim()
            .replace("postgres (PostgreSQL)", "PostgreSQL"),
    })
}

/// It listens a moment before it is ready.
fn wait_until_it_takes_requests(command: impl Fn() -> Command) -> Result<()> {
    let give_up = std::time::Instant::now() + std::time::Duration::from_secs(30);
    loop {
        match complete(&mut command()) {
            Ok(_) => return Ok(()),
            Err(error) if std::time::Instant::now() > give_up => return Err(error),
            Err(_) => std::thread::sleep(std::time::Duration::from_millis(50)),
        }
    }
}

/// Where Debian keeps the programs of each version, the newest first.
fn debian_directories() -> Vec<PathBuf> {
    let mut versions: Vec<(u32, PathBuf)> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            Some((
                entry.file_name().to_str()?.parse().ok()?,
                entry.path().join("bin"),
            ))
        })
        .collect();
    versions.sort();
    versions.into_iter().rev().map(|(_, path)| path).collect()
}

/// Either kind of lock on it.
pub(super) fn system(kind: Kind, server: Shared) -> System {
    let (how, durability, scenarios): (_, _, &[Scenario]) = match kind {
        Kind::PostgresAdvisory => (
            wire::Kind::Advisory,
            "none: shared memory",
            &[Scenario::Pairs, Scenario::Contended, Scenario::Handovers],
        ),
        _ => (
            wire::Kind::Row,
            "synced before every answer (synchronous_commit on)",
            &[
                Scenario::Pairs,
                Scenario::Contended,
                Scenario::Reads,
                Scenario::Renewals,
            ],
        ),
    };
    System {
        kind,
        version: server.version,
        durability,
        address: server.address,
        processes: vec![server.process],
        scenarios,
        dialect: Box::new(move || Box::new(wire::Postgres::new(how))),
    }
}
