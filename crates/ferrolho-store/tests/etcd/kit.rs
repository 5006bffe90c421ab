//! Short words for what the tests do, besides those of the suite.

use std::sync::Arc;

use ferrolho_core::{Event, EventKind};
use ferrolho_store::etcd::{EtcdConfig, EtcdStore};
use ferrolho_store::{Feed, FeedItem, Store};
use ferrolho_testkit::Etcd;
use tokio::time::timeout;

pub(crate) use ferrolho_store::conformance::bounded::{
    PATIENCE, attempt, look, until_done, until_it_answers,
};
pub(crate) use ferrolho_store::conformance::kit::{
    acquire, find, grant_to, holder, must, must_remove, release, renew, resource,
};

pub(crate) fn config(url: &str) -> EtcdConfig {
    url.parse().unwrap()
}

/// A server's handle on this cluster.
pub(crate) async fn open(etcd: &Etcd) -> Arc<dyn Store> {
    open_url(&etcd.url()).await
}

pub(crate) async fn open_url(url: &str) -> Arc<dyn Store> {
    Arc::new(EtcdStore::open(&config(url)).await.unwrap())
}

/// What comes next in a feed.
pub(crate) async fn next(feed: &mut Feed) -> FeedItem {
    timeout(PATIENCE, feed.next())
        .await
        .expect("something in the feed")
        .unwrap()
}

/// Events up to the first of this kind on this resource. A gap fails the test.
pub(crate) async fn events_until(feed: &mut Feed, kind: EventKind, name: &str) -> Vec<Event> {
    let mut all: Vec<Event> = Vec::new();
    loop {
        match next(feed).await {
            FeedItem::Events(events) => all.extend(events.iter().cloned()),
            FeedItem::Gap => panic!("a gap after {all:?}"),
        }
        if let Some(last) = all
            .iter()
            .position(|event| event.kind == kind && event.resource.as_str() == name)
        {
            all.truncate(last + 1);
            return all;
        }
    }
}
