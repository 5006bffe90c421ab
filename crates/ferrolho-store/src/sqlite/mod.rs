//! The SQLite engine: one file, one server, durable by default.
//!
//! All locks are in memory too, in a [`Table`]. Looks and refusals come from there and wait
//! for nobody; what changes something goes to the [`writer`], one thread that commits many attempts at once and
//! publishes them to the table before anybody is answered. The file is the truth: it is opened with `flock`
//! against a second server ([`file`](mod@file)), synced with every commit, read anew after any commit that failed, and
//! watched for changes by other programs ([`wal`]), such as an operator's `sqlite3`. Under load the newest changes
//! are in a [`journal`] in the same file. The clock does not follow steps of the wall clock, with or without a
//! restart ([`crate::clock`], [`remembered`]).

mod disk;
mod error;
mod file;
mod high_water;
mod journal;
mod opening;
mod remembered;
mod rows;
mod schema;
mod shared;
mod wal;
mod writer;

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};

use async_trait::async_trait;
use ferrolho_core::{Live, Resource, Timestamp};
use parking_lot::RwLock;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::warn;

use crate::clock::{Clock, HostTime, TimeSource};
use crate::table::{Reading, Table};
use crate::{
    Attempt, CommitMeter, ENGINE_TIMEOUT, EngineTraits, Feed, Health, ListQuery, Outcome, Page, Store,
    StoreError,
};
use disk::Disk;
use error::DiskError;
use rows::Loaded;
use shared::{Look, Phase, Shared};
use writer::{Message, Waiting, Writer};

pub use error::SqliteOpenError;
pub(crate) use opening::lift_tokens;

/// How many attempts may wait for the writer; more are refused.
const QUEUE_MAX_ATTEMPTS: usize = 16_384;

/// A store in a SQLite file.
#[derive(Debug)]
pub struct SqliteStore {
    shared: Arc<Shared>,
    queue: Arc<Queue>,
    /// What an operator should know for as long as the store is open.
    notices: Vec<String>,
}

/// The way to the writer. It ends when this does, or is closed, after it has done what was asked before.
#[derive(Debug)]
struct Queue(RwLock<Option<SyncSender<Message>>>);

impl Queue {
    fn send(&self, message: Message) -> Result<(), StoreError> {
        let closed = || StoreError::unavailable("the store is closed");
        let sender = self.0.read();
        match sender.as_ref().ok_or_else(closed)?.try_send(message) {
            Ok(()) => Ok(()),
            Err(TrySendError::Full(_)) => Err(StoreError::unavailable("too many attempts wait for the disk")),
            Err(TrySendError::Disconnected(_)) => Err(closed()),
        }
    }

    fn close(&self) {
        self.0.write().take();
    }
}

/// Marks the store as closed however the writer's thread ends.
struct ClosedAtTheEnd(Arc<Shared>);

impl Drop for ClosedAtTheEnd {
    fn drop(&mut self) {
        self.0.stop(Phase::Closed);
    }
}

impl SqliteStore {
    /// Opens the file, or makes it. Blocks while it reads all locks.
    pub fn open(path: &Path) -> Result<Self, SqliteOpenError> {
        Self::open_with(path, Arc::new(HostTime))
    }

    /// Opens the file with a clock that takes its readings from this source.
    pub fn open_with(path: &Path, time: Arc<dyn TimeSource>) -> Result<Self, SqliteOpenError> {
        let opened = opening::open(path, time)?;
        for notice in &opened.notices {
            warn!(path = %path.display(), "{notice}");
        }
        Self::start(opened.disk, opened.loaded, opened.clock, opened.notices)
            .map_err(|cause| SqliteOpenError::disk(path, cause))
    }

    fn start(
        mut disk: impl Disk,
        loaded: Loaded,
        clock: Clock,
        notices: Vec<String>,
    ) -> Result<Self, DiskError> {
        let stamp = disk.stamp()?;
        let shared = Arc::new(Shared::new(clock, loaded, disk.index(), stamp));
        let (sender, messages) = sync_channel(QUEUE_MAX_ATTEMPTS);
        let queue = Arc::new(Queue(RwLock::new(Some(sender))));
        let wake = Arc::downgrade(&queue);
        shared.clock.on_step(Box::new(move || {
            if let Some(queue) = wake.upgrade() {
                // If the queue is full, the writer wakes all the same.
                let _ = queue.send(Message::Wake);
            }
        }));
        let writer = Writer::new(Arc::clone(&shared), disk, messages);
        let closed = ClosedAtTheEnd(Arc::clone(&shared));
        std::thread::Builder::new()
            .name("ferrolho-sqlite".to_owned())
            .spawn(move || {
                // Dropped last, when the writer has let go of the file.
                let _closed = closed;
                writer.run();
            })
            .map_err(DiskError::File)?;
        Ok(Self {
            shared,
            queue,
            notices,
        })
    }

