//! A store that counts what it is asked, how long its answers take and how it fails.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ferrolho_core::{Live, Resource};
use ferrolho_store::meter::{Histogram, SPAN_BOUNDS_MICROS, Tally};
use ferrolho_store::{
    Attempt, CommitMeter, EngineTraits, Feed, Health, ListQuery, Outcome, Page, Store, StoreError,
};
use tokio::time::Instant;

/// What a store is asked, by number.
pub(crate) const OPERATIONS: [&str; 4] = ["find", "apply", "list", "check"];

/// The number of an operation in [`OPERATIONS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Find,
    Apply,
    List,
    Check,
}

/// How a store fails, by number.
pub(crate) const FAILURES: [&str; 3] = ["unavailable", "unknown", "too-late"];

/// What is counted of one operation.
#[derive(Debug)]
pub(crate) struct OperationMeter {
    pub(crate) micros: Histogram,
    pub(crate) failures: Tally<{ FAILURES.len() }>,
}

/// What is counted of a store.
#[derive(Debug)]
pub(crate) struct StoreMeter([OperationMeter; OPERATIONS.len()]);

impl Default for StoreMeter {
    fn default() -> Self {
        Self(std::array::from_fn(|_| OperationMeter {
            micros: Histogram::new(SPAN_BOUNDS_MICROS),
            failures: Tally::default(),
        }))
    }
}

impl StoreMeter {
    /// Each operation's name with what is counted of it.
    pub(crate) fn operations(&self) -> impl Iterator<Item = (&'static str, &OperationMeter)> {
        OPERATIONS.into_iter().zip(&self.0)
    }

    fn note<T>(&self, operation: Operation, took: Duration, answer: &Result<T, StoreError>) {
        let meter = &self.0[operation as usize];
        meter.micros.observe_micros(took);
        match answer {
            Ok(_) => {}
            Err(StoreError::Unavailable(_)) => meter.failures.add(0),
            Err(StoreError::Unknown(_)) => meter.failures.add(1),
            Err(StoreError::TooLate) => meter.failures.add(2),
        }
    }
}

/// A store with its meter.
pub(super) struct Metered {
    store: Arc<dyn Store>,
    meter: Arc<StoreMeter>,
}

impl Metered {
    pub(super) fn new(store: Arc<dyn Store>, meter: Arc<StoreMeter>) -> Self {
        Self { store, meter }
    }

    async fn time<T>(
        &self,
        operation: Operation,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let begun = Instant::now();
        let answer = work.await;
        self.meter.note(operation, begun.elapsed(), &answer);
        answer
    }
}

#[async_trait]
impl Store for Metered {
    async fn find(&self, resource: &Resource) -> Result<Option<Live>, StoreError> {
        self.time(Operation::Find, self.store.find(resource)).await
    }

    async fn apply(&self, attempt: Attempt) -> Result<Outcome, StoreError> {
        self.time(Operation::Apply, self.store.apply(attempt)).await
    }

    async fn list(&self, query: &ListQuery) -> Result<Page, StoreError> {
        self.time(Operation::List, self.store.list(query)).await
    }

    fn changes(&self) -> Feed {
        self.store.changes()
    }

    async fn check(&self) -> Result<Health, StoreError> {
        self.time(Operation::Check, self.store.check()).await
    }

    fn traits(&self) -> EngineTraits {
        self.store.traits()
    }

    fn commits(&self) -> Option<Arc<CommitMeter>> {
        self.store.commits()
    }

    async fn close(&self) {
        self.store.close().await;
    }
}
