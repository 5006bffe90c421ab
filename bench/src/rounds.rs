//! Runs, interleaved: every system has its turn in every round, so that what else the machine does, and how warm it
//! is, falls on all of them alike. The order turns by one from round to round.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::disk::Disk;
use crate::load::{self, Endpoint, Plan, Scenario, Tally};
use crate::systems::{self, Kind, System};

/// Between two runs, so that a server can finish what it has put off.
const PAUSE: Duration = Duration::from_millis(300);
/// Before the first round, so that every server is warm: compiled, grown, connected.
const FIRST_WARM_UP: Duration = Duration::from_secs(2);

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    pub(crate) rounds: u32,
    pub(crate) warm_up: Duration,
    pub(crate) measure: Duration,
    pub(crate) threads: u32,
}

/// One thing to be measured on all systems that can do it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Setting {
    pub(crate) scenario: Scenario,
    /// Clients, or for hand-overs how many of them wait at any time.
    pub(crate) clients: u32,
    /// Cycles a second in an open loop.
    pub(crate) rate: Option<f64>,
}

/// What one run gave.
pub(crate) struct Sample {
    pub(crate) per_second: f64,
    pub(crate) tally: Tally,
    /// Of the server, for one cycle.
    pub(crate) processor: Duration,
    /// Of the load generator, for one cycle.
    pub(crate) generator: Duration,
    pub(crate) memory_bytes: u64,
    /// Of the disk, for one cycle.
    pub(crate) syncs: Option<f64>,
}

/// What all rounds gave for one system and setting.
pub(crate) struct Figures {
    pub(crate) kind: Kind,
    pub(crate) setting: Setting,
    pub(crate) samples: Vec<Sample>,
    /// Why there is no result, if there is none.
    pub(crate) failure: Option<String>,
}

impl Figures {
    /// The median of the rounds; nothing when a run failed.
    pub(crate) fn median(&self, of: impl Fn(&Sample) -> f64) -> Option<f64> {
        let mut values: Vec<f64> = self.samples.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        self.failure
            .is_none()
            .then(|| values.get(values.len() / 2).copied())
            .flatten()
    }

    /// Cycles a second: the median, the lowest and the highest of the rounds.
    pub(crate) fn per_second(&self) -> Option<[f64; 3]> {
        let all = || self.samples.iter().map(|sample| sample.per_second);
        let median = self.median(|sample| sample.per_second)?;
        Some([median, all().fold(median, f64::min), all().fold(median, f64::max)])
    }

    /// The time that this share of all cycles of all rounds did not exceed.
    pub(crate) fn quantile(&self, share: f64) -> Option<Duration> {
        let mut sum = Tally::new();
        self.samples.iter().for_each(|sample| sum.add(&sample.tally));
        self.failure.is_none().then(|| sum.quantile(share))
    }

    fn take(&mut self, sample: Result<Sample>) {
        match sample {
            Ok(sample) if sample.tally.errors > 0 => {
                let complaint = sample.tally.complaint.clone().unwrap_or_default();
                self.failure
                    .get_or_insert(format!("{} errors, the first: {complaint}", sample.tally.errors));
            }
            Ok(sample) => self.samples.push(sample),
            Err(error) => {
                self.failure.get_or_insert(format!("{error:#}"));
            }
        }
    }
}

/// Makes runs, and gives each another number.
pub(crate) struct Runs {
    last: u32,
    disk: Disk,
}

impl Runs {
    /// No run yet. Syncs are counted on the disk of `directory`.
    pub(crate) fn new(directory: &Path) -> Self {
        Self {
            last: 0,
            disk: Disk::below(directory),
        }
    }

    /// The number of the next run.
    pub(crate) fn number(&mut self) -> u32 {
        self.last += 1;
        self.last
    }

