//! Acquiring: one key, short polls, and no grant left behind.
//!
//! All attempts of one acquire carry the same `Idempotency-Key`, so that a grant whose answer was lost is answered
//! again instead of shutting its owner out. A long wait is made of polls, short enough for any proxy; the server
//! keeps the place in its queue between them. An answer that may be older than its request (it waited, or an
//! earlier attempt may have made the grant) is renewed once before it is believed, and counts from then.
//!
//! Whoever leaves without a guard gives back what it may have been granted: see [`Entry`].

use std::sync::Arc;
use std::time::Duration;

use ferrolho_core::wire::{AcquireAnswer, AcquireBody, AcquireSetAnswer, AcquireSetBody, RenewBody};
use ferrolho_core::{Lock, Resource};
use futures_util::future::join_all;
use tokio::time::{Instant, timeout_at};

use crate::Error;
use crate::api::{self, Renewal};
use crate::belief::Belief;
use crate::claims::Claim;
use crate::client::Inner;
use crate::clock::Moment;
use crate::guard::Guard;
use crate::request::{Patience, Wanted};
use crate::transport::{Call, Failure, Reply};

/// The longest single poll of a wait.
const LONGEST_POLL: Duration = Duration::from_secs(20);

/// The pause after a poll that was answered before its time, as when another request of this owner was granted.
const POLL_PAUSE: Duration = Duration::from_millis(50);

/// The first pause after a failure; each next one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// The longest pause after a failure, before up to as much again is added: the place in the queue is kept for 5 s.
const LONGEST_PAUSE: Duration = Duration::from_millis(1500);

/// What is held, with when it was confirmed.
struct Granted {
    lock: Lock,
    /// When the request was sent that confirmed it.
    sent_at: Moment,
}

/// What one attempt came to.
enum Step {
    Granted(Vec<Granted>),
    Held(Error),
    Failed(Failure),
}

/// Acquires all that is wanted: the first guard and the others.
pub(crate) async fn acquire(inner: Arc<Inner>, wanted: Wanted) -> Result<(Guard, Vec<Guard>), Error> {
    let until = match wanted.patience {
        Patience::None => Some(Instant::now()),
        // A wait of more years than an instant can hold is for ever.
        Patience::For(wait) => Instant::now().checked_add(begun_seconds(wait)),
        Patience::Forever => None,
    };
    let claims = enter(&inner, &wanted, until).await?;
    let mut entry = Entry::new(inner, wanted, claims);
    let mut failures: u32 = 0;
    loop {
        let asked_at = Instant::now();
        let poll = Entry::poll(until, asked_at);
        let pause = match entry.attempt(poll).await? {
            Step::Granted(granted) => return entry.hand_over(granted),
            Step::Held(held) if poll.is_zero() || is_over(until) => return Err(held),
            Step::Held(_) if asked_at.elapsed() < poll => api::about(POLL_PAUSE),
            Step::Held(_) => Duration::ZERO,
            Step::Failed(failure) => {
                failures += 1;
                if entry.gives_up(failures, until) {
                    return Err(Error::Unreachable(failure.what));
                }
                if failures == 1 && !is_over(until) {
                    tracing::warn!("{}; trying again", failure.what);
                }
                let pause = FIRST_PAUSE * 2u32.saturating_pow(failures.min(16) - 1);
                api::about(failure.retry_after.unwrap_or(pause).max(pause).min(LONGEST_PAUSE))
            }
        };
        tokio::time::sleep(pause).await;
    }
}

/// Whether so little is left of the wait that it would round to nothing.
fn is_over(until: Option<Instant>) -> bool {
    until.is_some_and(|until| whole_seconds(until.saturating_duration_since(Instant::now())).is_zero())
}

/// The whole seconds, of which the last may only have begun.
fn begun_seconds(span: Duration) -> Duration {
    let begun = u64::from(span.subsec_nanos() > 0);
    Duration::from_secs(span.as_secs().saturating_add(begun))
}

/// The nearest whole seconds, as the server wants them.
fn whole_seconds(span: Duration) -> Duration {
    Duration::from_secs_f64(span.as_secs_f64().round())
}

