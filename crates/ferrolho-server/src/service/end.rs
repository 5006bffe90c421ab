//! The end of a lock before its time: a release, a forced one, or a grant taken back.
//!
//! With somebody waiting here, the end and the next grant are one change: the lock passes to the first in line in
//! the same commit.

use std::sync::Arc;

use ferrolho_core::rules::{self, ReleaseResult};
use ferrolho_core::{Cause, Change, Expected, FencingToken, Holder, Live, Lock, Resource, Write};
use ferrolho_store::{Attempt, Outcome, StoreError};
use tokio::time::Instant;

use super::queue::Try;
use super::{ForceRequest, LATEST_START, Refusal, ReleaseRequest, Service, refuse};
use crate::audit::{self, Origin};

/// The end of a lock that is wanted.
#[derive(Clone, Debug)]
pub(super) struct Ending {
    resource: Resource,
    expected: Expected,
    /// Whose lock it is then.
    holder: Holder,
    cause: Cause,
    not_after: Instant,
    origin: Origin,
}

/// How an attempt to end a lock ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// The lock is over.
    Done,
    /// The lock was not as expected; it is like this.
    Stale(Option<Live>),
}

impl Ending {
    /// The end of this very grant, in nobody's name.
    pub(super) fn of(lock: &Lock, cause: Cause, not_after: Instant) -> Self {
        Self {
            resource: lock.resource.clone(),
            expected: Expected::Token(lock.fencing_token),
            holder: lock.holder(),
            cause,
            not_after,
            origin: Origin::default(),
        }
    }

    /// The grant that is to end, as far as it is known.
    fn token(&self) -> Option<FencingToken> {
        match &self.expected {
            Expected::Token(token) => Some(*token),
            Expected::HeldBy(claim) => claim.token,
            Expected::Free => None,
        }
    }
}

impl Service {
    /// Gives a lock back, and hands it to the first who waits for it here.
    pub async fn release(self: &Arc<Self>, request: ReleaseRequest) -> Result<ReleaseResult, Refusal> {
        let end = self.release_if_held(request).await;
        self.meters.released(&end);
        end
    }

    async fn release_if_held(self: &Arc<Self>, request: ReleaseRequest) -> Result<ReleaseResult, Refusal> {
        let ReleaseRequest {
            resource,
            claim,
            arrived,
            origin,
        } = request;
        let mut meant = claim.clone();
        // The audit trail names the grant that ended.
        let wants_token = self.audit.is_on() && claim.token.is_none();
        if wants_token || self.store.traits().looking_is_free {
            let current = self.store.find(&resource).await.map_err(|error| refuse(&error))?;
            match rules::release(current.as_ref(), &claim) {
                ReleaseResult::Released => meant.token = token_of(current),
                no => return Ok(no),
            }
        }
        loop {
            let ending = Ending {
                resource: resource.clone(),
                holder: meant.holder.clone(),
                expected: Expected::HeldBy(meant.clone()),
                cause: Cause::Release,
                not_after: arrived + LATEST_START,
                origin: origin.clone(),
            };
            match self.end(&ending).await.map_err(|error| refuse(&error))? {
                Ended::Done => return Ok(ReleaseResult::Released),
                Ended::Stale(current) => match rules::release(current.as_ref(), &claim) {
                    ReleaseResult::Released => meant.token = token_of(current),
                    no => return Ok(no),
                },
            }
        }
    }

    /// Takes a lock away from whoever holds it. `Forbidden` is that of another grant than the one that is meant.
    pub async fn force_release(self: &Arc<Self>, request: ForceRequest) -> Result<ReleaseResult, Refusal> {
        let cause = Cause::Force(request.reason);
        let not_after = request.arrived + LATEST_START;
        let found = self.store.find(&request.resource).await;
        let mut current = found.map_err(|error| refuse(&error))?;
        while let Some(live) = current {
            if request
                .token
                .is_some_and(|token| token != live.lock.fencing_token)
            {
                return Ok(ReleaseResult::Forbidden);
            }
            let ending = Ending {
                origin: request.origin.clone(),
                ..Ending::of(&live.lock, cause.clone(), not_after)
            };
            match self.end(&ending).await.map_err(|error| refuse(&error))? {
                Ended::Done => return Ok(ReleaseResult::Released),
                Ended::Stale(now) => current = now,
            }
        }
        Ok(ReleaseResult::NotFound)
    }

