use ferrolho_core::{Cause, Change, EventKind, Expected, Grant, Holder, Mark, Owner, Ttl, Write};

use super::*;
use crate::FeedItem;
use crate::clock::{SteppedTime, TokioTime};

fn start() -> Timestamp {
    Timestamp::from_micros(1_800_000_000_000_000)
}

fn acquire(resource: &str, ttl: i128) -> Attempt {
    Attempt {
        changes: vec![Change {
            resource: Resource::new(resource).unwrap(),
            expected: Expected::Free,
            write: Write::Grant(Grant {
                holder: Holder {
                    owner: Owner::new("a").unwrap(),
                    principal: None,
                },
                ttl: Ttl::new(ttl, Ttl::MAX).unwrap(),
                metadata: None,
                mark: Mark::Random(7),
            }),
            cause: Cause::Acquire,
        }],
        not_after: Instant::now() + Duration::from_mins(1),
    }
}

async fn kinds(feed: &mut Feed, wanted: usize) -> Vec<(EventKind, String)> {
    let mut kinds = Vec::new();
    while kinds.len() < wanted {
        match feed.next().await {
            Some(FeedItem::Events(events)) => kinds.extend(
                events
                    .iter()
                    .map(|event| (event.kind, event.resource.to_string())),
            ),
            other => panic!("{other:?}"),
        }
    }
    kinds
}

#[tokio::test(start_paused = true)]
async fn under_paused_time_a_lock_ends_within_a_timer_tick() {
    let store = MemoryStore::new(Clock::new(Arc::new(TokioTime::starting_at(start()))));
    let mut feed = store.changes();
    store.apply(acquire("long", 10)).await.unwrap();
    store.apply(acquire("short", 1)).await.unwrap();
    assert_eq!(kinds(&mut feed, 3).await[2], (EventKind::Expired, "short".into()));
    let late = store
        .inner
        .clock
        .now()
        .since(start().plus(Duration::from_secs(1)));
    assert!(late <= Duration::from_millis(2), "{late:?}");
    assert_eq!(kinds(&mut feed, 1).await, [(EventKind::Expired, "long".into())]);
}

#[tokio::test]
async fn a_hand_stepped_clock_wakes_the_reaper() {
    let time = SteppedTime::starting_at(start());
    let store = MemoryStore::new(Clock::new(time.clone()));
    let mut feed = store.changes();
    store.apply(acquire("r", 3600)).await.unwrap();
    time.advance(Duration::from_hours(1));
    assert_eq!(kinds(&mut feed, 2).await[1].0, EventKind::Expired);
    assert_eq!(store.check().await.unwrap().live_locks, Some(0));
}

#[tokio::test]
async fn tokens_start_at_the_time_and_stay_far_below_the_last() {
    for (wall, first) in [
        (start(), 1_800_000_000_000_001),
        (
            Timestamp::from_micros(9_000_000_000_000_000),
            FencingToken::MAX.get() / 2 + 1,
        ),
    ] {
        let store = MemoryStore::new(Clock::new(SteppedTime::starting_at(wall)));
        let Outcome::Applied(locks) = store.apply(acquire("r", 1)).await.unwrap() else {
            panic!("the name is fresh")
        };
        assert_eq!(locks[0].as_ref().unwrap().lock.fencing_token.get(), first);
    }
}

#[tokio::test]
async fn a_stepped_wall_clock_is_reported() {
    let time = SteppedTime::starting_at(start());
    let store = MemoryStore::new(Clock::new(time.clone()));
    assert_eq!(store.check().await.unwrap().warnings, Vec::<String>::new());
    time.step_wall_micros(3_600_000_000);
    let health = store.check().await.unwrap();
    assert_eq!(health.clock_ahead_micros, Some(-3_600_000_000));
    assert_eq!(health.warnings.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_reaper_ends_with_its_store() {
    let store = MemoryStore::new(Clock::host());
    let inner = Arc::downgrade(&store.inner);
    let feed = store.changes();
    drop(store);
    tokio::task::yield_now().await;
    tokio::task::yield_now().await;
    assert!(inner.upgrade().is_none());
    drop(feed);
}

#[tokio::test]
async fn a_watcher_that_lags_too_far_is_told_of_a_gap_and_then_goes_on() {
    let store = MemoryStore::new(Clock::host());
    let mut feed = store.changes();
    for number in 0..5000 {
        store.apply(acquire(&format!("r{number}"), 60)).await.unwrap();
    }
    assert!(matches!(feed.next().await, Some(FeedItem::Gap)));
    let rest = kinds(&mut feed, 1).await;
    assert_eq!(rest[0].0, EventKind::Acquired);
    let mut last = rest[0].1.clone();
    while last != "r4999" {
        last = kinds(&mut feed, 1).await.remove(0).1;
    }
}
