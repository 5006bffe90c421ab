//! A point in time for measuring spans that suspending the machine must not stop.

use std::ops::Add;
use std::time::Duration;

use super::{HostTime, TimeSource};

/// A point on `CLOCK_BOOTTIME`. What an [`Instant`](tokio::time::Instant) is for waiting this is for measuring: an
/// `Instant` stands still while the machine is suspended, and a life or a lease that it measures lasts too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(Duration);

impl Moment {
    pub(crate) fn now() -> Self {
        Self(HostTime.since_boot())
    }

    /// How long ago it was.
    pub(crate) fn elapsed(self) -> Duration {
        Self::now().since(self)
    }

    /// As little earlier as can be.
    #[cfg(feature = "etcd")]
    pub(crate) fn just_before(self) -> Self {
        Self(self.0.saturating_sub(Duration::from_nanos(1)))
    }

    /// How much later it is than another; nothing when it is earlier.
    pub(crate) fn since(self, other: Self) -> Duration {
        self.0.saturating_sub(other.0)
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Self(self.0 + span)
    }
}
