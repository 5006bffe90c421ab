//! The service: what can be done with locks, without a word of HTTP.
//!
//! Each use case looks at the lock, asks the rules, and hands a change to the store; when the store says that the
//! lock is not as expected, it decides again from what the store reports ([`acquire`], [`end`], [`renew`]).
//! Those who wait stand in [`queue`], and [`drive`] makes the attempts of whoever is in front. [`bus`] keeps the
//! last events for those who watch, [`ledger`] the number of each principal's locks.

mod acquire;
mod attempt;
mod bus;
mod chance;
mod drive;
mod end;
mod ledger;
mod metered;
mod meters;
mod owners;
mod queue;
mod renew;
mod told;
mod wait;

use std::sync::Arc;
use std::time::Duration;

use ferrolho_core::{
    Claim, Event, FencingToken, Grant, Holder, Live, Lock, Mark, Metadata, Reason, Resource, Ttl, Wait,
};
use ferrolho_store::{CommitMeter, Health, ListQuery, Page, Store, StoreError};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tracing::warn;

use crate::audit::{Audit, Origin};
pub use bus::{Subscription, Told};
pub use chance::Chance;
pub(crate) use metered::{FAILURES, StoreMeter};
pub(crate) use meters::{ACQUIRE_ENDS, CHANGE_ENDS, End, Ends, Meters, WAIT_ENDS};
pub use queue::Waiting;

/// How much later than its wait a request may still be carried out.
pub const LATEST_START: Duration = Duration::from_secs(5);

/// Bounds on what the service keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most requests that may wait at a time, in all.
    pub waiters: usize,
    /// The most requests that may wait at a time for one resource.
    pub waiters_per_resource: usize,
    /// How many of the last events are kept for those who come back.
    pub events: usize,
    /// How many may read events at a time.
    pub event_readers: usize,
    /// The most locks of one principal, on all servers of the store; no limit where there are no principals.
    pub locks_per_principal: Option<usize>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            waiters: 10_000,
            waiters_per_resource: 1_000,
            events: 10_000,
            event_readers: 1_000,
            locks_per_principal: None,
        }
    }
}

/// A request for a lock, or for several of them, all or none.
#[derive(Clone, Debug)]
pub struct AcquireRequest {
    /// Which locks: 1 to 32, none twice.
    pub resources: Vec<Resource>,
    /// For whom.
    pub holder: Holder,
    /// For how long.
    pub ttl: Ttl,
    /// How long to wait for it.
    pub wait: Wait,
    /// What to note on it.
    pub metadata: Option<Metadata>,
    /// The caller's `Idempotency-Key`.
    pub key: Option<Mark>,
    /// When the request came in.
    pub arrived: Instant,
    /// Which request it was.
    pub origin: Origin,
}

/// How an acquire ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acquired {
    /// The caller holds the locks now.
    Granted(Vec<Lock>),
    /// Others hold, or wait for, these. The caller got nothing.
    Held {
        /// Which.
        resources: Vec<Resource>,
        /// How long it is until the last of them ends by itself, as far as is known.
        retry_after: Duration,
    },
}

/// A request to give a lock back.
#[derive(Clone, Debug)]
pub struct ReleaseRequest {
    /// Which lock.
    pub resource: Resource,
    /// Who says to hold it.
    pub claim: Claim,
    /// When the request came in.
    pub arrived: Instant,
    /// Which request it was.
    pub origin: Origin,
}

/// A request to take a lock away from its holder.
#[derive(Clone, Debug)]
pub struct ForceRequest {
    /// Which lock.
    pub resource: Resource,
    /// Which grant of it; any when there is none.
    pub token: Option<FencingToken>,
    /// Why.
    pub reason: Reason,
    /// When the request came in.
    pub arrived: Instant,
    /// The request, as the audit trail knows it.
    pub origin: Origin,
}

/// A request to move a lock's end.
#[derive(Clone, Debug)]
pub struct RenewRequest {
    /// Which lock.
    pub resource: Resource,
    /// Who says to hold it.
    pub claim: Claim,
    /// The new lifetime, from now.
    pub ttl: Ttl,
    /// When the request came in.
    pub arrived: Instant,
}

