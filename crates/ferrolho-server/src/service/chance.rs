//! Where the service's chance comes from: the marks of attempts, and pauses that are made a little longer so that
//! servers drift apart. A simulation seeds it and then repeats exactly.

use std::time::Duration;

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

/// A source of chance: the machine's, unless it is seeded.
#[derive(Debug, Default)]
pub struct Chance(Option<Mutex<StdRng>>);

impl Chance {
    /// Chance that is the same every time with the same seed.
    pub fn from_seed(seed: u64) -> Self {
        Self(Some(Mutex::new(StdRng::seed_from_u64(seed))))
    }

    /// A number that nobody else draws.
    pub(super) fn number(&self) -> u64 {
        match &self.0 {
            None => rand::random(),
            Some(seeded) => seeded.lock().random(),
        }
    }

    /// A span, made up to a fifth longer.
    pub(super) fn longer(&self, span: Duration) -> Duration {
        const LONGER: std::ops::Range<f64> = 1.0..1.2;
        span.mul_f64(match &self.0 {
            None => rand::random_range(LONGER),
            Some(seeded) => seeded.lock().random_range(LONGER),
        })
    }
}
