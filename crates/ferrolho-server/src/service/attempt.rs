//! One attempt to grant: look, ask the rules, change, and decide again from what the store reports.
//!
//! An attempt whose outcome is unknown is settled by its mark, and never repeated. A grant that nobody was told
//! of is taken back, as soon as the store answers.

use std::sync::Arc;
use std::time::Duration;

use ferrolho_core::rules::{self, AcquireDecision};
use ferrolho_core::{Cause, Expected, FencingToken, Grant, Live, Mark, Resource};
use ferrolho_store::{Attempt, Outcome, StoreError};
use futures_util::future::BoxFuture;
use tokio::time::{Instant, sleep, timeout};

use super::Service;
use super::end::Ending;
use super::told::Lost;
use crate::audit::Origin;

/// How long the outcome of an unknown attempt is looked for before the caller is told that it is unknown.
const SETTLE_WITHIN: Duration = Duration::from_secs(2);

/// For how long after the store answers again a lost attempt is watched for: it may still be on its way.
const LOST_WATCHED: Duration = Duration::from_secs(20);

/// How often a lost attempt is looked for.
const LOST_LOOK: Duration = Duration::from_millis(500);

/// How long a caller that came back waits between looks while its earlier grant is being undone.
const UNDOING_LOOK: Duration = Duration::from_millis(5);

/// How an attempt ended.
#[derive(Debug)]
pub(super) enum Attempted {
    /// The locks are the caller's. `is_new` says of each whether it was not so before.
    Granted { lives: Vec<Live>, is_new: Vec<bool> },
    /// They had been granted to this very attempt before.
    Repeated(Vec<Live>),
    /// Others hold these, the last of them for so long yet.
    Held {
        resources: Vec<Resource>,
        left: Duration,
    },
}

/// Why an attempt did not end.
#[derive(Debug)]
pub(super) enum Failure {
    /// Nothing was done, for certain.
    NotDone(StoreError),
    /// Whether it was done is unknown. If it was, it is taken back later.
    Unknown(StoreError),
}

impl Service {
    /// Tries to grant all the resources, or none.
    pub(super) async fn attempt(
        self: &Arc<Self>,
        resources: &[Resource],
        grant: &Grant,
        origin: &Origin,
        not_after: Instant,
    ) -> Result<Attempted, Failure> {
        let mut undone = self.untold.undone_so_far(grant);
        let mut current = if self.store.traits().looking_is_free {
            self.look(resources).await.map_err(Failure::NotDone)?
        } else {
            vec![None; resources.len()]
        };
        loop {
            let changes = match rules::acquire(&current, resources, grant) {
                AcquireDecision::Held(held) => {
                    return Ok(Attempted::Held {
                        left: longest_left(&current, &held),
                        resources: held,
                    });
                }
                AcquireDecision::Repeat if self.untold.may_repeat(grant, undone) => {
                    return Ok(Attempted::Repeated(current.into_iter().flatten().collect()));
                }
                AcquireDecision::Repeat => {
                    (undone, current) = self.look_while_undoing(resources, grant, not_after).await?;
                    continue;
                }
                AcquireDecision::Changes(changes) => changes,
            };
            let is_new: Vec<bool> = changes
                .iter()
                .map(|change| change.expected == Expected::Free)
                .collect();
            undone = self.untold.undone_so_far(grant);
            match self.store.apply(Attempt { changes, not_after }).await {
                Ok(Outcome::Applied(lives)) => {
                    let lives: Vec<Live> = lives.into_iter().flatten().collect();
                    self.audit.granted(origin, &lives, &is_new);
                    if self.untold.made(grant, undone) {
                        return Ok(Attempted::Granted { lives, is_new });
                    }
                    (undone, current) = self.look_while_undoing(resources, grant, not_after).await?;
                }
                Ok(Outcome::Stale(now)) => current = now,
                Err(error @ StoreError::Unknown(_)) => match self.settle(resources, grant, None).await {
                    Some(lives) if self.untold.is_own(grant, undone) => {
                        self.audit.granted(origin, &lives, &is_new);
                        return Ok(Attempted::Granted { lives, is_new });
                    }
                    // Another attempt under its key has made it, or was told of it.
                    Some(lives) => {
                        self.audit.granted_perhaps(origin, resources, grant);
                        current = lives.into_iter().map(Some).collect();
                    }
                    None => {
                        self.audit.granted_perhaps(origin, resources, grant);
                        return Err(Failure::Unknown(error));
                    }
                },
                Err(error) => return Err(Failure::NotDone(error)),
            }
        }
    }

