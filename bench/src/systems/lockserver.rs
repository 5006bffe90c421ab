//! The `lockserver` crate, built from the package index.

use std::path::Path;

use anyhow::Result;

use super::process::{Start, free_address};
use super::{Kind, System};
use crate::load::Scenario;
use crate::programs::{LOCKSERVER_VERSION, Programs};
use crate::wire::lockserver as wire;

/// Starts a server.
pub(super) fn system(programs: &Programs, directory: &Path) -> Result<System> {
    let program = programs.lockserver()?;
    let address = free_address()?;
    let port = address.port().to_string();
    let process = Start {
        program: &program,
        directory,
        user: None,
        arguments: ["--bind", "127.0.0.1", "--port", &port]
            .map(str::to_owned)
            .to_vec(),
        variables: vec![("LOCKSERVER_SECRET", wire::SECRET.to_owned())],
    }
    .listening_at(address)?;
    Ok(System {
        kind: Kind::Lockserver,
        version: format!("lockserver {LOCKSERVER_VERSION}"),
        durability: "none: memory",
        address,
        processes: vec![process.into()],
        // It has no reading, no renewing and no waiting: callers ask again every 200 ms.
        scenarios: &[Scenario::Pairs, Scenario::Contended],
        dialect: Box::new(|| Box::new(wire::Lockserver::default())),
    })
}