    /// Ends a lock if it is as expected. With somebody waiting, the work goes on to its end even when the caller
    /// leaves: the one who waits must learn of its grant.
    pub(super) async fn end(self: &Arc<Self>, ending: &Ending) -> Result<Ended, StoreError> {
        let heir = self.queues.lock().heir(&ending.resource, Instant::now());
        if let Some(heir) = heir {
            let (service, ending) = (Arc::clone(self), ending.clone());
            let handed_over = tokio::spawn(async move { service.hand_over(heir, &ending).await });
            // Nothing when the first in line cannot have all it waits for: then the lock is freed for all.
            if let Some(ended) = handed_over.await.map_err(StoreError::unknown)?? {
                return Ok(ended);
            }
        }
        let removal = Change {
            resource: ending.resource.clone(),
            expected: ending.expected.clone(),
            write: Write::Remove,
            cause: ending.cause.clone(),
        };
        let attempt = Attempt {
            changes: vec![removal],
            not_after: ending.not_after,
        };
        match self.store.apply(attempt).await {
            Ok(Outcome::Applied(_)) => {
                self.note_end(ending, audit::Outcome::Done);
                self.poke(std::slice::from_ref(&ending.resource));
                Ok(Ended::Done)
            }
            Ok(Outcome::Stale(mut now)) => Ok(Ended::Stale(now.pop().flatten())),
            Err(error) => {
                if matches!(error, StoreError::Unknown(_)) {
                    self.note_end(ending, audit::Outcome::Unknown);
                }
                Err(error)
            }
        }
    }

    fn note_end(&self, ending: &Ending, outcome: audit::Outcome) {
        let ended = audit::Ended {
            resource: &ending.resource,
            holder: &ending.holder,
            token: ending.token(),
            cause: &ending.cause,
        };
        self.audit.ended(&ending.origin, &ended, outcome);
    }

    /// A lock was handed over.
    fn note_hand_over(&self, ending: &Ending, heir: &Try, lives: &[Live]) {
        self.note_end(ending, audit::Outcome::Done);
        self.audit.granted(&heir.origin, lives, &vec![true; lives.len()]);
    }

    /// Passes a lock to the first in line, together with the rest of what it waits for. Nothing when that cannot
    /// be had, though the lock itself may be as expected.
    async fn hand_over(self: Arc<Self>, heir: Try, ending: &Ending) -> Result<Option<Ended>, StoreError> {
        let change = |wanted: &Resource| {
            let (expected, cause) = if *wanted == ending.resource {
                (ending.expected.clone(), ending.cause.clone())
            } else {
                (Expected::Free, Cause::Acquire)
            };
            Change {
                resource: wanted.clone(),
                expected,
                write: Write::Grant(heir.grant.clone()),
                cause,
            }
        };
        let attempt = Attempt {
            changes: heir.resources.iter().map(change).collect(),
            not_after: ending.not_after,
        };
        let untold = self.untold.begin(&heir.grant);
        let undone = self.untold.undone_so_far(&heir.grant);
        let begun = Instant::now();
        match self.store.apply(attempt).await {
            Ok(Outcome::Applied(lives)) => {
                let lives: Vec<Live> = lives.into_iter().flatten().collect();
                self.note_hand_over(ending, &heir, &lives);
                if !self.untold.made(&heir.grant, undone) {
                    // The grant is being undone in place of one that was lost sight of: its caller waits on.
                    self.wait_on(&heir, super::drive::RETRY);
                    return Ok(Some(Ended::Done));
                }
                self.deliver(heir, lives, untold).await;
                self.meters.hand_overs.observe_micros(begun.elapsed());
                Ok(Some(Ended::Done))
            }
            Ok(Outcome::Stale(now)) => {
                let is_alone = heir.resources.len() == 1;
                self.wait_on(&heir, super::drive::RETRY);
                let current = now.into_iter().next().flatten();
                Ok(is_alone.then_some(Ended::Stale(current)))
            }
            Err(error @ StoreError::Unknown(_)) => {
                if let Some(lives) = self.settle(&heir.resources, &heir.grant, ending.token()).await {
                    let is_own = self.untold.is_own(&heir.grant, undone);
                    if is_own {
                        self.note_hand_over(ending, &heir, &lives);
                    } else {
                        // The grant is another attempt's, which has noted it.
                        self.note_end(ending, audit::Outcome::Unknown);
                    }
                    if is_own || self.untold.may_repeat(&heir.grant, undone) {
                        self.deliver(heir, lives, untold).await;
                    } else {
                        self.wait_on(&heir, super::drive::RETRY);
                    }
                    return Ok(Some(Ended::Done));
                }
                self.note_end(ending, audit::Outcome::Unknown);
                self.audit
                    .granted_perhaps(&heir.origin, &heir.resources, &heir.grant);
                self.give_up(&heir, super::No::Unavailable);
                Err(error)
            }
            Err(error) => {
                self.wait_on(&heir, super::drive::RETRY);
                Err(error)
            }
        }
    }
}

fn token_of(live: Option<Live>) -> Option<FencingToken> {
    live.map(|live| live.lock.fencing_token)
}