    /// The locks a moment later, while a grant under this key is being undone, and how many had been undone before.
    async fn look_while_undoing(
        &self,
        resources: &[Resource],
        grant: &Grant,
        not_after: Instant,
    ) -> Result<(u64, Vec<Option<Live>>), Failure> {
        if Instant::now() > not_after {
            return Err(Failure::NotDone(StoreError::TooLate));
        }
        sleep(UNDOING_LOOK).await;
        let undone = self.untold.undone_so_far(grant);
        let current = self.look(resources).await.map_err(Failure::NotDone)?;
        Ok((undone, current))
    }

    /// The locks as they are.
    pub(super) async fn look(&self, resources: &[Resource]) -> Result<Vec<Option<Live>>, StoreError> {
        let mut lives = Vec::with_capacity(resources.len());
        for resource in resources {
            lives.push(self.store.find(resource).await?);
        }
        Ok(lives)
    }

    /// Whether an attempt whose outcome is unknown was carried out after all: its mark is there. If that cannot
    /// be told, the grant is watched for, and taken back when it shows. A lock with the token `before` is the one
    /// that the attempt was to replace, though its mark may be the same.
    pub(super) async fn settle(
        self: &Arc<Self>,
        resources: &[Resource],
        grant: &Grant,
        before: Option<FencingToken>,
    ) -> Option<Vec<Live>> {
        let is_made = |live: &Live| is_made_by(live, grant) && Some(live.lock.fencing_token) != before;
        if let Ok(Ok(lives)) = timeout(SETTLE_WITHIN, self.look(resources)).await
            && lives.iter().all(|live| live.as_ref().is_some_and(is_made))
        {
            return Some(lives.into_iter().flatten().collect());
        }
        if self.is_nobody_elses(&grant.mark) {
            // Noted now, while the attempt itself still is: what others under its key do in between must be known.
            let lost = self.untold.lose(grant);
            let service = Arc::clone(self);
            let (resources, grant) = (resources.to_vec(), grant.clone());
            tokio::spawn(async move { service.take_back_lost(&resources, &grant, lost).await });
        }
        None
    }

    /// Whether no other server can have answered with the grant of this mark. Under a key, a caller may have come
    /// back to another server of the store; its grant then stays, and ends by itself at the latest.
    pub(super) fn is_nobody_elses(&self, mark: &Mark) -> bool {
        matches!(mark, Mark::Random(_)) || !self.store.traits().is_shared
    }

    /// Watches for a grant whose making was lost sight of, and takes it back.
    async fn take_back_lost(self: Arc<Self>, resources: &[Resource], grant: &Grant, lost: Option<Lost>) {
        let mut watched_until = None;
        let mut was_offered = lost.is_none();
        while watched_until.is_none_or(|until| Instant::now() < until) {
            sleep(self.chance.longer(LOST_LOOK)).await;
            let Ok(lives) = self.look(resources).await else {
                continue;
            };
            watched_until.get_or_insert(Instant::now() + LOST_WATCHED);
            let made: Vec<Live> = lives
                .into_iter()
                .flatten()
                .filter(|live| is_made_by(live, grant))
                .collect();
            if made.is_empty() {
                continue;
            }
            if !was_offered {
                // Who has come back for it with its key, and waits, is told of it.
                self.poke(resources);
                was_offered = true;
                continue;
            }
            if lost.as_ref().is_none_or(Lost::may_take_back) {
                self.take_back(made).await;
                if let Some(lost) = lost {
                    lost.taken_back();
                }
            }
            return;
        }
    }

    /// Takes back grants that nobody was told of, as a release would, however long the store is away; they end
    /// by themselves at the latest.
    ///
    /// Boxed, since taking back hands the lock on, and whoever it is handed to may have left as well.
    pub(super) fn take_back(self: &Arc<Self>, lives: Vec<Live>) -> BoxFuture<'static, ()> {
        let service = Arc::clone(self);
        service.meters.took_back(lives.len());
        Box::pin(async move {
            for live in lives {
                let until = Instant::now() + live.left;
                let ending = Ending::of(&live.lock, Cause::Undo, until);
                while Instant::now() < until {
                    match service.end(&ending).await {
                        Ok(_) => break,
                        Err(_) => sleep(service.chance.longer(LOST_LOOK)).await,
                    }
                }
            }
        })
    }
}

fn is_made_by(live: &Live, grant: &Grant) -> bool {
    live.mark == grant.mark && live.lock.is_held_by(&grant.holder)
}

fn longest_left(current: &[Option<Live>], held: &[Resource]) -> Duration {
    let held = current
        .iter()
        .flatten()
        .filter(|live| held.contains(&live.lock.resource));
    held.map(|live| live.left).max().unwrap_or_default()
}
