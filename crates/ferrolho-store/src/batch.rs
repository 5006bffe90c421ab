//! The queue of attempts of an engine that commits many of them together, with all that works in its background.
//!
//! What has come in while commits were under way goes together into the next one. A resource is in one commit at a
//! time: whoever comes second finds what the first one left. Attempts of one resource keep their order; others
//! overtake them.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use async_trait::async_trait;
use ferrolho_core::{Change, Resource};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use crate::{ENGINE_TIMEOUT, StoreError};

/// How many attempts may wait for their commit; more wait at the door.
const MAX_WAITING_ATTEMPTS: usize = 1024;

/// An attempt on its way, which is answered with an `R`.
pub(crate) struct Attempt<R> {
    pub(crate) changes: Arc<[Change]>,
    /// It is not to begin after this.
    pub(crate) not_after: Instant,
    reply: oneshot::Sender<R>,
}

impl<R> Attempt<R> {
    pub(crate) fn resources(&self) -> impl Iterator<Item = &Resource> {
        self.changes.iter().map(|change| &change.resource)
    }

    pub(crate) fn answered(self, answer: R) -> Answered<R> {
        Answered {
            attempt: self,
            answer,
        }
    }
}

/// An attempt that is over, with its answer.
pub(crate) struct Answered<R> {
    attempt: Attempt<R>,
    answer: R,
}

impl<R> Answered<R> {
    fn tell(self) {
        // Whoever asked may have given up waiting.
        let _ = self.attempt.reply.send(self.answer);
    }
}

/// Carries one commit at a time. There are as many as may be under way.
#[async_trait]
pub(crate) trait Carrier: Send + 'static {
    /// What an attempt is answered with.
    type Answer: Send + 'static;

    /// Commits these attempts, none of which touches what another does, and answers every one.
    async fn carry(&self, batch: Vec<Attempt<Self::Answer>>) -> Vec<Answered<Self::Answer>>;
}

/// When a commit sets out, and with how much.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// How many changes a commit carries.
    pub(crate) max_changes: usize,
    /// How many commits may be under way with less than that. Further ones set out full: where an engine commits one
    /// after the other, a small one would only make those behind it wait.
    pub(crate) eager_flights: usize,
}

/// A store's queue, and what else works in its background until the store is closed or dropped.
pub(crate) struct Works<R> {
    /// None once the store is closed.
    inbox: Mutex<Option<mpsc::Sender<Attempt<R>>>>,
    tasks: Mutex<Tasks>,
}

#[derive(Default)]
struct Tasks {
    /// Ends by itself when the store is closed and the queue is empty.
    queue: JoinSet<()>,
    others: JoinSet<()>,
}

impl<R: Send + 'static> Works<R> {
    /// Begins to work.
    pub(crate) fn start<C: Carrier<Answer = R>>(carriers: Vec<C>, bounds: Bounds) -> Self {
        let (inbox, attempts) = mpsc::channel(MAX_WAITING_ATTEMPTS);
        let mut tasks = Tasks::default();
        tasks.queue.spawn(empty(attempts, carriers, bounds));
        Self {
            inbox: Mutex::new(Some(inbox)),
            tasks: Mutex::new(tasks),
        }
    }

    /// Works on this too.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.tasks.lock().others.spawn(work);
    }

    /// Refuses what is asked of a closed store.
    pub(crate) fn check_open(&self) -> Result<(), StoreError> {
        self.inbox().map(drop)
    }

    fn inbox(&self) -> Result<mpsc::Sender<Attempt<R>>, StoreError> {
        self.inbox.lock().clone().ok_or_else(closed)
    }

    /// Has changes carried out in a commit that begins not after this.
    pub(crate) async fn submit(&self, changes: Arc<[Change]>, not_after: Instant) -> Result<R, StoreError> {
        let inbox = self.inbox()?;
        let (reply, answer) = oneshot::channel();
        let attempt = Attempt {
            changes,
            not_after,
            reply,
        };
        match timeout_at(not_after, inbox.send(attempt)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return Err(closed()),
            Err(_) => return Err(StoreError::TooLate),
        }
        drop(inbox);
        // Every attempt that was taken in is answered, unless its task was ended halfway.
        answer
            .await
            .map_err(|_| StoreError::unknown("the store was closed while a change was under way"))
    }

    /// Finishes what was taken in, and ends.
    pub(crate) async fn close(&self) {
        self.inbox.lock().take();
        let mut tasks = std::mem::take(&mut *self.tasks.lock());
        // What is under way and what waits each take a commit's time at most, unless very many wait.
        let _ = timeout(2 * ENGINE_TIMEOUT, tasks.queue.join_next()).await;
    }
}

fn closed() -> StoreError {
    StoreError::unavailable("the store is closed")
}

/// Empties the queue, until every way into it is gone and all is done.
///
/// What a commit leads to is told after the next one has set out: the engine works while the callers take their answers.
async fn empty<C: Carrier>(
    mut inbox: mpsc::Receiver<Attempt<C::Answer>>,
    mut carriers: Vec<C>,
    bounds: Bounds,
) {
    let mut waiting = VecDeque::new();
    let mut busy = HashSet::new();
    let mut flights: JoinSet<(C, Vec<Answered<C::Answer>>)> = JoinSet::new();
    let mut answers: Vec<Answered<C::Answer>> = Vec::new();
    let mut is_open = true;
    while is_open || !waiting.is_empty() || !flights.is_empty() {
        let mut has_set_out = false;
        while let Some(carrier) = carriers.pop() {
            let may_leave = flights.len() < bounds.eager_flights || changes(&waiting) >= bounds.max_changes;
            let batch = if may_leave {
                gather(&mut waiting, &busy, bounds.max_changes)
            } else {
                Vec::new()
            };
            if batch.is_empty() {
                carriers.push(carrier);
                break;
            }
            busy.extend(batch.iter().flat_map(Attempt::resources).cloned());
            flights.spawn(async move {
                let answers = carrier.carry(batch).await;
                (carrier, answers)
            });
            has_set_out = true;
        }
        let told = std::mem::take(&mut answers);
        if has_set_out {
            // In a task that has its turn when the flight has had its first one.
            tokio::spawn(async move { tell(told) });
        } else {
            tell(told);
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
                Ok((carrier, landed)) => {
                    carriers.push(carrier);
                    for resource in landed.iter().flat_map(|answered| answered.attempt.resources()) {
                        busy.remove(resource);
                    }
                    answers.extend(landed);
                }
                // A commit is never cancelled while this runs.
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            },
        }
    }
}

fn tell<R>(answers: Vec<Answered<R>>) {
    for answered in answers {
        answered.tell();
    }
}

/// How many changes wait.
fn changes<R>(waiting: &VecDeque<Attempt<R>>) -> usize {
    waiting.iter().map(|attempt| attempt.changes.len()).sum()
}

/// Takes from the queue what can go into one commit.
fn gather<R>(
    waiting: &mut VecDeque<Attempt<R>>,
    busy: &HashSet<Resource>,
    max_changes: usize,
) -> Vec<Attempt<R>> {
    let mut batch = Vec::new();
    let mut room = max_changes;
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
