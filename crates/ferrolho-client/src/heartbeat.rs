//! Renewing, at about a third of the lifetime.
//!
//! A beat that fails is tried again within what is left; one hiccup is no loss. Each attempt may take a quarter
//! of what is left, so there is always time for others. When the server says that the grant is over, or when
//! the time is nearly up, the loss is stated at once.
//!
//! Usually each guard beats for itself and names its token. A client with one heartbeat for all its guards
//! beats for its owner; the answer says which locks that renewed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ferrolho_core::wire::RenewBody;
use ferrolho_core::{Lock, Resource, Ttl};
use rand::Rng;
use tokio::sync::Notify;

use crate::Loss;
use crate::api::{self, Renewal};
use crate::belief::Belief;
use crate::client::Inner;
use crate::clock::{Moment, sleep_until};
use crate::transport::Failure;

/// The longest pause after a beat that failed.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// When the next beat is due after one that was sent at `sent_at`: never before a third of the lifetime, and at
/// most a tenth of that later, so that clients that started together drift apart.
fn next_beat(sent_at: Moment, ttl: Ttl) -> Moment {
    sent_at.plus((ttl.duration() / 3).mul_f64(rand::rng().random_range(1.0..1.1)))
}

/// The pause after a beat that failed.
fn pause(ttl: Ttl) -> Duration {
    api::about(ttl.duration() / 30).min(LONGEST_PAUSE)
}

/// How long one attempt may take when `left` is left.
fn attempt_timeout(inner: &Inner, left: Duration) -> Duration {
    inner.transport.request_timeout().min(left / 4)
}

/// Renews one grant until it is lost. `sent_at` is when the request was sent that confirmed it last.
pub(crate) async fn keep_one(inner: &Inner, belief: &Belief, sent_at: Moment) {
    let lock = belief.lock();
    let body = RenewBody {
        owner: lock.owner,
        ttl_seconds: belief.ttl().seconds(),
        fencing_token: Some(lock.fencing_token),
    };
    let mut next = next_beat(sent_at, belief.ttl());
    while belief.loss().is_none() {
        let announced_at = belief.announced_at();
        sleep_until(&inner.clock, next.min(announced_at)).await;
        let sent_at = inner.clock.now();
        let left = announced_at.since(sent_at);
        if left.is_zero() {
            lose(&lock.resource, belief, Loss::NotRenewed);
            return;
        }
        let timeout = attempt_timeout(inner, left);
        match api::renew_once(&inner.transport, &lock.resource, &body, timeout).await {
            Ok(Renewal::Renewed(renewed)) => {
                belief.extend(sent_at, renewed.expires_at);
                next = next_beat(sent_at, belief.ttl());
            }
            Ok(Renewal::Over) => lose(&lock.resource, belief, Loss::Taken),
            Err(failure) => {
                report(&failure, left);
                next = inner.clock.now().plus(pause(belief.ttl()));
            }
        }
    }
}

fn lose(resource: &Resource, belief: &Belief, loss: Loss) {
    belief.end_belief(loss);
    tracing::warn!(%resource, token = %belief.token(), "{loss}");
}

fn report(failure: &Failure, left: Duration) {
    tracing::warn!(
        left_ms = left.as_millis(),
        "renewing failed, trying again: {}",
        failure.what
    );
}

/// One heartbeat for all guards of a client.
#[derive(Debug)]
pub(crate) struct Shared {
    ttl: Ttl,
    state: Mutex<SharedState>,
    /// Something was added or removed.
    changed: Notify,
}

#[derive(Debug, Default)]
struct SharedState {
    beliefs: HashMap<Resource, Arc<Belief>>,
    /// Whether a task is beating. It ends by itself when there is nothing left to renew.
    beats: bool,
}

impl Shared {
    pub(crate) fn new(ttl: Ttl) -> Self {
        Self {
            ttl,
            state: Mutex::default(),
            changed: Notify::new(),
        }
    }

    pub(crate) fn ttl(&self) -> Ttl {
        self.ttl
    }

