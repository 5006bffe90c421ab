//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::growth::Growth;
use crate::load::Scenario;
use crate::rounds::Effort;
use crate::systems::Kind;

/// Measures ferrolho and its peers, side by side in one run.
#[derive(Parser)]
#[command(version)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What all commands take.
#[derive(Args)]
pub(crate) struct Common {
    /// Short runs and few of them: to see that it works, not to quote
    #[arg(long, global = true)]
    quick: bool,
    /// How many rounds [default: 5]
    #[arg(long, global = true)]
    rounds: Option<u32>,
    /// How long each run is measured, in seconds [default: 3]
    #[arg(long, global = true)]
    seconds: Option<f64>,
    /// Threads of the load generator
    #[arg(long, global = true, default_value_t = 1)]
    threads: u32,
    /// Where the servers keep their data: a directory on the disk to be measured [default: the temporary directory]
    #[arg(long, global = true)]
    pub(crate) directory: Option<PathBuf>,
    /// Write tables, plots and the figures of every run into this directory
    #[arg(long, global = true)]
    pub(crate) out: Option<PathBuf>,
    /// Measure this ferrolho and not the one of this workspace
    #[arg(long, global = true, value_name = "PROGRAM")]
    pub(crate) ferrolho: Option<PathBuf>,
    /// Build nothing: neither ferrolho nor lockserver
    #[arg(long, global = true)]
    pub(crate) no_build: bool,
    /// The systems, with commas between several [default: all]
    #[arg(long, global = true, value_delimiter = ',')]
    pub(crate) systems: Vec<Kind>,
}

/// What to measure.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Every scenario at every number of clients, in closed loops
    Compare {
        /// The scenarios, with commas between several [default: all]
        #[arg(long, value_delimiter = ',')]
        scenarios: Vec<Scenario>,
        /// The numbers of clients, with commas between several [default: 1,16,64,256,1024]
        #[arg(long, value_delimiter = ',')]
        clients: Vec<u32>,
    },
    /// Pairs that begin at fixed rates, measured from when they should have begun
    Paced {
        /// How many connections they are spread over
        #[arg(long, default_value_t = 64)]
        clients: u32,
        /// The rates in pairs a second, with commas between several
        #[arg(long, value_delimiter = ',', default_values_t = [1_000.0, 2_000.0, 4_000.0, 8_000.0, 16_000.0])]
        rates: Vec<f64>,
    },
    /// How soon a release at one server wakes who waits at another, on PostgreSQL and etcd
    Wakeups,
    /// How ferrolho's cost grows
    Growth {
        /// With what, with commas between several [default: all]
        #[arg(long, value_delimiter = ',')]
        with: Vec<Growth>,
    },
}

impl Common {
    /// How much is measured.
    pub(crate) fn effort(&self) -> Effort {
        let (rounds, seconds, warm_up) = if self.quick { (1, 0.5, 0.2) } else { (5, 3.0, 1.0) };
        Effort {
            rounds: self.rounds.unwrap_or(rounds).max(1),
            warm_up: Duration::from_secs_f64(warm_up),
            measure: Duration::from_secs_f64(self.seconds.unwrap_or(seconds).clamp(0.05, 3_600.0)),
            threads: self.threads,
        }
    }

    /// Whether runs are short.
    pub(crate) fn is_quick(&self) -> bool {
        self.quick
    }

    /// The systems asked for, or else these.
    pub(crate) fn systems_or(&self, others: &[Kind]) -> Vec<Kind> {
        or(&self.systems, others)
    }
}

/// What was asked for, or all there is.
pub(crate) fn or_all<T: ValueEnum + Copy>(asked: &[T]) -> Vec<T> {
    or(asked, T::value_variants())
}

/// What was asked for, or else these.
pub(crate) fn or<T: Copy>(asked: &[T], others: &[T]) -> Vec<T> {
    if asked.is_empty() {
        others.to_vec()
    } else {
        asked.to_vec()
    }
}
