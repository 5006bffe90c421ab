//! Where locks live.
//!
//! A store is a linearizable compare-and-swap map with a clock and a change feed. That is all an engine must be,
//! so engines stay small and the lock rules exist once, in `ferrolho-core`. Whoever adds an engine implements
//! [`Store`] and runs the conformance suite on it (`docs/adding-a-store.md`).

mod batch;
pub mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
#[cfg(feature = "etcd")]
pub mod etcd;
mod feed;
mod lift;
mod memory;
pub mod meter;
mod open;
pub mod postgres;
mod sqlite;
mod table;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ferrolho_core::{Change, Holder, Live, Lock, Owner, Resource};
use tokio::time::Instant;

pub use feed::{Feed, FeedItem, FeedSender};
pub use lift::{Lift, LiftError, lift_tokens};
pub use memory::MemoryStore;
pub use meter::CommitMeter;
pub use open::{OpenError, StoreUrl, StoreUrlError, open};
pub use sqlite::{SqliteOpenError, SqliteStore};

/// What every engine does.
///
/// All methods may be called at any time from any task. A future that is dropped gives up its answer, not the
/// work: an attempt that was handed over may still be carried out.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// The live lock on a resource, if there is one.
    ///
    /// Never a lock that is over by the store's clock. Linearizable: it has seen every change that was answered
    /// before the call.
    async fn find(&self, resource: &Resource) -> Result<Option<Live>, StoreError>;

    /// Carries out all changes of the attempt or none of them.
    ///
    /// When it returns [`Outcome::Applied`] they are durable and visible to every reader of every server.
    /// What [`Outcome::Stale`] reports is committed too.
    async fn apply(&self, attempt: Attempt) -> Result<Outcome, StoreError>;

    /// A page of live locks, ordered by the bytes of their resources.
    async fn list(&self, query: &ListQuery) -> Result<Page, StoreError>;

    /// Everything that happens from now on, on every server of this store, in commit order.
    ///
    /// When a commit has been answered its events may still be on their way; they are never overtaken by a
    /// later commit's.
    fn changes(&self) -> Feed;

    /// Whether the store can do its work now, with what an operator should know.
    async fn check(&self) -> Result<Health, StoreError>;

    /// What kind of engine this is.
    fn traits(&self) -> EngineTraits;

    /// What the engine counts of its commits, where it gathers attempts in any.
    fn commits(&self) -> Option<Arc<CommitMeter>> {
        None
    }

    /// Finishes what was handed over and lets go of the engine. Later calls are refused as unavailable.
    async fn close(&self);
}

/// What the service wants to know of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineTraits {
    /// Its name for logs and metrics: `memory`, `sqlite`, `postgres`, `etcd`.
    pub name: &'static str,
    /// Looking costs nothing, so it pays to look before an attempt.
    pub looking_is_free: bool,
    /// Other servers may work on the same store.
    pub is_shared: bool,
}

/// Changes to be carried out together, and until when.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// What is to be done: 1 to 32 changes, no resource twice.
    pub changes: Vec<Change>,
    /// The attempt must not begin after this. An engine refuses it with [`StoreError::TooLate`] when its turn
    /// comes later.
    pub not_after: Instant,
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Everything is done. For each change, in order, the lock as it is now; none where it was removed.
    Applied(Vec<Option<Live>>),
    /// Nothing is done, since at least one expectation did not hold. For each change, in order, the lock as it
    /// is now.
    Stale(Vec<Option<Live>>),
}

/// Why a store did not answer. It knows nothing of HTTP; each variant is a meaning that the service acts on.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// Nothing was done, for certain, and nothing is known: the engine is away, full, read-only, shutting down.
    #[error("the store is not available: {0}")]
    Unavailable(Cause),
    /// The attempt may have been carried out, or still be.
    #[error("the outcome is unknown: {0}")]
    Unknown(Cause),
    /// The attempt's turn came after its time: nothing was done, for certain.
    #[error("the attempt came too late")]
    TooLate,
}

/// The engine's own error, for the log.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Cause(Arc<dyn std::error::Error + Send + Sync>);

impl Cause {
    /// Wraps an error, or a message.
    pub fn new(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self(Arc::from(error.into()))
    }
}

impl StoreError {
    /// [`StoreError::Unavailable`] because of this.
    pub fn unavailable(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Unavailable(Cause::new(cause))
    }

    /// [`StoreError::Unknown`] because of this.
    pub fn unknown(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Unknown(Cause::new(cause))
    }
}

/// Which locks a list should hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListQuery {
    /// Only resources that begin with these bytes.
    pub prefix: String,
    /// Only locks of this owner, under any principal unless `holder` says more.
    pub owner: Option<Owner>,
    /// Only locks of this very holder.
    pub holder: Option<Holder>,
    /// Only resources after this one, by bytes.
    pub after: Option<Resource>,
    /// At most so many, from 1.
    pub limit: usize,
}

impl ListQuery {
    /// Whether the query wants this lock, apart from `after` and `limit`.
    pub fn wants(&self, lock: &Lock) -> bool {
        lock.resource.as_str().starts_with(&self.prefix)
            && self.owner.as_ref().is_none_or(|owner| *owner == lock.owner)
            && self.holder.as_ref().is_none_or(|holder| lock.is_held_by(holder))
    }
}

/// A page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The locks, in order.
    pub locks: Vec<Live>,
    /// Whether there are more behind the last of them.
    pub more: bool,
}

/// What an operator should know of a store that works.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Things that are not as they should be, in words, such as a clock that was stepped.
    pub warnings: Vec<String>,
    /// How many microseconds the engine's clock is ahead of this machine's wall clock (negative: behind), where
    /// that is known.
    pub clock_ahead_micros: Option<i64>,
    /// How many locks live, where that is known without counting them.
    pub live_locks: Option<u64>,
}

/// The shortest time after which an engine that does not answer is taken to be away.
pub const ENGINE_TIMEOUT: Duration = Duration::from_secs(3);

/// How many expired locks an engine that keeps them in memory removes in one piece.
pub(crate) const REAP_PIECE_LOCKS: usize = 1000;
