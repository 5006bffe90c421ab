//! The end of a life: by itself, never early, told once.

use std::collections::BTreeMap;
use std::time::Duration;

use ferrolho_core::{EventKind, Live};
use tokio::time::Instant;

use super::Engine;
use super::kit::{acquire, events, events_until, find, must, renew};

/// A lock ends no earlier than asked, its end is reported with the lock as it was, and by then nobody sees it.
/// It is not reported again: what comes next in the feed is the next grant.
pub async fn a_lock_ends_by_itself_never_early_and_is_reported_once(engine: &mut impl Engine) {
    let store = engine.store();
    let mut feed = store.changes();
    let asked = Instant::now();
    let live = must(&store, acquire("r", "a", 1)).await;
    let seen = events_until(&mut feed, EventKind::Expired, "r").await;
    assert!(asked.elapsed() >= Duration::from_secs(1), "it ended early");
    assert_eq!(find(&store, "r").await, None);
    let [acquired, expired] = &seen[..] else {
        panic!("{seen:?}")
    };
    assert_eq!(acquired.kind, EventKind::Acquired);
    assert_eq!(expired.lock, live.lock);
    assert!(expired.at >= live.lock.expires_at, "{expired:?}");

    let next = must(&store, acquire("r", "b", 30)).await;
    let seen = events(&mut feed, 1).await;
    assert_eq!((seen[0].kind, &seen[0].lock), (EventKind::Acquired, &next.lock));
}

/// The end that counts is the last one that was set.
async fn ends_when_renewed_to(engine: &mut impl Engine, first: u32, second: u32) -> Live {
    let store = engine.store();
    let mut feed = store.changes();
    let live = must(&store, acquire("r", "a", first)).await;
    let asked = Instant::now();
    let renewed = must(&store, renew(&live, second)).await;
    let seen = events_until(&mut feed, EventKind::Expired, "r").await;
    assert!(
        asked.elapsed() >= Duration::from_secs(second.into()),
        "it ended early"
    );
    let kinds: Vec<_> = seen.iter().map(|event| event.kind).collect();
    assert_eq!(
        kinds,
        [EventKind::Acquired, EventKind::Renewed, EventKind::Expired]
    );
    assert_eq!(seen[2].lock, renewed.lock);
    assert_eq!(find(&store, "r").await, None);
    renewed
}

/// A lock that was renewed does not end where it would have ended before.
pub async fn a_renewed_lock_outlives_its_first_end(engine: &mut impl Engine) {
    ends_when_renewed_to(engine, 1, 3).await;
}

/// A lock that was renewed to less ends then: the test would not outlast its first end.
pub async fn a_shortened_lock_ends_at_its_new_end(engine: &mut impl Engine) {
    let renewed = ends_when_renewed_to(engine, 86_400, 1).await;
    assert!(renewed.left <= Duration::from_secs(1));
}

/// 200 locks that end together: each is reported once.
pub async fn many_ends_are_reported_once_each(engine: &mut impl Engine) {
    let store = engine.store();
    let mut feed = store.changes();
    for number in 0..200 {
        must(&store, acquire(&format!("r{number:03}"), "a", 1)).await;
    }
    let mut ends: BTreeMap<String, u32> = BTreeMap::new();
    while ends.len() < 200 {
        for event in events(&mut feed, 1).await {
            if event.kind == EventKind::Expired {
                *ends.entry(event.resource.to_string()).or_default() += 1;
            }
        }
    }
    must(&store, acquire("last", "a", 30)).await;
    for event in events_until(&mut feed, EventKind::Acquired, "last").await {
        assert_ne!(event.kind, EventKind::Expired, "reported again: {event:?}");
    }
    assert!(ends.values().all(|times| *times == 1), "{ends:?}");
}
