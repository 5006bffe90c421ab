//! How long things take and how large they are, counted without locks.
//!
//! Engines count here what only they know: their commits. Whoever shows metrics reads it; nothing here knows how.
//! Counting is a few relaxed additions, so that it may stand in the hottest path.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counts values in buckets, each up to a bound.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [u64],
    /// One more than there are bounds: the last is for what is above all of them.
    buckets: Box<[AtomicU64]>,
    sum: AtomicU64,
}

/// What a histogram holds at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counts {
    /// For each bound, rising, how many values were at most so large and above the bound before.
    pub buckets: Vec<(u64, u64)>,
    /// How many values there were in all.
    pub count: u64,
    /// Their sum.
    pub sum: u64,
}

impl Histogram {
    /// An empty histogram with these bounds, which must rise.
    pub fn new(bounds: &'static [u64]) -> Self {
        Self {
            bounds,
            buckets: (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect(),
            sum: AtomicU64::new(0),
        }
    }

    /// Counts a value.
    pub fn observe(&self, value: u64) {
        let index = self.bounds.partition_point(|bound| *bound < value);
        if let Some(bucket) = self.buckets.get(index) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// Counts a span, in microseconds.
    pub fn observe_micros(&self, span: Duration) {
        self.observe(u64::try_from(span.as_micros()).unwrap_or(u64::MAX));
    }

    /// What has been counted so far. Values that are being counted may be missing from some of it.
    pub fn counts(&self) -> Counts {
        let all: Vec<u64> = self.buckets.iter().map(|b| b.load(Ordering::Relaxed)).collect();
        Counts {
            count: all.iter().sum(),
            buckets: self.bounds.iter().copied().zip(all).collect(),
            sum: self.sum.load(Ordering::Relaxed),
        }
    }
}

/// A counter for each of a few kinds, by their number.
#[derive(Debug)]
pub struct Tally<const KINDS: usize>([AtomicU64; KINDS]);

impl<const KINDS: usize> Default for Tally<KINDS> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl<const KINDS: usize> Tally<KINDS> {
    /// Counts one of this kind.
    pub fn add(&self, kind: usize) {
        if let Some(count) = self.0.get(kind) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many there were of each kind.
    pub fn counts(&self) -> [u64; KINDS] {
        std::array::from_fn(|kind| self.0[kind].load(Ordering::Relaxed))
    }
}

/// Bounds for spans from a memory access to a long wait, in microseconds: 100 µs to 5 min.
pub const SPAN_BOUNDS_MICROS: &[u64] = &[
    100,
    250,
    500,
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    30_000_000,
    60_000_000,
    300_000_000,
];

/// Bounds for the number of changes in a commit.
const CHANGE_BOUNDS: &[u64] = &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512];

/// An engine's commits.
#[derive(Debug)]
pub struct CommitMeter {
    /// How long each commit took, with all that it waited for, in microseconds.
    pub micros: Histogram,
    /// How many changes each carried.
    pub changes: Histogram,
    /// How many did not succeed, or not for certain.
    pub failed: AtomicU64,
}

impl Default for CommitMeter {
    fn default() -> Self {
        Self {
            micros: Histogram::new(SPAN_BOUNDS_MICROS),
            changes: Histogram::new(CHANGE_BOUNDS),
            failed: AtomicU64::new(0),
        }
    }
}

impl CommitMeter {
    /// Counts a commit of so many changes.
    pub fn committed(&self, took: Duration, changes: usize) {
        self.micros.observe_micros(took);
        self.changes.observe(u64::try_from(changes).unwrap_or(u64::MAX));
    }

    /// Counts a commit that failed.
    pub fn failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_counted_in_the_first_bucket_that_holds_it() {
        let histogram = Histogram::new(&[1, 10, 100]);
        for value in [0, 1, 2, 10, 11, 100, 101, 1_000] {
            histogram.observe(value);
        }
        let expected = Counts {
            buckets: vec![(1, 2), (10, 2), (100, 2)],
            count: 8,
            sum: 1_225,
        };
        assert_eq!(histogram.counts(), expected);
    }

    #[test]
    fn a_tally_counts_each_kind_and_nothing_else() {
        let tally = Tally::<3>::default();
        for kind in [0, 2, 2, 3, usize::MAX] {
            tally.add(kind);
        }
        assert_eq!(tally.counts(), [1, 0, 2]);
    }

    #[test]
    fn bounds_rise() {
        for bounds in [SPAN_BOUNDS_MICROS, CHANGE_BOUNDS] {
            assert!(bounds.is_sorted_by(|a, b| a < b));
        }
    }
}
