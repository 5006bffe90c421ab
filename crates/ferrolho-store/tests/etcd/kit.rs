//! Short words for what the tests do, besides those of the suite.

use std::sync::Arc;
use std::time::Duration;

use ferrolho_core::{Change, Event, EventKind, Live, Write};
use ferrolho_store::etcd::{EtcdConfig, EtcdStore};
use ferrolho_store::{Attempt, Feed, FeedItem, Outcome, Store, StoreError};
use ferrolho_testkit::Etcd;
use tokio::time::{Instant, sleep, timeout};

pub(crate) use ferrolho_store::conformance::kit::{
    acquire, find, grant_to, holder, must, must_remove, release, renew, resource,
};

/// How long a test waits for what must happen. Only a broken engine makes it wait so long.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// No answer takes longer than this, whatever has failed: three seconds for each of the steps that an act may
/// need, and some for a slow machine.
pub(crate) const BOUND: Duration = Duration::from_secs(15);

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

/// Tries a change, which has to be answered in bounded time: `Ok(Ok)` what it made, `Ok(Err)` what was in its
/// way.
pub(crate) async fn attempt(
    store: &Arc<dyn Store>,
    change: Change,
) -> Result<Result<Option<Live>, Option<Live>>, StoreError> {
    let attempt = Attempt {
        changes: vec![change],
        not_after: Instant::now() + PATIENCE,
    };
    let outcome = timeout(BOUND, store.apply(attempt))
        .await
        .expect("an answer in bounded time");
    Ok(match outcome? {
        Outcome::Applied(mut locks) => Ok(locks.remove(0)),
        Outcome::Stale(mut locks) => Err(locks.remove(0)),
    })
}

/// A look, which has to be answered in bounded time.
pub(crate) async fn look(store: &Arc<dyn Store>, name: &str) -> Result<Option<Live>, StoreError> {
    timeout(BOUND, store.find(&resource(name)))
        .await
        .expect("an answer in bounded time")
}

/// Waits until the store answers a look.
pub(crate) async fn until_it_answers(store: &Arc<dyn Store>) {
    let give_up = Instant::now() + PATIENCE;
    while let Err(error) = look(store, "anything").await {
        assert!(Instant::now() < give_up, "it does not answer again: {error}");
        sleep(Duration::from_millis(20)).await;
    }
}

/// Tries until the store carries out a change that makes a lock; an attempt of unknown outcome counts when its
/// mark is found.
pub(crate) async fn until_done(store: &Arc<dyn Store>, change: &Change) -> Live {
    let Write::Grant(grant) = &change.write else {
        panic!("only grants have a mark")
    };
    let give_up = Instant::now() + PATIENCE;
    loop {
        match attempt(store, change.clone()).await {
            Ok(Ok(made)) => return made.unwrap(),
            Ok(Err(Some(live))) if live.mark == grant.mark => return live,
            answer => assert!(Instant::now() < give_up, "not done: {answer:?}"),
        }
        sleep(Duration::from_millis(20)).await;
    }
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