/// Waits until nobody else of this client holds or wants any of it. In the order of the names, so that two
/// requests never wait for each other.
async fn enter(inner: &Inner, wanted: &Wanted, until: Option<Instant>) -> Result<Vec<Claim>, Error> {
    let mut names: Vec<&Resource> = wanted.resources.iter().collect();
    names.sort();
    let mut claims = Vec::with_capacity(names.len());
    for name in names {
        let claim = match (wanted.patience, until) {
            (Patience::None, _) => inner.claims.try_enter(name).await,
            (_, Some(until)) => timeout_at(until, inner.claims.enter(name)).await.ok(),
            (_, None) => Some(inner.claims.enter(name).await),
        };
        claims.push(claim.ok_or_else(|| Error::Held {
            resources: vec![name.clone()],
            retry_after: None,
        })?);
    }
    Ok(claims)
}

/// One acquire under way. Dropped without a guard, it gives back in the background what it may have been granted,
/// and keeps others of this client out until that is done.
struct Entry {
    inner: Arc<Inner>,
    wanted: Wanted,
    key: String,
    attempts: u32,
    claims: Vec<Claim>,
    /// An attempt had no answer: all of it may have been granted.
    is_in_doubt: bool,
    /// What was granted for certain and has no guard yet.
    granted: Vec<Lock>,
}

impl Entry {
    fn new(inner: Arc<Inner>, wanted: Wanted, claims: Vec<Claim>) -> Self {
        Self {
            inner,
            wanted,
            key: format!("{:032x}", rand::random::<u128>()),
            attempts: 0,
            claims,
            is_in_doubt: false,
            granted: Vec::new(),
        }
    }

    /// How long the next attempt waits: what is left, rounded, and no more than one poll.
    fn poll(until: Option<Instant>, now: Instant) -> Duration {
        let left = until.map_or(LONGEST_POLL, |until| until.saturating_duration_since(now));
        whole_seconds(left.min(LONGEST_POLL))
    }

    /// Whether so many failures are enough: each server was asked twice, and the time to wait is over.
    fn gives_up(&self, failures: u32, until: Option<Instant>) -> bool {
        let enough = api::ROUNDS * self.inner.transport.server_count();
        is_over(until) && usize::try_from(failures).is_ok_and(|failures| failures >= enough)
    }

    /// One attempt that waits on the server for `poll`.
    async fn attempt(&mut self, poll: Duration) -> Result<Step, Error> {
        let call = self.call(poll);
        let sent_at = self.inner.clock.now();
        let timeout = poll + self.inner.transport.request_timeout();
        let is_first = self.attempts == 0;
        self.attempts = self.attempts.saturating_add(1);
        // From here until an answer says otherwise: the caller may leave at any moment.
        let doubt_before = std::mem::replace(&mut self.is_in_doubt, true);
        let reply = match self.inner.transport.send(&call, timeout).await {
            Ok(reply) => reply,
            Err(failure) => {
                self.is_in_doubt = doubt_before || failure.may_be_done;
                return Ok(Step::Failed(failure));
            }
        };
        // An answer settles this attempt; a refusal says nothing about those before.
        self.is_in_doubt = doubt_before && reply.status != 200;
        match self.read(&reply)? {
            Read::Locks(locks) => {
                self.granted.clone_from(&locks);
                let waited = !poll.is_zero() || !is_first;
                let late = self.inner.clock.now().since(sent_at) > self.wanted.ttl.duration() / 3;
                if waited || late {
                    return Ok(self.confirm(locks).await);
                }
                let granted = locks.into_iter().map(|lock| Granted { lock, sent_at });
                Ok(Step::Granted(granted.collect()))
            }
            Read::Held(error) => {
                self.granted.clear();
                Ok(Step::Held(error))
            }
            Read::Unclear(failure) => {
                self.is_in_doubt = true;
                Ok(Step::Failed(failure))
            }
        }
    }

    fn call(&self, poll: Duration) -> Call {
        let acquire = AcquireBody {
            owner: self.inner.identity.owner.clone(),
            ttl_seconds: self.wanted.ttl.seconds(),
            // Never more than one poll.
            wait_seconds: u32::try_from(poll.as_secs()).ok().filter(|seconds| *seconds > 0),
            metadata: self.wanted.metadata.clone(),
        };
        let mut call = match self.wanted.resources.as_slice() {
            [resource] => Call::post(format!("/locks/{}", api::encode(resource.as_str())), &acquire),
            several => Call::post(
                "/locks",
                &AcquireSetBody {
                    resources: several.to_vec(),
                    acquire,
                },
            ),
        };
        call.idempotency_key = Some(self.key.clone());
        call
    }

