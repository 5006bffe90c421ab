//! Redis, with a log that is synced on every write, or without persistence.

use std::path::Path;

use anyhow::{Context, Result};

use super::process::{Start, complete, find, free_address};
use super::{Kind, System};
use crate::load::Scenario;
use crate::wire::redis as wire;

/// Starts a server of either kind.
pub(super) fn system(kind: Kind, directory: &Path) -> Result<System> {
    let program = find("redis-server", &[]).context("not installed (Debian's package redis-server)")?;
    let version = complete(std::process::Command::new(&program).arg("--version"))?;
    let address = free_address()?;
    let port = address.port().to_string();
    // No snapshots beside the log: they would only cost time. Everything else is the default.
    let mut arguments = vec!["--bind", "127.0.0.1", "--port", &port, "--save", ""];
    if kind == Kind::RedisAlways {
        arguments.extend(["--appendonly", "yes", "--appendfsync", "always"]);
    }
    let process = Start {
        program: &program,
        directory,
        user: None,
        arguments: arguments.into_iter().map(str::to_owned).collect(),
        variables: Vec::new(),
    }
    .listening_at(address)?;
    Ok(System {
        kind,
        version: version
            .split_whitespace()
            .find_map(|word| word.strip_prefix("v="))
            .map_or_else(String::new, |version| format!("Redis {version}")),
        durability: match kind {
            Kind::RedisAlways => "synced before every answer (appendfsync always)",
            _ => "none: no persistence",
        },
        address,
        processes: vec![process.into()],
        // It has no waiting: callers ask again.
        scenarios: &[
            Scenario::Pairs,
            Scenario::Contended,
            Scenario::Reads,
            Scenario::Renewals,
        ],
        dialect: Box::new(|| Box::new(wire::Redis::default())),
    })
}