    /// Renews this grant too, from now on.
    pub(crate) fn add(self: &Arc<Self>, inner: &Arc<Inner>, belief: &Arc<Belief>) {
        let starts = self.with(|state| {
            state.beliefs.insert(belief.lock().resource, Arc::clone(belief));
            !std::mem::replace(&mut state.beats, true)
        });
        self.changed.notify_one();
        if starts {
            let (shared, inner) = (Arc::clone(self), Arc::clone(inner));
            inner
                .clone()
                .engine
                .in_background(async move { shared.beat(&inner).await });
        }
    }

    /// Renews the grant on this resource no more.
    pub(crate) fn remove(&self, resource: &Resource) {
        self.with(|state| state.beliefs.remove(resource));
        self.changed.notify_one();
    }

    async fn beat(&self, inner: &Arc<Inner>) {
        let mut next = next_beat(inner.clock.now(), self.ttl);
        loop {
            let Some(announced_at) = self.first_announcement() else {
                return;
            };
            tokio::select! {
                () = sleep_until(&inner.clock, next.min(announced_at)) => {}
                () = self.changed.notified() => continue,
            }
            let now = inner.clock.now();
            self.announce(now);
            if now >= next && self.first_announcement().is_some() {
                next = self.renew_all(inner).await;
            }
        }
    }

    /// When the first loss is to be announced; nothing when there is nothing to renew, and the beat ends.
    fn first_announcement(&self) -> Option<Moment> {
        self.with(|state| {
            let first = state.beliefs.values().map(|belief| belief.announced_at()).min();
            state.beats = first.is_some();
            first
        })
    }

    /// States the losses whose time has come.
    fn announce(&self, now: Moment) {
        self.with(|state| {
            state.beliefs.retain(|resource, belief| {
                let is_due = now >= belief.announced_at();
                if is_due && belief.loss().is_none() {
                    lose(resource, belief, Loss::NotRenewed);
                }
                belief.loss().is_none()
            });
        });
    }

    /// One beat; when the next one is due.
    async fn renew_all(&self, inner: &Arc<Inner>) -> Moment {
        let before: Vec<Arc<Belief>> = self.with(|state| state.beliefs.values().cloned().collect());
        let sent_at = inner.clock.now();
        let left = before.iter().map(|belief| belief.announced_at()).min();
        let left = left.unwrap_or(sent_at).since(sent_at);
        let owner = &inner.identity.owner;
        let timeout = attempt_timeout(inner, left);
        match api::renew_owner_once(&inner.transport, owner, self.ttl, timeout).await {
            Ok(locks) => {
                let mut locks: HashMap<Resource, Lock> = locks
                    .into_iter()
                    .map(|lock| (lock.resource.clone(), lock))
                    .collect();
                for belief in before {
                    self.judge(&belief, locks.remove(&belief.lock().resource), sent_at);
                }
                release_ghosts(inner, locks);
                next_beat(sent_at, self.ttl)
            }
            Err(failure) => {
                report(&failure, left);
                inner.clock.now().plus(pause(self.ttl))
            }
        }
    }

    /// What the answer to a beat means for a grant that was held when it was sent.
    fn judge(&self, belief: &Belief, renewed: Option<Lock>, sent_at: Moment) {
        match renewed {
            Some(lock) if lock.fencing_token == belief.token() => belief.extend(sent_at, lock.expires_at),
            // Released by its guard in the meantime, and perhaps taken anew.
            _ if belief.loss().is_some() => {}
            _ => {
                let resource = belief.lock().resource;
                lose(&resource, belief, Loss::Taken);
                self.remove(&resource);
            }
        }
    }

    fn with<T>(&self, act: impl FnOnce(&mut SharedState) -> T) -> T {
        // Nothing panics while it holds the lock; the state is whole in any case.
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Gives back what the heartbeat renewed although no guard has it, such as a grant whose answer was lost. A
/// heartbeat would keep it for ever.
fn release_ghosts(inner: &Arc<Inner>, locks: HashMap<Resource, Lock>) {
    if !inner.identity.is_unique {
        return;
    }
    for lock in locks.into_values() {
        if !inner.claims.is_wanted(&lock.resource) {
            inner.release_in_background(lock.resource, Some(lock.fencing_token));
        }
    }
}
