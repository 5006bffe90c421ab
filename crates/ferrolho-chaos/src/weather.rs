//! When which server was disturbed: what a client has to put up with only then.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// What a fault touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    Server(usize),
    All,
}

impl Reach {
    fn includes(self, server: usize) -> bool {
        match self {
            Self::Server(one) => one == server,
            Self::All => true,
        }
    }
}

/// The faults of the run so far, with their times.
#[derive(Debug, Default)]
pub(crate) struct Weather(Mutex<Vec<Disturbance>>);

#[derive(Debug)]
struct Disturbance {
    reach: Reach,
    /// Nothing while it lasts.
    end: Option<Instant>,
}

impl Weather {
    fn disturbances(&self) -> MutexGuard<'_, Vec<Disturbance>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn begin(&self, reach: Reach) {
        self.disturbances().push(Disturbance { reach, end: None });
    }

    /// All that was disturbed has healed.
    pub(crate) fn clear(&self) {
        let now = Instant::now();
        for disturbance in &mut *self.disturbances() {
            disturbance.end.get_or_insert(now);
        }
    }

    /// Whether nothing has touched this server since.
    pub(crate) fn is_calm_since(&self, server: usize, since: Instant) -> bool {
        // Backwards: disturbances that have ended did so in the order in which they are listed.
        self.disturbances()
            .iter()
            .rev()
            .take_while(|disturbance| disturbance.end.is_none_or(|end| end >= since))
            .all(|disturbance| !disturbance.reach.includes(server))
    }
}
