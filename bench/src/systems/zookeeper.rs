//! ZooKeeper, one server, from Debian's package.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::process::{Start, complete, find, free_address};
use super::{Kind, System};
use crate::load::Scenario;
use crate::wire::zookeeper as wire;

/// Where Debian puts it and the libraries that it names.
const JAR: &str = "/usr/share/java/zookeeper.jar";

/// Starts a server.
pub(super) fn system(directory: &Path) -> Result<System> {
    let java = find("java", &[]).context("no java (Debian's package default-jre-headless)")?;
    if !Path::new(JAR).is_file() {
        bail!("not installed (Debian's package zookeeper)");
    }
    let address = free_address()?;
    let settings = directory.join("zoo.cfg");
    fs::write(
        &settings,
        format!(
            "dataDir={}\nclientPort={}\nclientPortAddress=127.0.0.1\ntickTime=2000\n\
             # The default of 60 is too few for one machine that stands for many.\nmaxClientCnxns=0\n\
             admin.enableServer=false\n",
            directory.join("data").display(),
            address.port()
        ),
    )?;
    let settings = settings.display().to_string();
    let arguments = [
        "-Xmx1g",
        "-cp",
        JAR,
        "org.apache.zookeeper.server.ZooKeeperServerMain",
        &settings,
    ];
    let process = Start {
        program: &java,
        directory,
        user: None,
        arguments: arguments.map(str::to_owned).to_vec(),
        variables: Vec::new(),
    }
    .listening_at(address)?;
    Ok(System {
        kind: Kind::Zookeeper,
        version: version()?,
        durability: "synced before every answer (forceSync)",
        address,
        processes: vec![process.into()],
        // A session is renewed as a whole, not lock by lock.
        scenarios: &[
            Scenario::Pairs,
            Scenario::Contended,
            Scenario::Reads,
            Scenario::Handovers,
        ],
        dialect: Box::new(|| Box::new(wire::Zookeeper::new())),
    })
}

fn version() -> Result<String> {
    let package = complete(Command::new("dpkg-query").args(["-W", "-f", "${Version}", "zookeeper"]))?;
    Ok(format!(
        "ZooKeeper {}",
        package.split('-').next().unwrap_or_default()
    ))
}