    /// One run against the server whose processes have these numbers.
    pub(crate) fn once(
        &mut self,
        endpoint: &Endpoint<'_>,
        ids: &[u32],
        setting: &Setting,
        effort: &Effort,
    ) -> Result<Sample> {
        let plan = Plan {
            script: setting.scenario.script(),
            run: self.number(),
            clients: match setting.scenario {
                // One has the lock and one is on its way back to the end of the line.
                Scenario::Handovers => setting.clients + 2,
                _ => setting.clients,
            },
            rate: setting.rate,
            warm_up: effort.warm_up,
            measure: effort.measure,
            threads: effort.threads,
        };
        let look = || Reading {
            server: systems::processor(ids),
            generator: systems::own_processor(std::process::id()),
            syncs: self.disk.syncs(),
        };
        let mut readings = Vec::with_capacity(2);
        let mut memory_bytes = 0;
        let (tally, window) = load::run(endpoint, &plan, |ended| {
            readings.push(look());
            if ended {
                memory_bytes = systems::memory_bytes(ids);
            }
        })?;
        let [start, end] = readings.as_slice() else {
            bail!("the run was not timed");
        };
        let cycles = tally.cycles().max(1) as f64;
        Ok(Sample {
            per_second: tally.cycles() as f64 / window.seconds(),
            processor: (end.server.saturating_sub(start.server)).div_f64(cycles),
            generator: (end.generator.saturating_sub(start.generator)).div_f64(cycles),
            memory_bytes,
            syncs: end
                .syncs
                .zip(start.syncs)
                .map(|(end, start)| (end - start) as f64 / cycles),
            tally,
        })
    }
}

/// What has been used up to an end of the window.
struct Reading {
    server: Duration,
    generator: Duration,
    syncs: Option<u64>,
}

/// Has every system do some work that does not count.
pub(crate) fn warm_up(systems: &[System], runs: &mut Runs) {
    for system in systems {
        let setting = Setting {
            scenario: Scenario::Pairs,
            clients: 16,
            rate: None,
        };
        let effort = Effort {
            rounds: 1,
            warm_up: FIRST_WARM_UP,
            measure: Duration::from_millis(100),
            threads: 1,
        };
        if let Err(error) = runs.once(&system.endpoint(), &system.ids(), &setting, &effort) {
            // It will fail again where it counts, and be shown there.
            eprintln!("  {} did not warm up: {error:#}", system.kind.name());
        }
    }
}

/// Measures one setting on all systems, and says on standard error how each run went.
pub(crate) fn measure(
    systems: &[System],
    setting: Setting,
    effort: &Effort,
    runs: &mut Runs,
) -> Vec<Figures> {
    let able: Vec<&System> = systems
        .iter()
        .filter(|system| system.scenarios.contains(&setting.scenario))
        .collect();
    let mut all: Vec<Figures> = able
        .iter()
        .map(|system| Figures {
            kind: system.kind,
            setting,
            samples: Vec::new(),
            failure: None,
        })
        .collect();
    for round in 0..effort.rounds as usize {
        for place in 0..able.len() {
            let turn = (place + round) % able.len();
            let (Some(system), Some(figures)) = (able.get(turn), all.get_mut(turn)) else {
                continue;
            };
            figures.take(runs.once(&system.endpoint(), &system.ids(), &setting, effort));
            show(figures, round);
            std::thread::sleep(PAUSE);
        }
    }
    all
}

fn show(figures: &Figures, round: usize) {
    let Setting {
        scenario,
        clients,
        rate,
    } = figures.setting;
    let rate = rate.map_or_else(String::new, |rate| format!(" at {rate}/s"));
    let head = format!(
        "  {} {clients}{rate} round {} {:<18}",
        scenario.name(),
        round + 1,
        figures.kind.name()
    );
    match (&figures.failure, figures.samples.last()) {
        (Some(failure), _) => eprintln!("{head} FAILED: {failure}"),
        (None, Some(sample)) => eprintln!(
            "{head} {:>9.0}/s  median {:?}  p99 {:?}",
            sample.per_second,
            sample.tally.quantile(0.5),
            sample.tally.quantile(0.99)
        ),
        (None, None) => eprintln!("{head} nothing"),
    }
}
