//! A server that is killed with changes in its journal.

use super::*;

/// Many attempts at once, so that they make large batches.
async fn acquire_many(failing: &Failing, prefix: &str, count: usize) -> Vec<Live> {
    let tasks: Vec<_> = (0..count)
        .map(|number| {
            let store = Arc::clone(&failing.store);
            let attempt = Attempt {
                changes: (0..20)
                    .map(|of_set| acquire(&format!("{prefix}/{number}/{of_set}"), "a", 60))
                    .collect(),
                not_after: Instant::now() + PATIENCE,
            };
            tokio::spawn(async move { store.apply(attempt).await })
        })
        .collect();
    let mut made = Vec::new();
    for task in tasks {
        match task.await.unwrap().unwrap() {
            Outcome::Applied(locks) => made.extend(locks.into_iter().flatten()),
            Outcome::Stale(current) => panic!("{current:?}"),
        }
    }
    made
}

fn rows(path: &std::path::Path, table: &str) -> i64 {
    rusqlite::Connection::open(path)
        .unwrap()
        .query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0))
        .unwrap()
}

/// What was answered is in a copy of the files that is taken while the journal holds it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_only_the_journal_has_is_there_after_a_kill() {
    let failing = Failing::start();
    let renewed = failing.must(acquire("renewed", "a", 60)).await.unwrap();
    let gone = failing.must(acquire("gone", "a", 60)).await.unwrap();
    let made = acquire_many(&failing, "r", 10).await;
    // The fold is held up at its commit, so the journal stays as it is.
    let (at_the_gate, open) = failing.faults.hold_next_commit();
    let set = Attempt {
        changes: (0..20)
            .map(|number| acquire(&format!("held/{number}"), "a", 60))
            .chain([renew(&renewed, 600), release(&gone)])
            .collect(),
        not_after: Instant::now() + PATIENCE,
    };
    let store = Arc::clone(&failing.store);
    let last = tokio::spawn(async move { store.apply(set).await });
    let reached = |gate: std::sync::mpsc::Receiver<()>| tokio::task::spawn_blocking(move || gate.recv());
    reached(at_the_gate).await.unwrap().unwrap();
    let (fold_at_the_gate, open_fold) = failing.faults.hold_next_commit();
    open.send(()).unwrap();
    let Outcome::Applied(locks) = last.await.unwrap().unwrap() else {
        panic!("all was as expected")
    };
    reached(fold_at_the_gate).await.unwrap().unwrap();

    let copy = TempDir::new().unwrap();
    let path = copy.path().join("x.db");
    std::fs::copy(&failing.path, &path).unwrap();
    let log = failing.path.with_file_name("ferrolho.db-wal");
    std::fs::copy(log, copy.path().join("x.db-wal")).unwrap();
    assert!(rows(&path, "ferrolho_journal") > 0);
    open_fold.send(()).unwrap();

    let copied = SqliteStore::open(&path).unwrap();
    for live in made.iter().chain(locks.iter().flatten()) {
        let found = copied.find(&live.lock.resource).await.unwrap().unwrap();
        assert_eq!((&found.lock, &found.mark), (&live.lock, &live.mark));
    }
    assert_eq!(copied.find(&gone.lock.resource).await.unwrap(), None);
    let top = locks
        .iter()
        .flatten()
        .map(|live| live.lock.fencing_token)
        .max()
        .unwrap();
    let attempt = Attempt {
        changes: vec![acquire("gone", "b", 60)],
        not_after: Instant::now() + PATIENCE,
    };
    let Outcome::Applied(next) = copied.apply(attempt).await.unwrap() else {
        panic!("it is free")
    };
    assert!(next[0].as_ref().unwrap().lock.fencing_token > top);
    copied.close().await;
    assert_eq!(rows(&path, "ferrolho_journal"), 0);
    assert_eq!(rows(&path, "distributed_locks"), 200 + 20 + 2);
}

/// When the load pauses the table is brought up to date, though nobody asks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_pause_the_table_shows_everything() {
    let failing = Failing::start();
    acquire_many(&failing, "r", 100).await;
    let give_up = Instant::now() + PATIENCE;
    while rows(&failing.path, "ferrolho_journal") > 0 {
        assert!(Instant::now() < give_up, "it is not folded");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(rows(&failing.path, "distributed_locks"), 2000);
}
