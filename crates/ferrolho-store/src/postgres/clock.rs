//! What the database's clock should show now. Every call says what it expects, so that a step of that clock frees no
//! lock and keeps none, and a call that comes very late does nothing.

use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Moment;

/// How far the database's clock may be from what is expected: more is a step, or a call that came very late.
pub(super) const MAX_OFF_MICROS: i64 = 1_000_000;

/// The database's clock as it was seen, in microseconds since 1970, and how often it was put right before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sight {
    pub(super) era: i64,
    pub(super) clock: i64,
    seen: Moment,
}

impl Sight {
    /// What has just been answered. The clock was read before that, so it is never taken to be further than it is,
    /// and no lock ends too early by it.
    fn now(era: i64, clock: i64) -> Self {
        let seen = Moment::now();
        Self { era, clock, seen }
    }

    /// What it should show now.
    pub(super) fn expected(&self) -> i64 {
        self.expected_at(Moment::now())
    }

    fn expected_at(&self, at: Moment) -> i64 {
        self.clock + micros(at.since(self.seen))
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
        Self(Mutex::new(Sight::now(era, clock)))
    }

    pub(super) fn sight(&self) -> Sight {
        *self.0.lock()
    }

    /// Whether this answer to a call of that time is as was expected. A clock that runs a little slow or fast is
    /// followed; an answer that was long on its way says nothing new.
    pub(super) fn fits(&self, era: i64, clock: i64, sent: Moment) -> bool {
        let mut sight = self.0.lock();
        let now = sight.expected();
        let fits = era == sight.era && (now - MAX_OFF_MICROS..=now + MAX_OFF_MICROS).contains(&clock);
        let is_slow_or_fast = clock < sight.expected_at(sent) || clock > now;
        if fits && is_slow_or_fast {
            *sight = Sight::now(era, clock);
        }
        fits
    }

    /// Takes over what has just been answered, whatever was expected.
    pub(super) fn set(&self, era: i64, clock: i64) {
        let mut sight = self.0.lock();
        if era >= sight.era {
            *sight = Sight::now(era, clock);
        }
    }
}
