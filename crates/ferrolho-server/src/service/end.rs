//! The end of a lock before its time: a release, a forced one, or a grant taken back.
//!
//! With somebody waiting here, the end and the next grant are one change: the lock passes to the first in line in
//! the same commit.

use std::sync::Arc;

use ferrolho_core::rules::{self, ReleaseResult};
use ferrolho_core::{Cause, Change, Expected, Live, Reason, Resource, Write};
use ferrolho_store::{Attempt, Outcome, StoreError};
use tokio::time::Instant;

use super::queue::Try;
use super::{LATEST_START, Refusal, ReleaseRequest, Service, refuse};

/// How an attempt to end a lock ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// The lock is over.
    Done,
    /// The lock was not as expected; it is like this.
    Stale(Option<Live>),
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
        } = request;
        if self.store.traits().looking_is_free {
            let current = self.store.find(&resource).await.map_err(|error| refuse(&error))?;
            match rules::release(current.as_ref(), &claim) {
                ReleaseResult::Released => {}
                no => return Ok(no),
            }
        }
        let expected = Expected::HeldBy(claim.clone());
        loop {
            let ended = self
                .end(&resource, &expected, &Cause::Release, arrived + LATEST_START)
                .await;
            match ended.map_err(|error| refuse(&error))? {
                Ended::Done => return Ok(ReleaseResult::Released),
                Ended::Stale(current) => match rules::release(current.as_ref(), &claim) {
                    ReleaseResult::Released => {}
                    no => return Ok(no),
                },
            }
        }
    }

    /// Takes a lock away, whoever holds it.
    pub(super) async fn force(
        self: &Arc<Self>,
        resource: &Resource,
        reason: Reason,
        not_after: Instant,
    ) -> Result<ReleaseResult, Refusal> {
        let cause = Cause::Force(reason);
        let mut current = self.store.find(resource).await.map_err(|error| refuse(&error))?;
        while let Some(live) = current {
            let expected = Expected::Token(live.lock.fencing_token);
            let ended = self.end(resource, &expected, &cause, not_after).await;
            match ended.map_err(|error| refuse(&error))? {
                Ended::Done => return Ok(ReleaseResult::Released),
                Ended::Stale(now) => current = now,
            }
        }
        Ok(ReleaseResult::NotFound)
    }

    /// Ends a lock if it is as expected. With somebody waiting, the work goes on to its end even when the caller
    /// leaves: the one who waits must learn of its grant.
    pub(super) async fn end(
        self: &Arc<Self>,
        resource: &Resource,
        expected: &Expected,
        cause: &Cause,
        not_after: Instant,
    ) -> Result<Ended, StoreError> {
        let heir = self.queues.lock().heir(resource, Instant::now());
        if let Some(heir) = heir {
            let (service, resource) = (Arc::clone(self), resource.clone());
            let (expected, cause) = (expected.clone(), cause.clone());
            let handed_over = tokio::spawn(async move {
                service
                    .hand_over(heir, &resource, expected, cause, not_after)
                    .await
            });
            // Nothing when the first in line cannot have all it waits for: then the lock is freed for all.
            if let Some(ended) = handed_over.await.map_err(StoreError::unknown)?? {
                return Ok(ended);
            }
        }
        let removal = Change {
            resource: resource.clone(),
            expected: expected.clone(),
            write: Write::Remove,
            cause: cause.clone(),
        };
        let attempt = Attempt {
            changes: vec![removal],
            not_after,
        };
        match self.store.apply(attempt).await? {
            Outcome::Applied(_) => {
                self.poke(std::slice::from_ref(resource));
                Ok(Ended::Done)
            }
            Outcome::Stale(mut now) => Ok(Ended::Stale(now.pop().flatten())),
        }
    }

    /// Passes a lock to the first in line, together with the rest of what it waits for. Nothing when that cannot
    /// be had, though the lock itself may be as expected.
    async fn hand_over(
        self: Arc<Self>,
        heir: Try,
        resource: &Resource,
        expected: Expected,
        cause: Cause,
        not_after: Instant,
    ) -> Result<Option<Ended>, StoreError> {
        let change = |wanted: &Resource| {
            let (expected, cause) = if wanted == resource {
                (expected.clone(), cause.clone())
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
            not_after,
        };
        let ended = match &expected {
            Expected::Token(token) => Some(*token),
            Expected::HeldBy(claim) => claim.token,
            Expected::Free => None,
        };
        let untold = self.untold.begin(&heir.grant);
        let undone = self.untold.undone_so_far(&heir.grant);
        let begun = Instant::now();
        match self.store.apply(attempt).await {
            Ok(Outcome::Applied(_)) if !self.untold.made(&heir.grant, undone) => {
                // The grant is being undone in place of one that was lost sight of: its caller waits on.
                self.wait_on(&heir, super::drive::RETRY);
                Ok(Some(Ended::Done))
            }
            Ok(Outcome::Applied(lives)) => {
                let lives = lives.into_iter().flatten().collect();
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
                if let Some(lives) = self.settle(&heir.resources, &heir.grant, ended).await {
                    if self.untold.is_own(&heir.grant, undone) || self.untold.may_repeat(&heir.grant, undone)
                    {
                        self.deliver(heir, lives, untold).await;
                    } else {
                        self.wait_on(&heir, super::drive::RETRY);
                    }
                    return Ok(Some(Ended::Done));
                }
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