/// How a renewal ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// The lock with its new end.
    Renewed(Lock),
    /// There is no lock, or it has expired.
    NotFound,
    /// The lock is there, and it is not the caller's.
    Forbidden,
}

/// Why the service does not carry out a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A limit on waiters is reached.
    #[error("{} requests wait already, the most that {} allows", .0.value, .0.limit)]
    TooManyWaiters(Reached),
    /// Another limit is reached.
    #[error("{} allows no more than {}", .0.limit, .0.value)]
    LimitReached(Reached),
    /// The store is away, or whether the request was carried out is unknown.
    #[error("the store did not answer, or the outcome is unknown")]
    Unavailable,
    /// The request's time was over, or its lock was, before it could be answered. Nothing of it is left.
    #[error("the request took too long")]
    TooSlow,
    /// The server is stopping.
    #[error("the server is stopping")]
    ShuttingDown,
}

/// A limit that is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reached {
    /// The limit's name, as the configuration has it.
    pub limit: &'static str,
    /// Its value, in what the limit is about: requests, readers, locks.
    pub value: usize,
}

/// Why an attempt or a wait ended without a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum No {
    TimeIsUp,
    Unavailable,
    TooSlow,
    ShuttingDown,
}

/// What a waiting request is told.
type Verdict = Result<Given, No>;

/// A grant that is on its way to its caller.
#[derive(Debug)]
struct Given {
    lives: Vec<Live>,
    /// When the first of them ends, at the latest.
    until: Instant,
    /// Held until the caller has been told.
    untold: Option<told::Untold>,
}

/// The lock service of one server. Shared by reference between all requests; see the module's head.
pub struct Service {
    store: Arc<dyn Store>,
    queues: Mutex<queue::Queues>,
    /// Rung when the earliest thing that the timekeeper has to do may have changed.
    timekeeper: Arc<Notify>,
    untold: Arc<told::Register>,
    bus: Arc<bus::Bus>,
    /// Where principals have a limit on their locks.
    ledger: Option<Arc<ledger::Ledger>>,
    meters: Meters,
    store_meter: Arc<StoreMeter>,
    audit: Audit,
    chance: Chance,
    shutting_down: watch::Sender<bool>,
}

impl Service {
    /// Starts the service on this store. Must be called inside a tokio runtime, on which its background tasks
    /// then run for as long as the service is in use.
    pub fn start(store: Arc<dyn Store>, limits: Limits, audit: Audit) -> Arc<Self> {
        Self::start_with(store, limits, audit, Chance::default())
    }

    /// Starts the service as [`Service::start`] does, with this chance.
    pub fn start_with(store: Arc<dyn Store>, limits: Limits, audit: Audit, chance: Chance) -> Arc<Self> {
        let feed = store.changes();
        let store_meter = Arc::new(StoreMeter::default());
        let store = Arc::new(metered::Metered::new(store, Arc::clone(&store_meter)));
        let service = Arc::new(Self {
            queues: Mutex::new(queue::Queues::new(limits, store.traits().is_shared)),
            store,
            timekeeper: Arc::default(),
            untold: Arc::default(),
            bus: Arc::new(bus::Bus::new(limits.events, limits.event_readers)),
            ledger: limits
                .locks_per_principal
                .map(|max_locks| Arc::new(ledger::Ledger::new(max_locks))),
            meters: Meters::default(),
            store_meter,
            audit,
            chance,
            shutting_down: watch::Sender::new(false),
        });
        drive::spawn_background(&service, feed);
        service
    }

    /// The live lock on a resource.
    pub async fn find(&self, resource: &Resource) -> Result<Option<Lock>, Refusal> {
        let live = self.store.find(resource).await.map_err(|error| refuse(&error))?;
        Ok(live.map(|live| live.lock))
    }

    /// A page of live locks.
    pub async fn list(&self, query: ListQuery) -> Result<Page, Refusal> {
        self.store.list(&query).await.map_err(|error| refuse(&error))
    }

