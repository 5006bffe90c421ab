//! `ferrolho-bench`: ferrolho and its peers, side by side in one run.
//!
//! One command builds ferrolho, starts every system on free loopback ports with data on a real disk, and measures
//! them in interleaved rounds with one lean load generator that speaks each one's own protocol (`wire`). `load` runs
//! the clients, `systems` the servers, `rounds` the turns; `compare` and `growth` say what is measured, `report`
//! prints it. What is not installed is named as missing.

#![expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "figures are shown with three digits"
)]

mod cli;
mod compare;
mod disk;
mod fill;
mod growth;
mod load;
mod machine;
mod programs;
mod report;
mod rounds;
mod systems;
mod wakeups;
mod wire;

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context, Result};
use clap::Parser as _;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use cli::{Cli, Command, or, or_all};
use machine::Machine;
use programs::Programs;
use report::Report;
use rounds::Runs;
use systems::Kind;

fn main() -> Result<()> {
    let Cli { common, command } = Cli::parse();
    raise_file_limit()?;
    let programs = Programs::locate(common.ferrolho.as_deref(), !common.no_build)?;
    let parent = common.directory.clone().unwrap_or_else(std::env::temp_dir);
    // Others may look inside: PostgreSQL does not run as root.
    let work = tempfile::Builder::new()
        .prefix("ferrolho-bench-")
        .permissions(std::fs::Permissions::from_mode(0o755))
        .tempdir_in(&parent)
        .with_context(|| format!("cannot make a directory in {}", parent.display()))?;
    let machine = Machine::look(work.path())?;
    measure(&common, &command, &programs, &machine, work.path())
}

fn measure(
    common: &cli::Common,
    command: &Command,
    programs: &Programs,
    machine: &Machine,
    work: &Path,
) -> Result<()> {
    let effort = common.effort();
    let out = common.out.as_deref();
    let mut runs = Runs::new(work);
    match command {
        Command::Compare { scenarios, clients } => {
            let mut report = Report::new(out, "compare", machine)?;
            let field = systems::start(&or_all(&common.systems), programs, work);
            let usual: &[u32] = if common.is_quick() {
                &[1, 64]
            } else {
                &[1, 16, 64, 256, 1_024]
            };
            compare::compare(
                &field,
                &or_all(scenarios),
                &or(clients, usual),
                &effort,
                &mut runs,
                &mut report,
            )?;
            report.finish()
        }
        Command::Paced { clients, rates } => {
            let mut report = Report::new(out, "paced", machine)?;
            let usual = [Kind::FerrolhoSqlite, Kind::FerrolhoMemory, Kind::RedisAlways];
            let field = systems::start(&common.systems_or(&usual), programs, work);
            compare::paced(&field, *clients, rates, &effort, &mut runs, &mut report)?;
            report.finish()
        }
        Command::Wakeups => {
            let mut report = Report::new(out, "wakeups", machine)?;
            let usual = [Kind::FerrolhoPostgres, Kind::FerrolhoEtcd];
            // Two servers of each.
            let kinds = common
                .systems_or(&usual)
                .into_iter()
                .flat_map(|kind| [kind, kind]);
            let field = systems::start(&kinds.collect::<Vec<_>>(), programs, work);
            wakeups::wakeups(&field, &effort, &mut runs, &mut report)?;
            report.finish()
        }
        Command::Growth { with } => {
            let mut report = Report::new(out, "growth", machine)?;
            growth::growth(
                &or_all(with),
                programs,
                work,
                &effort,
                common.is_quick(),
                &mut runs,
                &mut report,
            )?;
            report.finish()
        }
    }
}

/// Takes as many open files as the system gives: every client needs one, and servers inherit the limit.
fn raise_file_limit() -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    )?;
    Ok(())
}
