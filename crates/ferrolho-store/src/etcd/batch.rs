//! The queue of attempts and the transactions that carry them.
//!
//! What has come in while transactions were under way goes together into the next one, so that many callers
//! share one round of consensus. A resource is in one transaction at a time: whoever comes second is planned
//! again on what the first one left. Attempts of one resource keep their order; others overtake them.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ferrolho_core::{Change, Resource};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::commit::{Committer, MAX_BATCH_CHANGES};
use super::fates::Fate;
use super::known::Locks;
use super::plan::{Group, Step, plan};
use crate::{ENGINE_TIMEOUT, StoreError};

/// How many attempts may wait for their transaction; more wait at the door.
const MAX_WAITING_ATTEMPTS: usize = 1024;

/// How many transactions may be under way. One is being written to disk while the other one travels.
const MAX_FLIGHTS: usize = 2;

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

struct Attempt {
    changes: Arc<[Change]>,
    not_after: Instant,
    reply: oneshot::Sender<Reply>,
}

/// The way into the queue.
#[derive(Clone)]
pub(super) struct Queue(mpsc::Sender<Attempt>);

impl Queue {
    /// A queue and the work that empties it, which ends when every way into it is gone and all is done.
    pub(super) fn new(committer: Arc<Committer>) -> (Self, impl Future<Output = ()> + Send) {
        let (sender, receiver) = mpsc::channel(MAX_WAITING_ATTEMPTS);
        (Self(sender), run(committer, receiver))
    }

    /// Has changes carried out in a transaction that begins not after this.
    pub(super) async fn submit(
        &self,
        changes: Arc<[Change]>,
        not_after: Instant,
    ) -> Result<Reply, StoreError> {
        let closed = || StoreError::unavailable("the store is closed");
        let (reply, answer) = oneshot::channel();
        let attempt = Attempt {
            changes,
            not_after,
            reply,
        };
        match tokio::time::timeout_at(not_after, self.0.send(attempt)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return Err(closed()),
            Err(_) => return Err(StoreError::TooLate),
        }
        // Every attempt that was taken in is answered, unless its task was ended halfway.
        answer
            .await
            .map_err(|_| StoreError::unknown("the store was closed while a change was under way"))
    }
}

async fn run(committer: Arc<Committer>, mut inbox: mpsc::Receiver<Attempt>) {
    let mut waiting = VecDeque::new();
    let mut busy = HashSet::new();
    let mut flights: JoinSet<Vec<Resource>> = JoinSet::new();
    let mut is_open = true;
    while is_open || !waiting.is_empty() || !flights.is_empty() {
        while flights.len() < MAX_FLIGHTS {
            let batch = gather(&mut waiting, &busy);
            if batch.is_empty() {
                break;
            }
            let resources: Vec<_> = batch.iter().flat_map(Attempt::resources).cloned().collect();
            busy.extend(resources.iter().cloned());
            let committer = Arc::clone(&committer);
            flights.spawn(async move {
                fly(&committer, batch).await;
                resources
            });
        }
        tokio::select! {
            attempt = inbox.recv(), if is_open && waiting.len() < MAX_WAITING_ATTEMPTS => match attempt {
                Some(attempt) => {
                    waiting.push_back(attempt);
                    while waiting.len() < MAX_WAITING_ATTEMPTS && let Ok(attempt) = inbox.try_recv() {
                        waiting.push_back(attempt);
                    }
                }
                None => is_open = false,
            },
            Some(landed) = flights.join_next() => match landed {
                Ok(resources) => resources.iter().for_each(|resource| {
                    busy.remove(resource);
                }),
                // A transaction is never cancelled while this runs.
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            },
        }
    }
}

/// Takes from the queue what can go into one transaction.
fn gather(waiting: &mut VecDeque<Attempt>, busy: &HashSet<Resource>) -> Vec<Attempt> {
    let mut batch = Vec::new();
    let mut room = MAX_BATCH_CHANGES;
    // Resources of this batch, and of attempts that have to wait and must not be overtaken.
    let mut taken: HashSet<Resource> = HashSet::new();
    let mut rest = VecDeque::new();
    while let Some(attempt) = waiting.pop_front() {
        let is_free = attempt
            .resources()
            .all(|resource| !busy.contains(resource) && !taken.contains(resource));
        taken.extend(attempt.resources().cloned());
        if is_free && attempt.changes.len() <= room {
            room -= attempt.changes.len();
            batch.push(attempt);
        } else {
            rest.push_back(attempt);
        }
        if room == 0 {
            break;
        }
    }
    rest.append(waiting);
    *waiting = rest;
    batch
}

async fn fly(committer: &Committer, batch: Vec<Attempt>) {
    let mut groups = Vec::with_capacity(batch.len());
    let mut replies = Vec::with_capacity(batch.len());
    for attempt in batch {
        match attempt.plan(&committer.locks) {
            Some(steps) => {
                groups.push(Group {
                    steps,
                    not_after: attempt.not_after,
                });
                replies.push(attempt.reply);
            }
            None => send(attempt.reply, Reply::NotAsGuessed),
        }
    }
    if groups.is_empty() {
        return;
    }
    let fates = committer.commit(&groups, Instant::now() + FLIGHT).await;
    for (reply, fate) in replies.into_iter().zip(fates) {
        send(reply, Reply::Fate(fate));
    }
}

fn send(reply: oneshot::Sender<Reply>, what: Reply) {
    // Whoever asked may have given up waiting.
    let _ = reply.send(what);
}

impl Attempt {
    fn resources(&self) -> impl Iterator<Item = &Resource> {
        self.changes.iter().map(|change| &change.resource)
    }

    /// The steps that it takes by what is known now, if it may be tried at all.
    fn plan(&self, locks: &Locks) -> Option<Vec<Step>> {
        let current: Vec<_> = self.resources().map(|resource| locks.guess(resource)).collect();
        plan(&self.changes, &current)
    }
}