    /// What the answer says. Only locks that are what was asked for are taken for granted.
    fn read(&self, reply: &Reply) -> Result<Read, Error> {
        if reply.status != 200 {
            return Err(reply.refusal());
        }
        let answer = match self.wanted.resources.len() {
            1 => reply.parse().map(|answer: AcquireAnswer| AcquireSetAnswer {
                acquired: answer.acquired,
                locks: answer.lock.map(|lock| vec![lock]),
                resources: answer.resource.map(|resource| vec![resource]),
            }),
            _ => reply.parse(),
        };
        let answer: AcquireSetAnswer = match answer {
            Ok(answer) => answer,
            Err(failure) => return Ok(Read::Unclear(failure)),
        };
        if !answer.acquired {
            return Ok(Read::Held(Error::Held {
                resources: answer.resources.unwrap_or_else(|| self.wanted.resources.clone()),
                retry_after: reply.retry_after,
            }));
        }
        let locks = answer.locks.unwrap_or_default();
        let owner = &self.inner.identity.owner;
        let as_asked = locks.iter().map(|lock| &lock.resource).eq(&self.wanted.resources)
            && locks.iter().all(|lock| lock.owner == *owner);
        if as_asked {
            Ok(Read::Locks(locks))
        } else {
            Ok(Read::Unclear(Failure::unclear(
                "an answer about other locks than were asked for",
            )))
        }
    }

    /// Renews each lock once, so that what is believed counts from now.
    async fn confirm(&mut self, locks: Vec<Lock>) -> Step {
        let entry = &*self;
        let renewals = locks.into_iter().map(|lock| entry.confirm_one(lock));
        let outcomes: Result<Vec<Granted>, Failure> = join_all(renewals).await.into_iter().collect();
        match outcomes {
            Ok(granted) => Step::Granted(granted),
            Err(failure) => Step::Failed(failure),
        }
    }

    async fn confirm_one(&self, lock: Lock) -> Result<Granted, Failure> {
        let body = RenewBody {
            owner: lock.owner.clone(),
            ttl_seconds: self.wanted.ttl.seconds(),
            fencing_token: Some(lock.fencing_token),
        };
        let transport = &self.inner.transport;
        let timeout = transport.request_timeout().min(self.wanted.ttl.duration() / 3);
        let mut attempt = 0;
        loop {
            attempt += 1;
            let sent_at = self.inner.clock.now();
            match api::renew_once(transport, &lock.resource, &body, timeout).await {
                Ok(Renewal::Renewed(lock)) => return Ok(Granted { lock: *lock, sent_at }),
                Ok(Renewal::Over) => return Err(Failure::unclear("the lock ended before its answer came")),
                Err(failure) if attempt >= api::ROUNDS * transport.server_count() => return Err(failure),
                Err(_) => {}
            }
        }
    }

    /// Makes the guards, which answer for the locks from here on.
    fn hand_over(mut self, granted: Vec<Granted>) -> Result<(Guard, Vec<Guard>), Error> {
        self.granted.clear();
        let mut claims = std::mem::take(&mut self.claims);
        let mut guards = granted.into_iter().map(|Granted { lock, sent_at }| {
            // One claim was made for each name.
            let claim = claims
                .iter()
                .position(|claim| *claim.resource() == lock.resource)
                .map(|index| claims.swap_remove(index));
            let clock = Arc::clone(&self.inner.clock);
            let belief = Belief::new(lock, self.wanted.ttl, sent_at, clock);
            Guard::start(Arc::clone(&self.inner), belief, sent_at, claim)
        });
        let first = guards
            .next()
            .ok_or_else(|| Error::Protocol("no lock was granted".to_owned()))?;
        let rest = guards.collect();
        Ok((first, rest))
    }
}

/// What an answer says.
enum Read {
    Locks(Vec<Lock>),
    Held(Error),
    Unclear(Failure),
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut leftovers: Vec<_> = std::mem::take(&mut self.granted)
            .into_iter()
            .map(|lock| (lock.resource, Some(lock.fencing_token)))
            .collect();
        // Without a token a release would also hit a grant of somebody else who uses the same owner.
        if self.is_in_doubt && self.inner.identity.is_unique {
            leftovers = self
                .wanted
                .resources
                .iter()
                .map(|name| (name.clone(), None))
                .collect();
        }
        if leftovers.is_empty() {
            return;
        }
        let claims = std::mem::take(&mut self.claims);
        claims.iter().for_each(Claim::leave);
        let inner = Arc::clone(&self.inner);
        self.inner.engine.in_background(async move {
            for (resource, token) in leftovers {
                inner.release_quietly(&resource, token).await;
            }
            drop(claims);
        });
    }
}
