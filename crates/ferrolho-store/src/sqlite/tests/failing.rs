//! Commits that fail.

use ferrolho_core::EventKind;
use rusqlite::types::Value;

use super::*;
use crate::FeedItem;

/// Acquires while a fault is on, and takes it away.
async fn acquire_with(failing: &Failing, fault: Fault) -> (Change, Result<Outcome, StoreError>) {
    let change = acquire("r", "a", 60);
    failing.faults.set(fault);
    let answer = failing.apply(change.clone()).await;
    failing.faults.set(Fault::None);
    (change, answer)
}

#[tokio::test]
async fn a_commit_that_failed_and_is_on_disk_is_unknown_and_then_seen() {
    let failing = Failing::start();
    let mut feed = failing.store.changes();
    let (change, answer) = acquire_with(&failing, Fault::CommitDone).await;
    assert!(matches!(answer, Err(StoreError::Unknown(_))), "{answer:?}");
    let found = failing.find("r").await.unwrap().unwrap();
    let Write::Grant(grant) = change.write else {
        unreachable!()
    };
    assert_eq!(found.mark, grant.mark, "the mark tells that it was done");
    assert!(matches!(feed.next().await, Some(FeedItem::Gap)));

    assert_eq!(failing.must(release(&found)).await, None);
    let next = failing.must(acquire("r", "b", 60)).await.unwrap();
    assert!(next.lock.fencing_token > found.lock.fencing_token);
}

#[tokio::test]
async fn a_commit_that_failed_and_is_not_on_disk_is_unknown_and_then_not_there() {
    let failing = Failing::start();
    let before = failing.must(acquire("kept", "a", 60)).await.unwrap();
    let (_, answer) = acquire_with(&failing, Fault::CommitUndone).await;
    assert!(matches!(answer, Err(StoreError::Unknown(_))), "{answer:?}");
    assert_eq!(failing.find("r").await.unwrap(), None);
    assert_eq!(failing.find("kept").await.unwrap().unwrap().lock, before.lock);
    failing.until_well().await;
    failing.must(acquire("r", "b", 60)).await.unwrap();
}

#[tokio::test]
async fn a_release_that_failed_and_is_on_disk_is_not_undone() {
    let failing = Failing::start();
    let live = failing.must(acquire("r", "a", 60)).await.unwrap();
    failing.faults.set(Fault::CommitDone);
    let answer = failing.apply(release(&live)).await;
    failing.faults.set(Fault::None);
    assert!(matches!(answer, Err(StoreError::Unknown(_))), "{answer:?}");
    assert_eq!(failing.find("r").await.unwrap(), None);
    let store = SqliteStore::open(&failing.path);
    assert!(store.is_err(), "still locked by this server");
    failing.store.close().await;
    let reopened = SqliteStore::open(&failing.path).unwrap();
    assert_eq!(reopened.find(&live.lock.resource).await.unwrap(), None);
}

#[tokio::test]
async fn writing_that_failed_before_the_commit_did_nothing() {
    let failing = Failing::start();
    let (_, answer) = acquire_with(&failing, Fault::Write).await;
    assert!(matches!(answer, Err(StoreError::Unavailable(_))), "{answer:?}");
    assert_eq!(failing.find("r").await.unwrap(), None);
    failing.must(acquire("r", "b", 60)).await.unwrap();
}

#[tokio::test]
async fn every_attempt_of_a_failed_batch_is_told_and_none_has_an_event() {
    let failing = Failing::start();
    let mut feed = failing.store.changes();
    let (at_the_gate, open) = failing.faults.hold_next_commit();
    let attempt = |name: String| {
        let store = Arc::clone(&failing.store);
        let attempt = Attempt {
            changes: vec![acquire(&name, "a", 60)],
            not_after: Instant::now() + PATIENCE,
        };
        tokio::spawn(async move { store.apply(attempt).await })
    };
    let first = attempt("first".to_owned());
    tokio::task::spawn_blocking(move || at_the_gate.recv())
        .await
        .unwrap()
        .unwrap();
    // While the first commit is held up, the others gather for the next.
    let others: Vec<_> = (0..20).map(|number| attempt(format!("r{number}"))).collect();
    open.send(()).unwrap();
    assert!(matches!(first.await.unwrap(), Ok(Outcome::Applied(_))));
    for other in others {
        other.await.unwrap().unwrap();
    }
    failing.faults.set(Fault::CommitUndone);
    let failed: Vec<_> = (0..20).map(|number| attempt(format!("s{number}"))).collect();
    for task in failed {
        let answer = task.await.unwrap();
        assert!(
            matches!(answer, Err(StoreError::Unknown(_) | StoreError::Unavailable(_))),
            "{answer:?}"
        );
    }
    failing.faults.set(Fault::None);
    failing.must(acquire("last", "a", 60)).await;
    loop {
        match feed.next().await {
            Some(FeedItem::Gap) => {}
            Some(FeedItem::Events(events)) => {
                assert!(
                    events
                        .iter()
                        .all(|event| !event.resource.as_str().starts_with('s'))
                );
                assert!(events.iter().all(|event| event.kind == EventKind::Acquired));
                if events.iter().any(|event| event.resource.as_str() == "last") {
                    return;
                }
            }
            None => panic!("the feed has ended"),
        }
    }
}

