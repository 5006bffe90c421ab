//! How ferrolho's cost grows: with what it keeps, who waits, who is connected, and how much is asked at a time.

mod connections;
mod locks;
mod waiters;

use std::path::Path;

use anyhow::Result;
use clap::ValueEnum;

use crate::load::{Endpoint, Scenario};
use crate::programs::Programs;
use crate::report::Report;
use crate::rounds::{Effort, Runs, Sample, Setting};
use crate::systems::{Ferrolho, Store};
use crate::wire::Dialect;
use crate::wire::ferrolho::Ferrolho as Wire;

/// What grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Growth {
    /// Live locks: speed, memory, and how long a start takes
    Locks,
    /// Callers that wait, for one lock
    Waiters,
    /// Connections that work, and how many changes share a sync
    Connections,
}

impl Growth {
    /// How far it is measured.
    fn most(self, quick: bool) -> u32 {
        match (self, quick) {
            (Self::Locks, false) => 1_000_000,
            (Self::Locks, true) => 100_000,
            (Self::Waiters, false) => 10_000,
            (Self::Connections, false) => 5_000,
            (Self::Waiters | Self::Connections, true) => 1_000,
        }
    }
}

/// Where and how growth is measured.
pub(crate) struct Bench<'a> {
    programs: &'a Programs,
    directory: &'a Path,
    effort: Effort,
    runs: &'a mut Runs,
}

/// Measures growth with each of these.
pub(crate) fn growth(
    with: &[Growth],
    programs: &Programs,
    directory: &Path,
    effort: &Effort,
    quick: bool,
    runs: &mut Runs,
    report: &mut Report,
) -> Result<()> {
    let mut bench = Bench {
        programs,
        directory,
        effort: *effort,
        runs,
    };
    for growth in with {
        let step = match growth {
            Growth::Locks => locks::measure,
            Growth::Waiters => waiters::measure,
            Growth::Connections => connections::measure,
        };
        step(&mut bench, growth.most(quick), report)?;
    }
    Ok(())
}

impl Bench<'_> {
    fn start(&self, name: &str, store: Store) -> Result<Ferrolho> {
        eprintln!("  {name}");
        Ferrolho::start(self.programs, &self.directory.join(name), store)
    }

    /// The median round, by rate, of one scenario.
    fn run(&mut self, server: &Ferrolho, scenario: Scenario, clients: u32) -> Result<Sample> {
        let setting = Setting {
            scenario,
            clients,
            rate: None,
        };
        let mut samples = Vec::new();
        for _ in 0..self.effort.rounds {
            let sample = self
                .runs
                .once(&endpoint(server), &[server.process.id()], &setting, &self.effort)?;
            if let Some(complaint) = &sample.tally.complaint {
                anyhow::bail!("{}: {complaint}", scenario.name());
            }
            samples.push(sample);
        }
        samples.sort_by(|a, b| a.per_second.total_cmp(&b.per_second));
        Ok(samples.swap_remove(samples.len() / 2))
    }
}

fn endpoint(server: &Ferrolho) -> Endpoint<'static> {
    fn dialect() -> Box<dyn Dialect> {
        Box::new(Wire::default())
    }
    Endpoint {
        address: server.address,
        dialect: &dialect,
    }
}
