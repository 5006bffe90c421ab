//! The queue of attempts, and the calls that carry them.
//!
//! What has come in while calls were under way goes together into the next one: one statement, one round trip, one
//! commit, one notification for all. A resource is in a call once.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use ferrolho_core::{Change, Live, Resource};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::database::Database;
use super::ends::Ends;
use super::failure::Failure;
use super::link::Link;
use crate::{CommitMeter, ENGINE_TIMEOUT, Outcome, StoreError};

/// How many attempts may wait for their call; more wait at the door.
const MAX_WAITING_ATTEMPTS: usize = 1024;

/// How many calls may be under way, each on a connection of its own. One commits while the other one travels; the
/// database takes them one after the other anyway.
pub(super) const MAX_FLIGHTS: usize = 2;

/// How many changes a call carries.
const MAX_BATCH_CHANGES: usize = 128;

struct Attempt {
    changes: Arc<[Change]>,
    not_after: Instant,
    reply: oneshot::Sender<Result<Outcome, StoreError>>,
}

/// The way into the queue.
#[derive(Clone)]
pub(super) struct Queue(mpsc::Sender<Attempt>);

/// What carries the calls.
pub(super) struct Carrier {
    pub(super) database: Arc<Database>,
    pub(super) ends: Arc<Ends>,
    pub(super) meter: Arc<CommitMeter>,
}

impl Queue {
    /// A queue and the work that empties it over these connections, which ends when every way into it is gone and all is done.
    pub(super) fn new(carrier: Carrier, links: Vec<Link>) -> (Self, impl Future<Output = ()> + Send) {
        let (sender, receiver) = mpsc::channel(MAX_WAITING_ATTEMPTS);
        (Self(sender), run(Arc::new(carrier), links, receiver))
    }

    /// Has changes carried out in a call that begins not after this.
    pub(super) async fn submit(
        &self,
        changes: Arc<[Change]>,
        not_after: Instant,
    ) -> Result<Outcome, StoreError> {
        let (reply, answer) = oneshot::channel();
        let attempt = Attempt {
            changes,
            not_after,
            reply,
        };
        match timeout_at(not_after, self.0.send(attempt)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return Err(StoreError::unavailable("the store is closed")),
            Err(_) => return Err(StoreError::TooLate),
        }
        // Every attempt that was taken in is answered, unless its task was ended halfway.
        answer
            .await
            .map_err(|_| StoreError::unknown("the store was closed while a change was under way"))?
    }
}

async fn run(carrier: Arc<Carrier>, mut links: Vec<Link>, mut inbox: mpsc::Receiver<Attempt>) {
    let mut waiting = VecDeque::new();
    let mut flights: JoinSet<Link> = JoinSet::new();
    let mut is_open = true;
    while is_open || !waiting.is_empty() || !flights.is_empty() {
        while !waiting.is_empty()
            && let Some(link) = links.pop()
        {
            let batch = gather(&mut waiting);
            let carrier = Arc::clone(&carrier);
            flights.spawn(async move {
                carrier.fly(&link, batch).await;
                link
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
                Ok(link) => links.push(link),
                // A call is never cancelled while this runs.
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            },
        }
    }
}

/// Takes from the queue what can go into one call. Attempts of one resource keep their order.
fn gather(waiting: &mut VecDeque<Attempt>) -> Vec<Attempt> {
    let mut batch = Vec::new();
    let mut room = MAX_BATCH_CHANGES;
    let mut taken: HashSet<Resource> = HashSet::new();
    let mut rest = VecDeque::new();
    while room > 0
        && let Some(attempt) = waiting.pop_front()
    {
        let resources = || attempt.changes.iter().map(|change| &change.resource);
        let is_free = !resources().any(|resource| taken.contains(resource));
        taken.extend(resources().cloned());
        if is_free && attempt.changes.len() <= room {
            room -= attempt.changes.len();
            batch.push(attempt);
        } else {
            rest.push_back(attempt);
        }
    }
    rest.append(waiting);
    *waiting = rest;
    batch
}

impl Carrier {
    async fn fly(&self, link: &Link, batch: Vec<Attempt>) {
        let now = Instant::now();
        let (batch, late): (Vec<_>, Vec<_>) = batch.into_iter().partition(|attempt| attempt.not_after >= now);
        for attempt in late {
            send(attempt.reply, Err(StoreError::TooLate));
        }
        if batch.is_empty() {
            return;
        }
        let groups: Vec<Arc<[Change]>> = batch.iter().map(|attempt| Arc::clone(&attempt.changes)).collect();
        let answer = self.database.apply(link, &groups, 0, now + ENGINE_TIMEOUT).await;
        let changes: usize = groups.iter().map(|group| group.len()).sum();
        match answer {
            Ok(answered) => {
                self.meter.committed(now.elapsed(), changes);
                self.answer(batch, answered);
            }
            Err(failure) => {
                self.meter.failed();
                for attempt in batch {
                    send(attempt.reply, Err(failure.clone().of_write()));
                }
            }
        }
    }

    fn answer(&self, batch: Vec<Attempt>, answered: Vec<(usize, bool, Option<Live>)>) {
        let count = batch.iter().map(|attempt| attempt.changes.len()).sum();
        let mut fates: Vec<Option<(bool, Option<Live>)>> = vec![None; count];
        for (place, is_done, live) in answered {
            if let (true, Some(live)) = (is_done, &live) {
                self.ends.lock_ends_in(live.left);
            }
            if let Some(fate) = fates.get_mut(place) {
                *fate = Some((is_done, live));
            }
        }
        let mut fates = fates.into_iter();
        for attempt in batch {
            let fate: Option<Vec<_>> = fates.by_ref().take(attempt.changes.len()).collect();
            let outcome = fate
                .map(|fate| {
                    let is_done = fate.iter().all(|(is_done, _)| *is_done);
                    let locks = fate.into_iter().map(|(_, live)| live).collect();
                    if is_done {
                        Outcome::Applied(locks)
                    } else {
                        Outcome::Stale(locks)
                    }
                })
                .ok_or_else(|| {
                    Failure::Unknown("the database did not answer for every change".into()).of_write()
                });
            send(attempt.reply, outcome);
        }
    }
}

fn send(reply: oneshot::Sender<Result<Outcome, StoreError>>, outcome: Result<Outcome, StoreError>) {
    // Whoever asked may have given up waiting.
    let _ = reply.send(outcome);
}
