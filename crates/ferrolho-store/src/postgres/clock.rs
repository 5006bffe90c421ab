//! What the database's clock should show now. Every call says what it expects, so that a step of that clock frees no
//! lock and keeps none, and a call that comes very late does nothing.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The database's clock as it was last seen, in microseconds since 1970, and how often it was put right before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sight {
    pub(super) era: i64,
    pub(super) clock: i64,
    pub(super) seen: Instant,
}

impl Sight {
    /// What it should show now.
    pub(super) fn expected(&self) -> i64 {
        self.clock + micros(self.seen.elapsed())
    }
}

pub(super) fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

/// The newest sight of the clock.
#[derive(Debug)]
pub(super) struct Clock(Mutex<Sight>);

impl Clock {
    /// What has just been answered.
    pub(super) fn new(era: i64, clock: i64) -> Self {
        let seen = Instant::now();
        Self(Mutex::new(Sight { era, clock, seen }))
    }

    pub(super) fn sight(&self) -> Sight {
        *self.0.lock()
    }

    /// Takes over what has just been answered. The clock was read before that, so it is never taken to be further
    /// than it is, and no lock ends too early by it.
    pub(super) fn saw(&self, era: i64, clock: i64) {
        let mut sight = self.0.lock();
        if era >= sight.era {
            *sight = Sight {
                era,
                clock,
                seen: Instant::now(),
            };
        }
    }
}
