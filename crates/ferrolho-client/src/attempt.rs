//! One acquire under way: one key for all of its attempts, and no grant left behind.
//!
//! All attempts carry the same `Idempotency-Key`, so that a grant whose answer was lost is answered again instead of
//! shutting its owner out. An answer that may be older than its request (it waited, or an earlier attempt may have
//! made the grant) is renewed once before it is believed, and counts from then. Whoever leaves without a guard gives
//! back what it may have been granted.

use std::sync::Arc;
use std::time::Duration;

use ferrolho_core::Lock;
use ferrolho_core::wire::{AcquireAnswer, AcquireBody, AcquireSetAnswer, AcquireSetBody, RenewBody};
use futures_util::future::join_all;

use crate::Error;
use crate::api::{self, Renewal};
use crate::belief::Belief;
use crate::call::encode;
use crate::claims::Claim;
use crate::client::Inner;
use crate::clock::Moment;
use crate::guard::Guard;
use crate::request::Wanted;
use crate::transport::{Call, Failure, Reply};

/// What is held, with when it was confirmed.
pub(crate) struct Granted {
    lock: Lock,
    /// When the request was sent that confirmed it.
    sent_at: Moment,
}

/// What one attempt came to.
pub(crate) enum Step {
    Granted(Vec<Granted>),
    Held(Error),
    Failed(Failure),
}

/// One acquire under way. Dropped without a guard, it gives back in the background what it may have been granted,
/// and keeps others of this client out until that is done.
pub(crate) struct Entry {
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
    pub(crate) fn new(inner: Arc<Inner>, wanted: Wanted, claims: Vec<Claim>) -> Self {
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

    /// One attempt that waits on the server for `poll`.
    pub(crate) async fn attempt(&mut self, poll: Duration) -> Result<Step, Error> {
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
            [resource] => Call::post(format!("/locks/{}", encode(resource.as_str())), &acquire),
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
    pub(crate) fn hand_over(mut self, granted: Vec<Granted>) -> Result<(Guard, Vec<Guard>), Error> {
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
