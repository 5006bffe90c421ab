//! What the readers and the writer share: the table, and whether it may be believed.

use std::sync::Arc;

use ferrolho_core::Timestamp;
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::sync::watch;

use super::rows::Loaded;
use super::wal::{Stamp, WalIndex};
use crate::clock::Clock;
use crate::table::{Batch, Reading, Table};
use crate::{Cause, CommitMeter, FeedSender, StoreError};

/// How often a look waits for a commit because of a lock that was just over. Each wait settles what was over when
/// it began; a list under heavy load could always find some more.
const WAITS_FOR_OVER: usize = 3;

/// Shared by all tasks and the writer's thread.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) clock: Clock,
    pub(super) feed: FeedSender,
    pub(super) commits: Arc<CommitMeter>,
    state: RwLock<State>,
    /// Rung whenever the phase has become a settled one.
    settled: watch::Sender<()>,
}

/// What readers see.
#[derive(Debug)]
pub(super) struct State {
    pub(super) table: Table,
    pub(super) phase: Phase,
    /// The file as the table shows it; nothing when another program may have changed it.
    stamp: Option<Stamp>,
    index: Arc<WalIndex>,
    /// Why the last attempt to write failed, until one succeeds.
    pub(super) trouble: Option<Cause>,
    /// Rows that are no locks.
    pub(super) unreadable: usize,
    /// What keeps the log from starting over.
    pub(super) log_trouble: Option<String>,
}

/// How table and disk stand to each other.
#[derive(Clone, Debug)]
pub(super) enum Phase {
    /// They agree.
    Settled,
    /// A batch is being decided or written. What the table says is committed, but more may be coming.
    InFlight,
    /// A commit has failed and the file is being read anew. Nothing is known until then.
    Recovering,
    /// Reading it anew has failed.
    Broken(Cause),
    /// The store is closed.
    Closed,
}

/// What a look came to.
#[derive(Debug)]
pub(super) enum Look<T> {
    /// It may be answered with this.
    Answer(T),
    /// A commit may change the answer; ask again when it is done. The time of this look.
    Wait(watch::Receiver<()>, Timestamp),
    /// Another program has changed the file; ask again when the writer has read it.
    Refresh,
    /// There is no answer.
    Failed(StoreError),
}

impl State {
    /// Whether the file is as the table shows it.
    pub(super) fn is_current(&self) -> bool {
        self.stamp.is_some() && self.index.stamp().ok() == self.stamp
    }

    /// How much of the log is in use.
    pub(super) fn log_bytes(&self) -> u64 {
        self.stamp.map_or(0, |stamp| stamp.log_bytes())
    }
}

impl Shared {
    pub(super) fn new(clock: Clock, loaded: Loaded, index: Arc<WalIndex>, stamp: Option<Stamp>) -> Self {
        let table = Table::new(loaded.locks.into_iter().collect(), loaded.top_token);
        Self {
            clock,
            feed: FeedSender::default(),
            commits: Arc::default(),
            state: RwLock::new(State {
                table,
                phase: Phase::Settled,
                stamp,
                index,
                trouble: None,
                unreadable: loaded.unreadable,
                log_trouble: None,
            }),
            settled: watch::Sender::new(()),
        }
    }

    pub(super) fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read()
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write()
    }

    /// Looks at the table once, without waiting. `done` is a time up to which the ends of locks are settled.
    pub(super) fn look<T>(
        &self,
        done: Option<Timestamp>,
        read: impl FnOnce(&Table, Timestamp) -> Reading<T>,
    ) -> Look<T> {
        let state = self.read();
        // Read after the phase is known and while it cannot change: a batch that is not in flight yet will
        // decide at a later time than this.
        let now = self.clock.now();
        let wait = || Look::Wait(self.settled.subscribe(), now);
        let is_in_flight = match &state.phase {
            Phase::Settled => false,
            Phase::InFlight => true,
            Phase::Recovering => return wait(),
            Phase::Broken(cause) => return Look::Failed(StoreError::Unavailable(cause.clone())),
            Phase::Closed => return Look::Failed(StoreError::unavailable("the store is closed")),
        };
        if !state.is_current() {
            return if is_in_flight { wait() } else { Look::Refresh };
        }
        let reading = read(&state.table, now);
        if is_in_flight && reading.over_since > done {
            return wait();
        }
        Look::Answer(reading.answer)
    }

    /// Looks at the table, waiting for a commit or for `refresh`, which has the file read, where that is needed.
    pub(super) async fn look_until_settled<T, F>(
        &self,
        refresh: impl Fn() -> F + Send + Sync,
        read: impl Fn(&Table, Timestamp) -> Reading<T> + Send + Sync,
    ) -> Result<T, StoreError>
    where
        T: Send,
        F: Future<Output = Result<(), StoreError>> + Send,
    {
        let mut done = None;
        let mut waits = 0;
        loop {
            match self.look(done, &read) {
                Look::Answer(answer) => return Ok(answer),
                Look::Failed(error) => return Err(error),
                Look::Refresh => refresh().await?,
                Look::Wait(mut settled, now) => {
                    // An error would mean that `self` is gone.
                    let _ = settled.changed().await;
                    waits += 1;
                    let for_ever = Timestamp::from_micros(i64::MAX);
                    done = Some(if waits < WAITS_FOR_OVER { now } else { for_ever });
                }
            }
        }
    }

    /// A batch is about to read the clock.
    pub(super) fn start_flight(&self) {
        self.write().phase = Phase::InFlight;
    }

    /// Another program has changed the file to this.
    pub(super) fn load(&self, loaded: Loaded) {
        let locks = loaded.locks.into_iter().collect();
        let mut state = self.write();
        state.unreadable = loaded.unreadable;
        let old = state.table.replace(locks, loaded.top_token);
        self.feed.gap();
        drop(state);
        drop(old);
    }

    /// The batch is durable.
    pub(super) fn publish(&self, batch: Batch, stamp: Option<Stamp>) {
        let mut state = self.write();
        let events = batch.publish(&mut state.table);
        state.stamp = stamp;
        state.phase = Phase::Settled;
        state.trouble = None;
        // Sent while the state is locked, so that events leave in the order of their commits.
        self.feed.send(events);
        drop(state);
        self.settled.send_replace(());
    }

    /// Nothing is in flight any more, and nothing has changed.
    pub(super) fn settle(&self) {
        self.write().phase = Phase::Settled;
        self.settled.send_replace(());
    }

    /// Changes what is known besides the table.
    pub(super) fn note(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.write());
    }

    /// The file is as the table shows it.
    pub(super) fn set_stamp(&self, stamp: Option<Stamp>) {
        self.write().stamp = stamp;
    }

    /// Nothing is known from here on.
    pub(super) fn start_recovery(&self) {
        self.write().phase = Phase::Recovering;
    }

    /// The file has been read anew.
    pub(super) fn recovered(&self, loaded: Loaded, index: Arc<WalIndex>, stamp: Option<Stamp>) {
        self.load(loaded);
        let mut state = self.write();
        state.index = index;
        state.stamp = stamp;
        state.phase = Phase::Settled;
        drop(state);
        self.settled.send_replace(());
    }

    /// Reading the file anew has failed, or the store has closed.
    pub(super) fn stop(&self, phase: Phase) {
        self.write().phase = phase;
        self.settled.send_replace(());
    }

    /// Waits until the store is closed.
    pub(super) async fn until_closed(&self) {
        let mut settled = self.settled.subscribe();
        while !matches!(self.read().phase, Phase::Closed) {
            let _ = settled.changed().await;
        }
    }
}
