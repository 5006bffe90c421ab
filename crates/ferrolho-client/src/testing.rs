//! What the unit tests of this crate share.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferrolho_core::Lock;

use crate::clock::{Clock, Moment};

/// A clock that stands still until it is stepped.
#[derive(Clone, Debug, Default)]
pub(crate) struct StepClock(Arc<Mutex<Duration>>);

impl StepClock {
    pub(crate) fn step(&self, by: Duration) {
        *self.0.lock().unwrap() += by;
    }
}

impl Clock for StepClock {
    fn now(&self) -> Moment {
        Moment::at(*self.0.lock().unwrap())
    }
}

/// A lock of owner `a` with this token.
pub(crate) fn lock(resource: &str, token: u64) -> Lock {
    let time = "\"2026-12-01T05:02:15.000000Z\"";
    serde_json::from_str(&format!(
        "{{\"resource\":\"{resource}\",\"owner\":\"a\",\"expires_at\":{time},\"acquired_at\":{time},\
         \"fencing_token\":{token}}}"
    ))
    .unwrap()
}
