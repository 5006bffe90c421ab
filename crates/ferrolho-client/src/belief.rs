//! What the client believes about a grant, and until when.
//!
//! The belief is never longer than the lock. It counts from before the confirmed request was sent: the server
//! counted from later. It is measured on a clock that runs during sleep, and ends a thousandth of the lifetime
//! early, for clocks of different machines run at slightly different rates. Once a loss is stated it stays: no
//! late answer revives a belief that somebody may have seen end.

use std::sync::Arc;
use std::time::Duration;

use ferrolho_core::{FencingToken, Lock, Timestamp, Ttl};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::Loss;
use crate::clock::{Clock, Moment, sleep_until};

/// The part of the lifetime that is believed in: it ends a thousandth before the lock can.
const BELIEVED: f64 = 0.999;

/// The loss is announced this fraction of the lifetime before the belief ends, so that those who wait for the
/// announcement hear it in time.
const ANNOUNCED_BEFORE: u32 = 50;

/// One grant as the client sees it, shared by the guard, its leases and the heartbeat.
#[derive(Debug)]
pub(crate) struct Belief {
    lock: Lock,
    ttl: Ttl,
    clock: Arc<dyn Clock>,
    state: watch::Sender<State>,
    lost: CancellationToken,
}

#[derive(Clone, Copy, Debug)]
struct State {
    until: Moment,
    expires_at: Timestamp,
    loss: Option<Loss>,
}

impl Belief {
    /// The belief in a grant that was confirmed by an answer to a request that was sent at `sent_at` or later.
    pub(crate) fn new(lock: Lock, ttl: Ttl, sent_at: Moment, clock: Arc<dyn Clock>) -> Self {
        let state = State {
            until: end(sent_at, ttl),
            expires_at: lock.expires_at,
            loss: None,
        };
        Self {
            lock,
            ttl,
            clock,
            state: watch::Sender::new(state),
            lost: CancellationToken::new(),
        }
    }

    pub(crate) fn ttl(&self) -> Ttl {
        self.ttl
    }

    pub(crate) fn token(&self) -> FencingToken {
        self.lock.fencing_token
    }

    /// The lock with the expiry that was confirmed last.
    pub(crate) fn lock(&self) -> Lock {
        Lock {
            expires_at: self.state.borrow().expires_at,
            ..self.lock.clone()
        }
    }

    /// How much of the belief is left, looking at the clock now.
    pub(crate) fn check(&self) -> Result<Duration, Loss> {
        let state = *self.state.borrow();
        if let Some(loss) = state.loss {
            return Err(loss);
        }
        let left = state.until.since(self.clock.now());
        if left.is_zero() {
            self.end_belief(Loss::NotRenewed);
            // Somebody else may have stated another loss first.
            return Err(self.state.borrow().loss.unwrap_or(Loss::NotRenewed));
        }
        Ok(left)
    }

    /// When the belief ends if nothing more is heard.
    pub(crate) fn until(&self) -> Moment {
        self.state.borrow().until
    }

    /// When the loss is announced if nothing more is heard.
    pub(crate) fn announced_at(&self) -> Moment {
        self.until().minus(self.ttl.duration() / ANNOUNCED_BEFORE)
    }

    /// The token that cancels when the lock is lost.
    pub(crate) fn lost(&self) -> &CancellationToken {
        &self.lost
    }

    /// How it was lost, if it was stated to be.
    pub(crate) fn loss(&self) -> Option<Loss> {
        self.state.borrow().loss
    }

    /// A renewal that was sent at `sent_at` is confirmed.
    pub(crate) fn extend(&self, sent_at: Moment, expires_at: Timestamp) {
        self.state.send_if_modified(|state| {
            let until = end(sent_at, self.ttl);
            let later = state.loss.is_none() && until > state.until;
            if later {
                state.until = until;
                state.expires_at = expires_at;
            }
            later
        });
    }

    /// States that the lock is lost. The first statement stands.
    pub(crate) fn end_belief(&self, loss: Loss) {
        self.state.send_if_modified(|state| {
            let first = state.loss.is_none();
            state.loss = state.loss.or(Some(loss));
            first
        });
        self.lost.cancel();
    }

    /// Waits until the end of the belief is another than this.
    pub(crate) async fn moved_from(&self, until: Moment) {
        let mut changes = self.state.subscribe();
        // The sender lives as long as this does.
        let _moved = changes.wait_for(|state| state.until != until).await;
    }

    /// Waits until at most `left` of the belief is left, or none because the lock is lost.
    pub(crate) async fn until_left(&self, left: Duration) {
        let mut changes = self.state.subscribe();
        loop {
            let state = *changes.borrow_and_update();
            if state.loss.is_some() {
                return;
            }
            tokio::select! {
                () = sleep_until(&self.clock, state.until.minus(left)) => return,
                // The sender lives as long as this does.
                _ = changes.changed() => {}
            }
        }
    }
}

fn end(sent_at: Moment, ttl: Ttl) -> Moment {
    sent_at.plus(ttl.duration().mul_f64(BELIEVED))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{StepClock, lock};

    fn belief(clock: &StepClock, seconds: u32) -> Belief {
        let ttl = Ttl::new(seconds.into(), Ttl::MAX).unwrap();
        Belief::new(lock("r", 7), ttl, clock.now(), Arc::new(clock.clone()))
    }

    #[test]
    fn it_ends_a_thousandth_early_at_whatever_look() {
        let clock = StepClock::default();
        let belief = belief(&clock, 10);
        assert_eq!(belief.check(), Ok(Duration::from_millis(9_990)));
        clock.step(Duration::from_millis(9_989));
        assert_eq!(belief.check(), Ok(Duration::from_millis(1)));
        assert!(!belief.lost().is_cancelled());
        clock.step(Duration::from_millis(1));
        assert_eq!(belief.check(), Err(Loss::NotRenewed));
        assert!(belief.lost().is_cancelled());
    }

    #[test]
    fn a_loss_is_final_and_the_first_reason_stands() {
        let clock = StepClock::default();
        let belief = belief(&clock, 10);
        belief.end_belief(Loss::Taken);
        belief.extend(clock.now(), belief.lock().expires_at);
        clock.step(Duration::from_secs(20));
        assert_eq!(belief.check(), Err(Loss::Taken));
    }

    #[test]
    fn a_renewal_counts_from_when_it_was_sent_and_never_shortens() {
        let clock = StepClock::default();
        let belief = belief(&clock, 10);
        clock.step(Duration::from_secs(3));
        let sent_at = clock.now();
        clock.step(Duration::from_secs(2));
        belief.extend(sent_at, belief.lock().expires_at);
        assert_eq!(belief.check(), Ok(Duration::from_millis(7_990)));
        belief.extend(Moment::at(Duration::ZERO), belief.lock().expires_at);
        assert_eq!(belief.check(), Ok(Duration::from_millis(7_990)));
    }

    #[test]
    fn a_machine_that_slept_finds_the_lock_lost() {
        let clock = StepClock::default();
        let belief = belief(&clock, 30);
        clock.step(Duration::from_mins(10));
        assert_eq!(belief.check(), Err(Loss::NotRenewed));
    }
}
