//! What one run amounted to.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

/// The shortest and the longest time that is told apart, in nanoseconds; what is longer counts as the longest.
const SHORTEST: u64 = 1_000;
const LONGEST: u64 = 100_000_000_000;

/// The span of time in which what ends is counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) start: Instant,
    pub(crate) end: Instant,
}

impl Window {
    /// Whether an instant is inside.
    pub(crate) fn has(self, instant: Instant) -> bool {
        (self.start..self.end).contains(&instant)
    }

    /// Its length in seconds.
    pub(crate) fn seconds(self) -> f64 {
        (self.end - self.start).as_secs_f64()
    }
}

/// Cycles, their times, and what went wrong.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    /// How long the counted cycles took, in nanoseconds.
    pub(crate) times: Histogram<u64>,
    /// Answers that were not the right one. A run that has any is no result.
    pub(crate) errors: u64,
    /// The first of them.
    pub(crate) complaint: Option<String>,
    /// Cycles of an open loop that had not begun when the window ended: the server did not keep up.
    pub(crate) missed: u64,
}

impl Tally {
    /// Nothing yet.
    pub(crate) fn new() -> Self {
        Self {
            times: Histogram::new_with_bounds(SHORTEST, LONGEST, 3)
                .unwrap_or_else(|_| unreachable!("the bounds are constants")),
            errors: 0,
            complaint: None,
            missed: 0,
        }
    }

    /// Counts a cycle.
    pub(super) fn record(&mut self, time: Duration) {
        self.times
            .saturating_record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Counts a wrong answer.
    pub(super) fn complain(&mut self, what: impl FnOnce() -> String) {
        self.errors += 1;
        self.complaint.get_or_insert_with(what);
    }

    /// Adds what another thread counted.
    pub(crate) fn add(&mut self, other: &Self) {
        // Both have the same bounds.
        let _ = self.times.add(&other.times);
        self.errors += other.errors;
        self.missed += other.missed;
        if self.complaint.is_none() {
            self.complaint.clone_from(&other.complaint);
        }
    }

    /// How many cycles were counted.
    pub(crate) fn cycles(&self) -> u64 {
        self.times.len()
    }

    /// The time that this share of the cycles did not exceed.
    pub(crate) fn quantile(&self, share: f64) -> Duration {
        Duration::from_nanos(self.times.value_at_quantile(share))
    }
}
