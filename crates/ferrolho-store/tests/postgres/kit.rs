//! Short words for what the tests do, besides those of the suite.

use std::sync::Arc;

use ferrolho_core::EventKind;
use ferrolho_store::postgres::{PostgresConfig, PostgresStore};
use ferrolho_store::{Feed, FeedItem, Store};
use ferrolho_testkit::Postgres;
use tokio::time::timeout;

pub(crate) use ferrolho_store::conformance::bounded::{
    AGAIN, PATIENCE, attempt, look, until_done, until_it_answers,
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

/// What the store says when it does not open on this database: one line without secrets.
pub(crate) async fn refusal(url: &str) -> String {
    let refused = PostgresStore::open(&config(url)).await.err().unwrap().to_string();
    assert!(
        !refused.contains('\n') && !refused.contains("sEcReT"),
        "{refused}"
    );
    refused
}

fn is_told(item: &FeedItem, kind: EventKind, name: &str) -> bool {
    let FeedItem::Events(events) = item else {
        return false;
    };
    events
        .iter()
        .any(|event| event.kind == kind && event.resource.as_str() == name)
}

/// Waits until the feed brings what is wanted, whatever else it brings before.
async fn brought(feed: &mut Feed, is_wanted: impl Fn(&FeedItem) -> bool) {
    let found = async {
        while let Some(item) = feed.next().await {
            if is_wanted(&item) {
                return;
            }
        }
        panic!("the feed has ended");
    };
    timeout(PATIENCE, found).await.unwrap();
}

/// Waits for an event of this kind on this resource.
pub(crate) async fn told(feed: &mut Feed, kind: EventKind, name: &str) {
    brought(feed, |item| is_told(item, kind, name)).await;
}

/// Waits for a gap.
pub(crate) async fn gap(feed: &mut Feed) {
    brought(feed, |item| matches!(item, FeedItem::Gap)).await;
}

/// Waits for an event, or a gap in which it may have been: the listener may have been back in time, or not.
pub(crate) async fn told_or_missed(feed: &mut Feed, kind: EventKind, name: &str) {
    brought(feed, |item| {
        matches!(item, FeedItem::Gap) || is_told(item, kind, name)
    })
    .await;
}
