//! Attempts on their way into one transaction, so that many callers share one round of consensus. What is known when
//! the transaction is made decides what each attempt takes; one whose guess does not hold any more is not tried.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use super::commit::Committer;
use super::fates::Fate;
use super::known::Locks;
use super::plan::{Group, Step, plan};
use crate::ENGINE_TIMEOUT;
use crate::batch::{Answered, Attempt, Carrier};

/// How many transactions may be under way. One is being written to disk while the other one travels.
pub(super) const MAX_FLIGHTS: usize = 2;

/// How long a transaction may take, with all that it needs.
const FLIGHT: Duration = ENGINE_TIMEOUT;

/// How an attempt ended.
#[derive(Debug)]
pub(super) enum Reply {
    /// It was tried.
    Fate(Fate),
    /// What is known now is not what it expects, so it was not tried.
    NotAsGuessed,
}

/// Carries attempts into a transaction.
pub(super) struct Flight(pub(super) Arc<Committer>);

#[async_trait]
impl Carrier for Flight {
    type Answer = Reply;

    async fn carry(&self, batch: Vec<Attempt<Reply>>) -> Vec<Answered<Reply>> {
        let committer = &self.0;
        let mut groups = Vec::with_capacity(batch.len());
        let mut tried = Vec::with_capacity(batch.len());
        let mut answers = Vec::with_capacity(batch.len());
        for attempt in batch {
            match steps(&attempt, &committer.locks) {
                Some(steps) => {
                    groups.push(Group {
                        steps,
                        not_after: attempt.not_after,
                    });
                    tried.push(attempt);
                }
                None => answers.push(attempt.answered(Reply::NotAsGuessed)),
            }
        }
        if groups.is_empty() {
            return answers;
        }
        let fates = committer.commit(&groups, Instant::now() + FLIGHT).await;
        let told = tried.into_iter().zip(fates);
        answers.extend(told.map(|(attempt, fate)| attempt.answered(Reply::Fate(fate))));
        answers
    }
}

/// The steps that an attempt takes by what is known now, if it may be tried at all.
fn steps(attempt: &Attempt<Reply>, locks: &Locks) -> Option<Vec<Step>> {
    let current: Vec<_> = attempt
        .resources()
        .map(|resource| locks.guess(resource))
        .collect();
    plan(&attempt.changes, &current)
}