    /// Has the writer read what another program has changed.
    async fn refresh(&self) -> Result<(), StoreError> {
        let (done, refreshed) = oneshot::channel();
        self.queue.send(Message::Refresh(done))?;
        // If the writer ends instead, the next look says so.
        let _ = refreshed.await;
        Ok(())
    }

    async fn look<T: Send>(
        &self,
        read: impl Fn(&Table, Timestamp) -> Reading<T> + Send + Sync,
    ) -> Result<T, StoreError> {
        let looking = self.shared.look_until_settled(|| self.refresh(), read);
        match tokio::time::timeout(ENGINE_TIMEOUT, looking).await {
            Ok(answer) => answer,
            Err(_) => Err(StoreError::unavailable("the disk does not answer")),
        }
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn find(&self, resource: &Resource) -> Result<Option<Live>, StoreError> {
        self.look(|table, now| table.find(resource, now)).await
    }

    async fn apply(&self, attempt: Attempt) -> Result<Outcome, StoreError> {
        if Instant::now() > attempt.not_after {
            return Err(StoreError::TooLate);
        }
        // What is refused by what is committed needs no commit; everything else is the writer's to decide. Few are
        // refused, so the table is asked before the file is.
        let refuse = |table: &Table, now| table.refuse(&attempt.changes, now);
        let seems_refused = refuse(&self.shared.read().table, self.shared.clock.now())
            .answer
            .is_some();
        if seems_refused && let Look::Answer(Some(outcome)) = self.shared.look(None, refuse) {
            return Ok(outcome);
        }
        let (answer, answered) = oneshot::channel();
        self.queue.send(Message::Apply(Waiting { attempt, answer }))?;
        match tokio::time::timeout(ENGINE_TIMEOUT, answered).await {
            Ok(Ok(answer)) => answer.told,
            Ok(Err(_)) => Err(StoreError::unknown("the writer has ended")),
            Err(_) => Err(StoreError::unknown("the disk does not answer")),
        }
    }

    async fn list(&self, query: &ListQuery) -> Result<Page, StoreError> {
        self.look(|table, now| table.list(query, now)).await
    }

    fn changes(&self) -> Feed {
        self.shared.feed.subscribe()
    }

    async fn check(&self) -> Result<Health, StoreError> {
        let state = self.shared.read();
        let trouble = match &state.phase {
            Phase::Broken(cause) => Some(cause.clone()),
            Phase::Closed => return Err(StoreError::unavailable("the store is closed")),
            Phase::Settled | Phase::InFlight | Phase::Recovering => state.trouble.clone(),
        };
        if let Some(cause) = trouble {
            return Err(StoreError::Unavailable(cause));
        }
        let mut warnings = self.notices.clone();
        warnings.extend(self.shared.clock.warning());
        if state.unreadable > 0 {
            warnings.push(format!(
                "{} rows of distributed_locks are passed over, since a name, number or time in them cannot be",
                state.unreadable
            ));
        }
        warnings.extend(state.log_trouble.clone());
        let live_locks = state.table.live_locks(self.shared.clock.now());
        Ok(Health {
            warnings,
            clock_ahead_micros: Some(self.shared.clock.ahead_of_wall_micros()),
            live_locks: u64::try_from(live_locks).ok(),
        })
    }

    fn traits(&self) -> EngineTraits {
        EngineTraits {
            name: "sqlite",
            looking_is_free: true,
            is_shared: false,
        }
    }

    fn commits(&self) -> Option<Arc<CommitMeter>> {
        Some(Arc::clone(&self.shared.commits))
    }

    async fn close(&self) {
        self.queue.close();
        self.shared.until_closed().await;
    }
}

#[cfg(test)]
mod tests;
