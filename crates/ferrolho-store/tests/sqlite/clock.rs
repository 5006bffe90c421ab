//! Steps of the wall clock, with and without a restart.

use std::sync::Arc;
use std::time::Duration;

use ferrolho_core::Timestamp;
use ferrolho_store::clock::SteppedTime;
use ferrolho_store::conformance::kit::{acquire, apply, find, must};
use ferrolho_store::{SqliteStore, Store};
use tempfile::TempDir;

const HOUR_MICROS: i64 = 3_600_000_000;

struct Stepped {
    time: Arc<SteppedTime>,
    directory: TempDir,
}

impl Stepped {
    fn new() -> Self {
        Self {
            time: SteppedTime::starting_at(Timestamp::from_micros(1_800_000_000_000_000)),
            directory: TempDir::new().unwrap(),
        }
    }

    fn open(&self) -> Arc<dyn Store> {
        let path = self.directory.path().join("x.db");
        Arc::new(SqliteStore::open_with(&path, self.time.clone()).unwrap())
    }
}

#[tokio::test]
async fn a_step_neither_frees_nor_prolongs_a_lock_and_is_shown() {
    for step in [HOUR_MICROS, -HOUR_MICROS] {
        let stepped = Stepped::new();
        let store = stepped.open();
        assert_eq!(store.check().await.unwrap().warnings, Vec::<String>::new());
        let live = must(&store, acquire("r", "a", 30)).await;
        stepped.time.step_wall_micros(step);
        assert_eq!(find(&store, "r").await.unwrap().lock, live.lock);
        assert!(apply(&store, acquire("r", "b", 30)).await.is_err());
        let health = store.check().await.unwrap();
        assert_eq!(health.clock_ahead_micros, Some(-step));
        assert_eq!(health.warnings.len(), 1, "{health:?}");
        stepped.time.advance(Duration::from_millis(29_999));
        assert!(find(&store, "r").await.is_some());
        stepped.time.advance(Duration::from_millis(1));
        assert_eq!(find(&store, "r").await, None);
    }
}

#[tokio::test]
async fn a_step_before_a_restart_of_the_server_changes_nothing() {
    for step in [HOUR_MICROS, -HOUR_MICROS] {
        let stepped = Stepped::new();
        let store = stepped.open();
        let live = must(&store, acquire("r", "a", 30)).await;
        store.close().await;
        stepped.time.step_wall_micros(step);
        stepped.time.advance(Duration::from_secs(10));
        let store = stepped.open();
        assert_eq!(find(&store, "r").await.unwrap().lock, live.lock);
        assert_eq!(find(&store, "r").await.unwrap().left, Duration::from_secs(20));
        stepped.time.advance(Duration::from_secs(20));
        assert_eq!(find(&store, "r").await, None);
    }
}

#[tokio::test]
async fn after_a_restart_of_the_machine_the_wall_clock_counts_but_never_goes_back() {
    let stepped = Stepped::new();
    let store = stepped.open();
    must(&store, acquire("r", "a", 30)).await;
    stepped.time.advance(Duration::from_secs(20));
    let seen = must(&store, acquire("last", "a", 30)).await;
    store.close().await;
    stepped.time.reboot();
    stepped.time.step_wall_micros(-HOUR_MICROS);
    let store = stepped.open();
    let left = find(&store, "r").await.unwrap().left;
    assert_eq!(left, Duration::from_secs(10), "its time goes on where it stood");
    let next = must(&store, acquire("next", "a", 30)).await;
    assert!(next.lock.acquired_at >= seen.lock.acquired_at);
    store.close().await;

    stepped.time.reboot();
    stepped.time.step_wall_micros(2 * HOUR_MICROS);
    let store = stepped.open();
    assert_eq!(
        find(&store, "r").await,
        None,
        "it ended while the machine was off"
    );
}
