//! Short words for what the tests do, besides those of the suite.

use std::sync::Arc;

use ferrolho_store::Store;
use ferrolho_store::postgres::{PostgresConfig, PostgresStore};
use ferrolho_testkit::Postgres;

pub(crate) use ferrolho_store::conformance::bounded::{
    PATIENCE, attempt, look, until_done, until_it_answers,
};
pub(crate) use ferrolho_store::conformance::kit::{acquire, find, must, must_remove, release, renew};

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
