//! Short words for what the tests do, besides those of the suite.

use std::sync::Arc;
use std::time::Duration;

use ferrolho_core::{Change, Live};
use ferrolho_store::postgres::{PostgresConfig, PostgresStore};
use ferrolho_store::{Attempt, Outcome, Store, StoreError};
use ferrolho_testkit::Postgres;
use tokio::time::{Instant, sleep, timeout};

pub(crate) use ferrolho_store::conformance::kit::{
    acquire, find, must, must_remove, release, renew, resource,
};

/// How long a test waits for what must happen. Only a broken engine makes it wait so long.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// No answer takes longer than this, whatever has failed: three seconds for each of the steps that an act may
/// need, and some for a slow machine.
pub(crate) const BOUND: Duration = Duration::from_secs(15);

/// A server with an empty database `locks`.
pub(crate) fn server() -> Option<Postgres> {
    let server = Postgres::start()?;
    server.create_database("locks");
    Some(server)
}

pub(crate) fn config(url: &str) -> PostgresConfig {
    url.parse().unwrap()
}

/// A ferrolho server's handle on this database.
pub(crate) async fn open(url: &str) -> Arc<dyn Store> {
    Arc::new(PostgresStore::open(&config(url)).await.unwrap())
}

/// Tries a change, which has to be answered in bounded time: `Ok(Ok)` what it made, `Ok(Err)` what was in its way.
pub(crate) async fn attempt(
    store: &Arc<dyn Store>,
    change: Change,
) -> Result<Result<Option<Live>, Option<Live>>, StoreError> {
    let attempt = Attempt {
        changes: vec![change],
        not_after: Instant::now() + PATIENCE,
    };
    Ok(match timeout(BOUND, store.apply(attempt)).await.unwrap()? {
        Outcome::Applied(mut locks) => Ok(locks.remove(0)),
        Outcome::Stale(mut locks) => Err(locks.remove(0)),
    })
}

/// A look, which has to be answered in bounded time.
pub(crate) async fn look(store: &Arc<dyn Store>, name: &str) -> Result<Option<Live>, StoreError> {
    timeout(BOUND, store.find(&resource(name))).await.unwrap()
}

/// Tries a change until it is known to be done: by this try, or by one before whose outcome was unknown.
pub(crate) async fn until_done(store: &Arc<dyn Store>, change: &Change) -> Live {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match attempt(store, change.clone()).await {
            Ok(Ok(Some(live)) | Err(Some(live))) => return live,
            Ok(other) => panic!("{other:?}"),
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        sleep(Duration::from_millis(20)).await;
    }
}