    /// Who waits for a resource on this server, in order.
    pub fn waiters(&self, resource: &Resource) -> Vec<Waiting> {
        self.queues.lock().waiters(resource)
    }

    /// For which resources anybody waits on this server, and how many owners, in no order.
    pub fn lines(&self) -> Vec<(Resource, usize)> {
        self.queues.lock().lengths()
    }

    /// How many requests wait on this server.
    pub fn waiting(&self) -> usize {
        self.queues.lock().waiting()
    }

    /// How many places, queues, alarms and untold grants are kept; nothing once everybody has gone and the
    /// places that were kept for them are over.
    pub fn footprint(&self) -> usize {
        self.queues.lock().footprint() + self.untold.len()
    }

    /// The events after the one with this id, or from now on.
    pub fn events(&self, after: Option<&str>) -> Result<Subscription, Refusal> {
        self.bus.subscribe(after).map_err(Refusal::LimitReached)
    }

    /// The last events of this resource that are remembered, the oldest first.
    pub fn history(&self, resource: &Resource) -> Vec<Arc<Event>> {
        self.bus.history(resource)
    }

    /// Whether the store can do its work.
    pub async fn health(&self) -> Result<Health, Refusal> {
        self.store.check().await.map_err(|error| refuse(&error))
    }

    /// The name of the store's engine.
    pub fn engine_name(&self) -> &'static str {
        self.store.traits().name
    }

    /// What has been counted of the service's work.
    pub(crate) fn meters(&self) -> &Meters {
        &self.meters
    }

    /// What has been counted of the store's answers.
    pub(crate) fn store_meter(&self) -> &StoreMeter {
        &self.store_meter
    }

    /// Where it is noted who did what.
    pub(crate) fn audit(&self) -> &Audit {
        &self.audit
    }

    /// What the engine has counted of its commits, where it does.
    pub(crate) fn commits(&self) -> Option<Arc<CommitMeter>> {
        self.store.commits()
    }

    /// How many read events now, and how many were dropped since they were too slow.
    pub(crate) fn event_readers(&self) -> (usize, u64) {
        (self.bus.readers(), self.bus.dropped())
    }

    /// Ends the taking of locks: who waits is told so, new acquires are refused. Renewals and releases go on.
    pub fn shut_down(&self) {
        self.shutting_down.send_replace(true);
        self.queues.lock().dismiss_all(No::ShuttingDown);
        self.bus.end();
    }

    /// Whether [`Service::shut_down`] was called.
    pub fn is_shutting_down(&self) -> bool {
        *self.shutting_down.borrow()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // The timekeeper sees that there is nobody to keep time for.
        self.timekeeper.notify_one();
        if let Some(ledger) = &self.ledger {
            ledger.end();
        }
    }
}

/// A failure of the store as a refusal; logged here, once.
fn refuse(error: &StoreError) -> Refusal {
    match error {
        StoreError::TooLate => Refusal::TooSlow,
        StoreError::Unavailable(cause) => {
            warn!(%cause, "the store is not available");
            Refusal::Unavailable
        }
        StoreError::Unknown(cause) => {
            warn!(%cause, "the outcome of a change is unknown");
            Refusal::Unavailable
        }
    }
}

impl From<No> for Refusal {
    fn from(no: No) -> Self {
        match no {
            No::Unavailable => Self::Unavailable,
            No::TimeIsUp | No::TooSlow => Self::TooSlow,
            No::ShuttingDown => Self::ShuttingDown,
        }
    }
}

impl AcquireRequest {
    fn grant(&self, chance: &Chance) -> Grant {
        Grant {
            holder: self.holder.clone(),
            ttl: self.ttl,
            metadata: self.metadata.clone(),
            mark: self.key.clone().unwrap_or_else(|| Mark::Random(chance.number())),
        }
    }

    /// When the wait is over.
    fn deadline(&self) -> Instant {
        self.arrived + self.wait.duration()
    }
}

impl Given {
    fn new(lives: Vec<Live>, untold: Option<told::Untold>) -> Self {
        let left = lives.iter().map(|live| live.left).min().unwrap_or_default();
        Self {
            lives,
            until: Instant::now() + left,
            untold,
        }
    }
}
