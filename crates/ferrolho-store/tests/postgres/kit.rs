//! Short words for what the tests do, besides those of the suite.

use std::sync::Arc;

use ferrolho_core::EventKind;
use ferrolho_store::postgres::{PostgresConfig, PostgresStore};
use ferrolho_store::{Feed, FeedItem, Store};
use ferrolho_testkit::Postgres;
use tokio::time::timeout;

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

/// The next event on this resource of this kind, whatever else is told, gaps too.
pub(crate) async fn told(feed: &mut Feed, kind: EventKind, name: &str) {
    let found = async {
        while let Some(item) = feed.next().await {
            if let FeedItem::Events(events) = item
                && events
                    .iter()
                    .any(|event| event.kind == kind && event.resource.as_str() == name)
            {
                return;
            }
        }
        panic!("the feed has ended");
    };
    timeout(PATIENCE, found).await.unwrap();
}

/// The next gap, whatever else is told.
pub(crate) async fn gap(feed: &mut Feed) {
    let found = async { while !matches!(feed.next().await, Some(FeedItem::Gap)) {} };
    timeout(PATIENCE, found).await.unwrap();
}
