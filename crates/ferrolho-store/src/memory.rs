//! The memory engine: fast, for tests, for simulations and for those who can lose their locks with the process.
//!
//! A [`Table`] under a mutex, changed in the caller's task: there is no thread, so under tokio's paused time a
//! simulation repeats exactly. One task sleeps until the earliest end and removes what is over.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ferrolho_core::{FencingToken, Live, Resource, Timestamp};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::clock::Clock;
use crate::table::{Batch, Locks, Table};
use crate::{
    Attempt, EngineTraits, Feed, FeedSender, Health, ListQuery, Outcome, Page, REAP_PIECE_LOCKS, Store,
    StoreError,
};

/// The longest sleep of the reaper. Its timer stands still while the machine is suspended and the store's clock
/// does not, so it looks again at least this often while any lock is there.
const REAPER_SLEEP_MAX: Duration = Duration::from_secs(1);

/// A store that lives and dies with its process.
#[derive(Debug)]
pub struct MemoryStore {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    clock: Clock,
    feed: FeedSender,
    /// Rung when the earliest end has changed, when the clock was stepped, and at the end.
    reaper: Notify,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    table: Table,
    is_closed: bool,
}

impl MemoryStore {
    /// An empty store with this clock. Must be called within a tokio runtime, where its reaper runs.
    ///
    /// Its tokens start at the clock's microseconds since 1970, so they also rise over restarts.
    pub fn new(clock: Clock) -> Self {
        let top_token = u64::try_from(clock.now().as_micros()).unwrap_or(0);
        let inner = Arc::new(Inner {
            feed: FeedSender::default(),
            reaper: Notify::new(),
            state: Mutex::new(State {
                // Far enough below 2^53 whatever the clock says; the year 2112 comes as near.
                table: Table::new(Locks::default(), top_token.min(FencingToken::MAX.get() / 2)),
                is_closed: false,
            }),
            clock,
        });
        let told = Arc::downgrade(&inner);
        inner.clock.on_step(Box::new(move || {
            if let Some(inner) = told.upgrade() {
                inner.reaper.notify_one();
            }
        }));
        tokio::spawn(Arc::clone(&inner).reap_for_life());
        Self { inner }
    }
}

impl Drop for MemoryStore {
    fn drop(&mut self) {
        self.inner.close();
    }
}

impl Inner {
    fn open_state(&self) -> Result<MutexGuard<'_, State>, StoreError> {
        let state = self.state.lock();
        if state.is_closed {
            return Err(StoreError::unavailable("the store is closed"));
        }
        Ok(state)
    }

    fn close(&self) {
        self.state.lock().is_closed = true;
        self.reaper.notify_one();
    }

    /// Publishes while the state is locked, so that events leave in the order of their commits.
    fn publish(&self, state: &mut State, batch: Batch) {
        let earliest = state.table.earliest_end();
        self.feed.send(batch.publish(&mut state.table));
        if state.table.earliest_end() != earliest {
            self.reaper.notify_one();
        }
    }

    async fn reap_for_life(self: Arc<Self>) {
        while let Ok(next_end) = self.reap() {
            let sleep = next_end.map(|end| end.since(self.clock.now()).min(REAPER_SLEEP_MAX));
            tokio::select! {
                () = self.reaper.notified() => {}
                () = tokio::time::sleep(sleep.unwrap_or_default()), if sleep.is_some() => {}
            }
        }
    }

    /// Removes a piece of what is over. Returns the earliest end of what is left.
    fn reap(&self) -> Result<Option<Timestamp>, StoreError> {
        let mut state = self.open_state()?;
        let mut batch = Batch::new(&state.table, self.clock.now());
        batch.reap(&state.table, REAP_PIECE_LOCKS);
        self.publish(&mut state, batch);
        Ok(state.table.earliest_end())
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn find(&self, resource: &Resource) -> Result<Option<Live>, StoreError> {
        let state = self.inner.open_state()?;
        let now = self.inner.clock.now();
        Ok(state.table.find(resource, now).answer)
    }

    async fn apply(&self, attempt: Attempt) -> Result<Outcome, StoreError> {
        let mut state = self.inner.open_state()?;
        if Instant::now() > attempt.not_after {
            return Err(StoreError::TooLate);
        }
        let mut batch = Batch::new(&state.table, self.inner.clock.now());
        let outcome = batch
            .decide(&state.table, &attempt.changes)
            .map_err(StoreError::unavailable)?;
        self.inner.publish(&mut state, batch);
        Ok(outcome)
    }

    async fn list(&self, query: &ListQuery) -> Result<Page, StoreError> {
        let state = self.inner.open_state()?;
        Ok(state.table.list(query, self.inner.clock.now()).answer)
    }

    fn changes(&self) -> Feed {
        self.inner.feed.subscribe()
    }

    async fn check(&self) -> Result<Health, StoreError> {
        let state = self.inner.open_state()?;
        let live_locks = state.table.live_locks(self.inner.clock.now());
        Ok(Health {
            warnings: self.inner.clock.warning().into_iter().collect(),
            clock_ahead_micros: Some(self.inner.clock.ahead_of_wall_micros()),
            live_locks: u64::try_from(live_locks).ok(),
        })
    }

    fn traits(&self) -> EngineTraits {
        EngineTraits {
            name: "memory",
            looking_is_free: true,
            is_shared: false,
        }
    }

    async fn close(&self) {
        self.inner.close();
    }
}

#[cfg(test)]
mod tests;
