//! etcd, one member, with its defaults.

use std::path::Path;

use anyhow::{Context, Result};

use super::process::{Start, complete, find, free_address};
use super::{Kind, Shared, System};
use crate::load::Scenario;
use crate::wire::etcd as wire;

/// More than a run writes: the default of 2 GB can be reached within an hour of load.
const QUOTA_BYTES: u64 = 8_000_000_000;

/// Starts a member.
pub(super) fn start(directory: &Path) -> Result<Shared> {
    let program = find("etcd", &[]).context("not installed (Debian's package etcd-server)")?;
    std::fs::create_dir_all(directory)?;
    let version = complete(std::process::Command::new(&program).arg("--version"))?;
    let (address, peer) = (free_address()?, free_address()?);
    let (client, peer) = (format!("http://{address}"), format!("http://{peer}"));
    let quota = QUOTA_BYTES.to_string();
    let arguments = [
        "--name",
        "bench",
        "--data-dir",
        "data",
        "--listen-client-urls",
        &client,
        "--advertise-client-urls",
        &client,
        "--listen-peer-urls",
        &peer,
        "--initial-advertise-peer-urls",
        &peer,
        "--initial-cluster",
        &format!("bench={peer}"),
        "--quota-backend-bytes",
        &quota,
        "--log-level",
        "error",
    ];
    let process = Start {
        program: &program,
        directory,
        user: None,
        arguments: arguments.map(str::to_owned).to_vec(),
        variables: Vec::new(),
    }
    .listening_at(address)?;
    let version = version.lines().next().unwrap_or_default();
    Ok(Shared {
        process: process.into(),
        address,
        version: version.replace("etcd Version:", "etcd"),
    })
}

/// Either way to lock on it.
pub(super) fn system(kind: Kind, server: Shared) -> System {
    let (how, scenarios): (_, &[Scenario]) = match kind {
        // The lock API cannot try: it always waits. And the name of its key is not known beforehand, to be read.
        Kind::EtcdLock => (
            wire::Kind::LockApi,
            &[Scenario::Pairs, Scenario::Renewals, Scenario::Handovers],
        ),
        _ => (
            wire::Kind::Transaction,
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
        durability: "synced before every answer; renewals of leases are not written",
        address: server.address,
        processes: vec![server.process],
        scenarios,
        dialect: Box::new(move || Box::new(wire::Etcd::new(how))),
    }
}