#[tokio::test]
async fn a_full_disk_refuses_and_heals_by_itself() {
    for fault in [Fault::Full, Fault::FullAtCommit] {
        let failing = Failing::start();
        let live = failing.must(acquire("kept", "a", 60)).await.unwrap();
        failing.faults.set(fault);
        for change in [acquire("r", "a", 60), renew(&live, 90), release(&live)] {
            let answer = failing.apply(change).await;
            assert!(matches!(answer, Err(StoreError::Unavailable(_))), "{answer:?}");
        }
        assert_eq!(failing.find("r").await.unwrap(), None);
        assert_eq!(failing.find("kept").await.unwrap().unwrap().lock, live.lock);
        assert!(failing.store.check().await.is_err());
        failing.faults.set(Fault::None);
        // Nobody writes meanwhile: it tries by itself.
        failing.until_well().await;
        assert_eq!(failing.must(release(&live)).await, None);
    }
}

#[tokio::test]
async fn a_lock_ends_though_the_disk_is_full_and_its_end_is_told_once_it_is_not() {
    let failing = Failing::start();
    failing.must(acquire("r", "a", 1)).await.unwrap();
    let mut feed = failing.store.changes();
    failing.faults.set(Fault::Full);
    let give_up = Instant::now() + PATIENCE;
    while failing.find("r").await.unwrap().is_some() {
        assert!(Instant::now() < give_up);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    failing.faults.set(Fault::None);
    let item = timeout(PATIENCE, feed.next()).await.unwrap();
    let Some(FeedItem::Events(events)) = item else {
        panic!("{item:?}")
    };
    assert_eq!(events[0].kind, EventKind::Expired);
}

/// SQLite's own full disk: the file may not grow.
#[tokio::test]
async fn a_file_that_may_not_grow_refuses_what_does_not_fit_and_keeps_the_rest() {
    let failing = Failing::with(Arc::new(HostTime), |disk| {
        let connection = disk.connection();
        let pages: i64 = connection
            .query_row("PRAGMA page_count", [], |row| row.get(0))
            .unwrap();
        connection
            .query_row(&format!("PRAGMA max_page_count = {}", pages + 2), [], |_| Ok(()))
            .unwrap();
    });
    let mut made = Vec::new();
    let refused = loop {
        match failing.apply(acquire(&format!("r{}", made.len()), "a", 60)).await {
            Ok(Outcome::Applied(mut live)) => made.push(live.remove(0).unwrap()),
            other => break other,
        }
    };
    assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    assert!(!made.is_empty());
    for live in &made {
        let found = failing.store.find(&live.lock.resource).await.unwrap().unwrap();
        assert_eq!(found.lock, live.lock);
    }
    // Removing needs no room, and makes some.
    for live in &made {
        assert_eq!(failing.must(release(live)).await, None);
    }
    failing.until_well().await;
    failing.must(acquire("again", "a", 60)).await.unwrap();
}

#[tokio::test]
async fn while_the_file_cannot_be_read_nothing_is_answered_and_it_heals_by_itself() {
    let failing = Failing::start();
    let live = failing.must(acquire("kept", "a", 60)).await.unwrap();
    failing.faults.set(Fault::Gone);
    let answer = failing.apply(acquire("r", "a", 60)).await;
    assert!(matches!(answer, Err(StoreError::Unknown(_))), "{answer:?}");
    for name in ["r", "kept", "none"] {
        let found = failing.find(name).await;
        assert!(matches!(found, Err(StoreError::Unavailable(_))), "{found:?}");
    }
    let answer = failing.apply(release(&live)).await;
    assert!(matches!(answer, Err(StoreError::Unavailable(_))), "{answer:?}");
    assert!(failing.store.check().await.is_err());
    failing.faults.set(Fault::None);
    failing.until_well().await;
    assert_eq!(failing.find("kept").await.unwrap().unwrap().lock, live.lock);
    assert_eq!(failing.find("r").await.unwrap(), None);
    assert_eq!(failing.must(release(&live)).await, None);
}

#[tokio::test]
async fn a_file_that_was_moved_away_is_not_written_to() {
    let failing = Failing::start();
    let live = failing.must(acquire("kept", "a", 60)).await.unwrap();
    let elsewhere = failing.path.with_extension("moved");
    std::fs::rename(&failing.path, &elsewhere).unwrap();
    let answer = failing.apply(acquire("r", "a", 60)).await;
    assert!(matches!(answer, Err(StoreError::Unavailable(_))), "{answer:?}");
    assert!(failing.store.check().await.is_err());
    std::fs::rename(&elsewhere, &failing.path).unwrap();
    failing.until_well().await;
    assert_eq!(failing.must(release(&live)).await, None);
}

/// A reply leaves only after its commit is on disk, also after the connection was replaced.
#[tokio::test]
async fn commits_are_synced_in_full() {
    fn assert_synced(disk: &SqliteDisk) {
        let pragma = |name: &str| -> String {
            let connection = disk.connection();
            let value = connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, Value>(0));
            match value.unwrap() {
                Value::Integer(number) => number.to_string(),
                Value::Text(text) => text,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(pragma("journal_mode"), "wal");
        assert_eq!(pragma("synchronous"), "2");
    }
    let _failing = Failing::with(Arc::new(HostTime), |disk| {
        assert_synced(disk);
        disk.reopen().unwrap();
        assert_synced(disk);
    });
}
