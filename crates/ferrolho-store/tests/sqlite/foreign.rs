//! Other programs that work on the file while the server runs.

use std::path::Path;
use std::time::{Duration, Instant};

use ferrolho_core::EventKind;
use ferrolho_store::conformance::kit::{
    PATIENCE, acquire, apply, attempt, events_until, find, must, must_remove, release,
};
use ferrolho_store::{FeedItem, ListQuery, StoreError};
use rusqlite::Connection;
use tempfile::TempDir;
use tokio::time::timeout;

use crate::open;

/// An operator at the file.
fn operator(path: &Path) -> Connection {
    let connection = Connection::open(path).unwrap();
    connection.busy_timeout(Duration::from_secs(5)).unwrap();
    connection
}

fn insert(connection: &Connection, name: &str, expires_at: &str) {
    connection
        .execute(
            "INSERT INTO distributed_locks (resource, owner, expires_at, acquired_at)
             VALUES (?1, 'operator', ?2, '2001-01-01 00:00:00')",
            [name, expires_at],
        )
        .unwrap();
}

#[tokio::test]
async fn what_another_program_writes_counts_at_the_next_request() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("x.db");
    let store = open(&path);
    let operator = operator(&path);
    for round in 0..30 {
        let name = format!("r{round}");
        insert(&operator, &name, "2099-01-01 00:00:00");
        match round % 3 {
            0 => assert_eq!(find(&store, &name).await.unwrap().lock.owner.as_str(), "operator"),
            1 => {
                let current = apply(&store, acquire(&name, "a", 60)).await.unwrap_err();
                assert_eq!(current.unwrap().lock.owner.as_str(), "operator");
            }
            _ => {
                let query = ListQuery {
                    limit: 100,
                    ..ListQuery::default()
                };
                let page = store.list(&query).await.unwrap();
                assert!(page.locks.iter().any(|live| live.lock.resource.as_str() == name));
            }
        }
        operator
            .execute("DELETE FROM distributed_locks WHERE resource = ?1", [&name])
            .unwrap();
        let live = must(&store, acquire(&name, "a", 60)).await;
        must_remove(&store, release(&live)).await;
    }
}

#[tokio::test]
async fn an_expired_row_of_another_program_is_claimed_with_a_larger_token() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("x.db");
    let store = open(&path);
    let operator = operator(&path);
    for round in 0..20 {
        let name = format!("r{round}");
        insert(&operator, &name, "2001-01-01 00:00:00");
        let id: u64 = operator.last_insert_rowid().try_into().unwrap();
        let live = must(&store, acquire(&name, "b", 60)).await;
        assert!(live.lock.fencing_token.get() > id);
        let (rows, owner): (i64, String) = operator
            .query_row(
                "SELECT count(*), max(owner) FROM distributed_locks WHERE resource = ?1",
                [&name],
                |row| Ok((row.get(0)?, row.get(1)?)),
            )
            .unwrap();
        assert_eq!((rows, owner.as_str()), (1, "b"));
    }
}

#[tokio::test]
async fn a_change_by_another_program_is_noticed_though_nobody_asks() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("x.db");
    let store = open(&path);
    let mut feed = store.changes();
    insert(&operator(&path), "r", "2001-01-01 00:00:00");
    let first = timeout(PATIENCE, feed.next()).await.unwrap();
    assert!(matches!(first, Some(FeedItem::Gap)), "{first:?}");
    let seen = events_until(&mut feed, EventKind::Expired, "r").await;
    assert_eq!(seen[0].lock.owner.as_str(), "operator");
    let left: i64 = operator(&path)
        .query_row("SELECT count(*) FROM distributed_locks", [], |row| row.get(0))
        .unwrap();
    assert_eq!(left, 0);
}

#[tokio::test]
async fn looking_does_not_wait_for_another_program_that_is_writing() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("x.db");
    let store = open(&path);
    let live = must(&store, acquire("r", "a", 60)).await;
    let operator = operator(&path);
    operator.execute_batch("BEGIN IMMEDIATE").unwrap();
    insert(&operator, "s", "2099-01-01 00:00:00");
    let refused = store.apply(attempt(vec![acquire("t", "a", 60)])).await;
    assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    assert_eq!(find(&store, "r").await.unwrap().lock, live.lock);
    assert_eq!(find(&store, "s").await, None, "it is not committed");
    assert!(apply(&store, acquire("r", "b", 60)).await.is_err());
    operator.execute_batch("COMMIT; BEGIN IMMEDIATE").unwrap();
    assert!(
        find(&store, "s").await.is_some(),
        "what it has committed is seen while it writes on"
    );
    operator.execute_batch("COMMIT").unwrap();
    assert!(find(&store, "s").await.is_some());
    must(&store, acquire("t", "a", 60)).await;
}

#[tokio::test]
async fn a_program_that_takes_turns_with_the_server_loses_nothing_and_nothing_is_granted_twice() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("x.db");
    let store = open(&path);
    let writing = std::thread::spawn(move || {
        let operator = operator(&path);
        let mut taken = 0;
        for round in 0..300 {
            let name = format!("r{}", round % 40);
            taken += operator
                .execute(
                    "INSERT INTO distributed_locks (resource, owner, expires_at, acquired_at)
                     VALUES (?1, 'operator', '2099-01-01 00:00:00', '2001-01-01 00:00:00')
                     ON CONFLICT (resource) DO NOTHING",
                    [&name],
                )
                .unwrap();
        }
        taken
    });
    let mut granted = 0;
    let give_up = Instant::now() + PATIENCE;
    for round in 0.. {
        let name = format!("r{}", round % 40);
        if apply(&store, acquire(&name, "server", 60)).await.is_ok() {
            granted += 1;
        }
        if writing.is_finished() && round % 40 == 39 {
            break;
        }
        assert!(Instant::now() < give_up);
    }
    let taken = writing.join().unwrap();
    assert_eq!(taken + granted, 40, "each name has one holder");
    for number in 0..40 {
        assert!(find(&store, &format!("r{number}")).await.is_some());
    }
}
