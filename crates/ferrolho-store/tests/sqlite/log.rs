//! The write-ahead log stays small, and shrinks.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ferrolho_core::{Change, Expected, Metadata, Write};
use ferrolho_store::conformance::kit::{PATIENCE, acquire, attempt, find, grant_to, holder, owned_by};
use ferrolho_store::{Outcome, Store};
use rusqlite::Connection;
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::{Duration, Instant, sleep};

use crate::open;

const MB: u64 = 1024 * 1024;

fn log_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    name.into()
}

fn size(path: &Path) -> u64 {
    path.metadata().map_or(0, |metadata| metadata.len())
}

/// Writes at least so many bytes, from many tasks.
async fn write(store: &Arc<dyn Store>, bytes: u64) {
    let metadata = Metadata::parse(&format!("{{\"k\":\"{}\"}}", "x".repeat(4000))).unwrap();
    let mut writers = JoinSet::new();
    for number in 0..64 {
        let store = Arc::clone(store);
        let metadata = metadata.clone();
        writers.spawn(async move {
            let name = format!("r{number}");
            let change = |expected| {
                let mut grant = grant_to(holder("a"), 600);
                grant.metadata = Some(metadata.clone());
                Change {
                    expected,
                    write: Write::Grant(grant),
                    ..acquire(&name, "a", 600)
                }
            };
            let mut expected = match find(&store, &name).await {
                None => Expected::Free,
                Some(_) => owned_by("a"),
            };
            for _ in 0..bytes / 64 / 4000 {
                let outcome = store.apply(attempt(vec![change(expected)])).await.unwrap();
                assert!(matches!(outcome, Outcome::Applied(_)), "somebody else wrote");
                expected = owned_by("a");
            }
        });
    }
    writers.join_all().await;
}

async fn until_empty(log: &Path) {
    let give_up = Instant::now() + PATIENCE;
    while size(log) > 0 {
        assert!(Instant::now() < give_up, "{} bytes are left", size(log));
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn the_log_stays_small_under_load_and_is_emptied_when_it_is_quiet() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("x.db");
    let store = open(&path);
    for _ in 0..4 {
        write(&store, 20 * MB).await;
        assert!(size(&log_of(&path)) <= 40 * MB, "{}", size(&log_of(&path)));
    }
    until_empty(&log_of(&path)).await;
}

/// Another program reads without end: writing goes on, slower, within 64 MB, and the operator is told. When it
/// has ended the log is emptied.
#[tokio::test]
async fn a_long_reader_slows_writing_and_does_not_stop_it() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("x.db");
    let store = open(&path);
    write(&store, MB).await;
    let reader = Connection::open(&path).unwrap();
    reader
        .execute_batch("BEGIN; SELECT count(*) FROM distributed_locks")
        .unwrap();
    let give_up = Instant::now() + PATIENCE;
    while size(&log_of(&path)) < 26 * MB {
        write(&store, MB).await;
        assert!(Instant::now() < give_up);
    }
    write(&store, MB).await;
    assert!(size(&log_of(&path)) <= 64 * MB);
    let health = store.check().await.unwrap();
    assert!(
        health.warnings.iter().any(|warning| warning.contains("log")),
        "{health:?}"
    );
    reader.execute_batch("COMMIT").unwrap();
    until_empty(&log_of(&path)).await;
    assert_eq!(store.check().await.unwrap().warnings, Vec::<String>::new());
}
