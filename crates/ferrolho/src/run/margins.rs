//! How long before the lock can end the command is ended.

use std::time::Duration;

use ferrolho_client::{Moment, Ttl};
use rustix::process::Pid;

use super::sentry::Order;

/// How much of the certain time is left at each of the moments that matter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Margins {
    /// The command is asked to end: a quarter of the lifetime, at most ten seconds.
    pub(crate) ask: Duration,
    /// It is killed: an eighth, at most a second. The killed need time to die too, more on a busy machine.
    pub(crate) kill: Duration,
    /// The sentry kills it, if this program did not: three quarters of that.
    sentry: Duration,
}

impl Margins {
    pub(crate) fn of(ttl: Ttl) -> Self {
        let kill = (ttl.duration() / 8).min(Duration::from_secs(1));
        Self {
            ask: (ttl.duration() / 4).min(Duration::from_secs(10)),
            kill,
            sentry: kill * 3 / 4,
        }
    }

    /// What the sentry is told about the command of this group.
    pub(crate) fn order(self, certain_until: Moment, group: Option<Pid>) -> Order {
        Order {
            group,
            dead_at: certain_until.minus(self.sentry),
        }
    }
}
