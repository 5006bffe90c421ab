//! Attempts on their way into one call: one statement, one round trip, one commit, one notification for all.

use std::sync::Arc;

use async_trait::async_trait;
use ferrolho_core::{Change, Live};
use tokio::time::Instant;

use super::database::Database;
use super::ends::Ends;
use super::link::Link;
use crate::batch::{Answered, Attempt, Bounds, Carrier};
use crate::{CommitMeter, ENGINE_TIMEOUT, Outcome, StoreError};

/// How many calls may be under way, each on a connection of its own. One commits while the other one travels; the
/// database takes them one after the other anyway.
pub(super) const MAX_FLIGHTS: usize = 2;

/// A second call sets out full or not at all: while the first one commits, more comes in for it.
pub(super) const BOUNDS: Bounds = Bounds {
    max_changes: 128,
    eager_flights: 1,
};

/// How an attempt ended.
pub(super) type Reply = Result<Outcome, StoreError>;

/// Carries attempts into a call.
pub(super) struct Flight {
    pub(super) link: Link,
    pub(super) database: Arc<Database>,
    pub(super) ends: Arc<Ends>,
    pub(super) meter: Arc<CommitMeter>,
}

#[async_trait]
impl Carrier for Flight {
    type Answer = Reply;

    async fn carry(&self, batch: Vec<Attempt<Reply>>) -> Vec<Answered<Reply>> {
        let now = Instant::now();
        let (batch, late): (Vec<_>, Vec<_>) = batch.into_iter().partition(|attempt| attempt.not_after >= now);
        let mut answers: Vec<_> = late
            .into_iter()
            .map(|attempt| attempt.answered(Err(StoreError::TooLate)))
            .collect();
        if batch.is_empty() {
            return answers;
        }
        let groups: Vec<Arc<[Change]>> = batch.iter().map(|attempt| Arc::clone(&attempt.changes)).collect();
        let changes: usize = groups.iter().map(|group| group.len()).sum();
        let until = now + ENGINE_TIMEOUT;
        match self.database.apply(&self.link, &groups, 0, until).await {
            Ok(answered) => {
                self.meter.committed(now.elapsed(), changes);
                answers.extend(self.answer(batch, changes, answered));
            }
            Err(failure) => {
                self.meter.failed();
                let told = batch.into_iter();
                answers.extend(told.map(|attempt| attempt.answered(Err(failure.clone().of_write()))));
            }
        }
        answers
    }
}

impl Flight {
    /// Answers attempts that have so many changes in all, in which each has its place.
    fn answer(
        &self,
        batch: Vec<Attempt<Reply>>,
        changes: usize,
        answered: Vec<(usize, bool, Option<Live>)>,
    ) -> impl Iterator<Item = Answered<Reply>> {
        let mut fates: Vec<Option<(bool, Option<Live>)>> = vec![None; changes];
        for (place, is_done, live) in answered {
            if let (true, Some(live)) = (is_done, &live) {
                self.ends.lock_ends_in(live.left);
            }
            if let Some(fate) = fates.get_mut(place) {
                *fate = Some((is_done, live));
            }
        }
        let mut fates = fates.into_iter();
        batch.into_iter().map(move |attempt| {
            let fate: Option<Vec<_>> = fates.by_ref().take(attempt.changes.len()).collect();
            let unknown = || StoreError::unknown("the database did not answer for every change");
            attempt.answered(fate.map(outcome).ok_or_else(unknown))
        })
    }
}

fn outcome(fate: Vec<(bool, Option<Live>)>) -> Outcome {
    let is_done = fate.iter().all(|(is_done, _)| *is_done);
    let locks = fate.into_iter().map(|(_, live)| live).collect();
    if is_done {
        Outcome::Applied(locks)
    } else {
        Outcome::Stale(locks)
    }
}
