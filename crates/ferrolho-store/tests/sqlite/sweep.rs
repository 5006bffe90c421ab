//! Many locks that nobody asks for again.

use std::sync::Arc;

use ferrolho_core::EventKind;
use ferrolho_store::conformance::kit::{PATIENCE, acquire, attempt};
use ferrolho_store::{FeedItem, Outcome};
use rusqlite::Connection;
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::{Duration, Instant, timeout};

use crate::open;

const LOCKS: usize = 100_000;

/// 100,000 names with the shortest lifetime, never released: each end is told once, and no row is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_thousand_dead_locks_are_swept() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("x.db");
    let store = open(&path);
    let mut feed = store.changes();
    let counting = tokio::spawn(async move {
        let mut ended = 0;
        while ended < LOCKS {
            match timeout(PATIENCE, feed.next()).await.unwrap() {
                Some(FeedItem::Events(events)) => {
                    ended += events
                        .iter()
                        .filter(|event| event.kind == EventKind::Expired)
                        .count();
                }
                other => panic!("{other:?}"),
            }
        }
        ended
    });
    let mut filling = JoinSet::new();
    for task in 0..50 {
        let store = Arc::clone(&store);
        filling.spawn(async move {
            for number in 0..LOCKS / 50 / 20 {
                let names = (0..20).map(|of_set| format!("{task}/{number}/{of_set}"));
                let set = names.map(|name| acquire(&name, "a", 1)).collect();
                let outcome = store.apply(attempt(set)).await.unwrap();
                assert!(matches!(outcome, Outcome::Applied(_)));
            }
        });
    }
    filling.join_all().await;
    assert_eq!(counting.await.unwrap(), LOCKS);
    assert_eq!(store.check().await.unwrap().live_locks, Some(0));
    let file = Connection::open(&path).unwrap();
    let give_up = Instant::now() + PATIENCE;
    loop {
        let rows: i64 = file
            .query_row("SELECT count(*) FROM distributed_locks", [], |row| row.get(0))
            .unwrap();
        if rows == 0 {
            return;
        }
        assert!(Instant::now() < give_up, "{rows} rows are left");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
