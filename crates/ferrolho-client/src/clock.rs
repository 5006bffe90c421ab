//! The clock on which the client measures its belief.
//!
//! It must run while the machine sleeps: a lock ends on the server however long a lid was closed. So it is
//! `CLOCK_BOOTTIME` and not the monotonic clock behind `std::time::Instant`, which stands still then. Wall time
//! plays no part, and its steps do no harm. Tests, of this crate and of programs that use it, hand in their own.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A moment on a [`Clock`]: the time since some fixed start, such as the machine's boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(Duration);

impl Moment {
    /// The moment this long after the clock's start.
    pub fn at(since_start: Duration) -> Self {
        Self(since_start)
    }

    /// How long after the clock's start.
    pub fn since_start(self) -> Duration {
        self.0
    }

    /// This moment and `span`.
    pub fn plus(self, span: Duration) -> Self {
        Self(self.0.saturating_add(span))
    }

    /// `span` before this moment, at the earliest the clock's start.
    pub fn minus(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(span))
    }

    /// How long it is from `earlier` to this moment; zero when this one is not later.
    pub fn since(self, earlier: Moment) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// A clock that never goes back, is never set, and runs while the machine sleeps.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Now.
    fn now(&self) -> Moment;
}

/// The machine's clock since boot, sleep included.
#[derive(Clone, Copy, Debug, Default)]
pub struct BootClock;

impl Clock for BootClock {
    fn now(&self) -> Moment {
        // On other systems than Linux the monotonic clock is the nearest: on macOS it runs during sleep too.
        #[cfg(any(target_os = "linux", target_os = "android"))]
        let id = rustix::time::ClockId::Boottime;
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        let id = rustix::time::ClockId::Monotonic;
        let time = rustix::time::clock_gettime(id);
        // Neither part is ever negative for these clocks.
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
        Moment(Duration::new(seconds, nanos))
    }
}

/// The longest single sleep. Timers run on the monotonic clock, so a sleep that began before the machine slept
/// ends late by as long as that took; no later than this after it woke.
const LONGEST_NAP: Duration = Duration::from_millis(500);

/// Sleeps until this moment of this clock.
pub(crate) async fn sleep_until(clock: &Arc<dyn Clock>, moment: Moment) {
    loop {
        let left = moment.since(clock.now());
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(LONGEST_NAP)).await;
    }
}
