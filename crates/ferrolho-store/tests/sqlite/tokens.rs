//! Tokens: what may not bring them back.

use std::path::Path;

use ferrolho_core::{FencingToken, Write};
use ferrolho_store::conformance::kit::{acquire, attempt, grant_to, holder, must, must_remove, release};
use ferrolho_store::{Lift, LiftError, Store, StoreError, StoreUrl, lift_tokens};
use rusqlite::Connection;
use tempfile::TempDir;

use crate::open;

async fn draw(store: &std::sync::Arc<dyn Store>, times: usize) -> u64 {
    let mut last = 0;
    for _ in 0..times {
        let live = must(store, acquire("r", "a", 60)).await;
        assert!(live.lock.fencing_token.get() > last);
        last = live.lock.fencing_token.get();
        must_remove(store, release(&live)).await;
    }
    last
}

async fn lift(path: &Path, by: u64) -> Result<u64, LiftError> {
    lift_tokens(&StoreUrl::Sqlite(path.to_owned()), Lift::By(by)).await
}

fn counter(path: &Path) -> u64 {
    Connection::open(path)
        .unwrap()
        .query_row(
            "SELECT seq FROM sqlite_sequence WHERE name = 'distributed_locks'",
            [],
            |row| row.get::<_, i64>(0),
        )
        .unwrap()
        .cast_unsigned()
}

#[tokio::test]
async fn an_older_copy_that_is_put_back_is_noticed_and_repeats_no_token() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("x.db");
    let copy = directory.path().join("copy.db");
    let store = open(&path);
    draw(&store, 5).await;
    store.close().await;
    std::fs::copy(&path, &copy).unwrap();
    let store = open(&path);
    assert_eq!(store.check().await.unwrap().warnings, Vec::<String>::new());
    let seen = draw(&store, 4).await;
    store.close().await;
    std::fs::copy(&copy, &path).unwrap();

    let store = open(&path);
    let health = store.check().await.unwrap();
    assert!(
        health.warnings[0].contains("older than what has run here"),
        "{health:?}"
    );
    assert!(draw(&store, 1).await > seen);
    store.close().await;
    // Once it was lifted the file is no older than what has run here.
    assert_eq!(open(&path).check().await.unwrap().warnings, Vec::<String>::new());
}

#[tokio::test]
async fn a_copy_that_runs_elsewhere_is_lifted_by_hand() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("x.db");
    let store = open(&path);
    let last = draw(&store, 5).await;
    assert!(
        lift(&path, 1000).await.is_err(),
        "not while a server has the file"
    );
    store.close().await;
    let elsewhere = TempDir::new().unwrap();
    let copy = elsewhere.path().join("x.db");
    std::fs::copy(&path, &copy).unwrap();
    assert_eq!(lift(&copy, 1000).await.unwrap(), last + 1000);
    assert_eq!(draw(&open(&copy), 1).await, last + 1001);
    assert_eq!(lift(&copy, u64::MAX).await.ok(), None, "the server has it");
}

#[tokio::test]
async fn tokens_are_lifted_above_one_that_is_known_and_no_file_is_made() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("x.db");
    let url = StoreUrl::Sqlite(path.clone());
    let above = Lift::Above(FencingToken::new(500).unwrap());
    let refused = lift_tokens(&url, above).await;
    assert!(matches!(refused, Err(LiftError::NoFile(_))), "{refused:?}");
    assert!(!path.exists());
    let store = open(&path);
    draw(&store, 5).await;
    store.close().await;
    for _ in 0..2 {
        assert_eq!(lift_tokens(&url, above).await.unwrap(), 500);
    }
    let store = open(&path);
    assert_eq!(draw(&store, 1).await, 501);
    store.close().await;
    assert_eq!(lift_tokens(&url, above).await.unwrap(), 501);
    assert!(matches!(
        lift_tokens(&StoreUrl::Memory, above).await,
        Err(LiftError::Memory)
    ));
}

#[tokio::test]
async fn the_files_own_counter_follows_grants_that_left_no_row() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("x.db");
    let store = open(&path);
    // A grant and its removal in one batch are tried for by many at once.
    let mut top = 0;
    for round in 0..50 {
        let live = must(&store, acquire("r", "a", 60)).await;
        let mut again = release(&live);
        again.write = Write::Grant(grant_to(holder("b"), 60));
        let next = must(&store, again).await;
        let (gone, other) = tokio::join!(
            store.apply(attempt(vec![release(&next)])),
            store.apply(attempt(vec![acquire(&format!("other {round}"), "a", 60)])),
        );
        gone.unwrap();
        other.unwrap();
        top = counter(&path);
        assert!(top >= next.lock.fencing_token.get());
    }
    store.close().await;
    assert_eq!(counter(&path), top);
}

#[tokio::test]
async fn when_the_tokens_are_used_up_nothing_is_granted() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("x.db");
    let store = open(&path);
    let live = must(&store, acquire("r", "a", 60)).await;
    store.close().await;
    let last = FencingToken::MAX.get();
    assert_eq!(lift(&path, u64::MAX).await.unwrap(), last);
    let store = open(&path);
    let refused = store.apply(attempt(vec![acquire("s", "a", 60)])).await;
    let Err(StoreError::Unavailable(cause)) = refused else {
        panic!("{refused:?}")
    };
    assert!(cause.to_string().contains("used up"), "{cause}");
    must_remove(&store, release(&live)).await;
}
