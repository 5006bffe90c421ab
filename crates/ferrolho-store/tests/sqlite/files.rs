//! Which files are opened, and what is said of the others.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use ferrolho_store::SqliteStore;
use ferrolho_store::conformance::kit::{acquire, find, must, must_remove, release};
use ferrolho_testkit::SEED_TABLE;
use rusqlite::Connection;
use tempfile::TempDir;

use crate::open;

fn refusal(path: &Path) -> String {
    let message = SqliteStore::open(path).map(drop).unwrap_err().to_string();
    assert!(!message.contains('\n'), "{message}");
    let name = path.file_name().unwrap().to_string_lossy();
    assert!(message.contains(&*name), "{message}");
    message
}

#[tokio::test]
async fn a_file_of_the_seed_keeps_its_live_locks_and_its_counter() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("seed.db");
    let seed = Connection::open(&path).unwrap();
    seed.execute_batch(SEED_TABLE).unwrap();
    seed.execute_batch(
        "INSERT INTO distributed_locks (resource, owner, expires_at, acquired_at) VALUES
            ('released', 'x', '2001-01-01 00:00:00', '2001-01-01 00:00:00'),
            ('dead', 'a', '2001-01-01 00:00:00', '2001-01-01 00:00:00'),
            ('short form', 'a', '2099-01-02 03:04:05', '2001-01-01 00:00:00'),
            ('fraction', 'a', '2099-01-02T03:04:05.25Z', '2001-01-01T00:00:00.000Z'),
            ('zone', 'b', '2099-01-02T03:04:05+02:00', '2001-01-01T00:00:00+02:00'),
            ('ours', 'b', '2099-01-02T03:04:05.000000Z', '2001-01-01T00:00:00.000000Z');
         INSERT INTO distributed_locks (id, resource, owner, expires_at, acquired_at)
            VALUES (90, 'gone', 'a', '2099-01-02 03:04:05', '2001-01-01 00:00:00');
         DELETE FROM distributed_locks WHERE resource IN ('gone', 'released');",
    )
    .unwrap();
    drop(seed);

    let store = open(&path);
    assert_eq!(find(&store, "dead").await, None);
    for (name, owner, expires_at) in [
        ("short form", "a", "2099-01-02T03:04:05.000000Z"),
        ("fraction", "a", "2099-01-02T03:04:05.250000Z"),
        ("zone", "b", "2099-01-02T01:04:05.000000Z"),
        ("ours", "b", "2099-01-02T03:04:05.000000Z"),
    ] {
        let live = find(&store, name).await.unwrap();
        assert_eq!(live.lock.owner.as_str(), owner);
        assert_eq!(live.lock.expires_at.to_string(), expires_at, "{name}");
    }
    let taken = must(&store, acquire("dead", "b", 60)).await;
    assert_eq!(
        taken.lock.fencing_token.get(),
        91,
        "above every number ever drawn"
    );
    store.close().await;

    let file = Connection::open(&path).unwrap();
    let other_forms: i64 = file
        .query_row(
            "SELECT count(*) FROM distributed_locks WHERE length(expires_at) <> 27 OR length(acquired_at) <> 27",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(other_forms, 0);
    // The five columns of the seed still make a row.
    file.execute_batch(
        "INSERT INTO distributed_locks (resource, owner, expires_at, acquired_at)
         VALUES ('by hand', 'c', '2099-01-01 00:00:00', '2001-01-01 00:00:00')",
    )
    .unwrap();
    drop(file);
    let store = open(&path);
    let by_hand = find(&store, "by hand").await.unwrap();
    assert_eq!(by_hand.lock.owner.as_str(), "c");
    must_remove(&store, release(&by_hand)).await;
}

#[tokio::test]
async fn rows_that_are_no_locks_are_passed_over_and_counted() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("odd.db");
    let file = Connection::open(&path).unwrap();
    file.execute_batch(SEED_TABLE).unwrap();
    file.execute_batch(
        "INSERT INTO distributed_locks (resource, owner, expires_at, acquired_at) VALUES
            ('no owner', ' ', '2099-01-01 00:00:00', '2001-01-01 00:00:00'),
            ('no time', 'a', 'tomorrow', '2001-01-01 00:00:00'),
            ('a number', 'a', 4070908800, '2001-01-01 00:00:00'),
            (x'ff00', 'a', '2099-01-01 00:00:00', '2001-01-01 00:00:00'),
            ('fine', 'a', '2099-01-01 00:00:00', '2001-01-01 00:00:00');",
    )
    .unwrap();
    drop(file);
    let store = open(&path);
    assert!(find(&store, "fine").await.is_some());
    assert_eq!(find(&store, "no time").await, None);
    let health = store.check().await.unwrap();
    assert_eq!(health.live_locks, Some(1));
    assert!(
        health
            .warnings
            .iter()
            .any(|warning| warning.starts_with("4 rows")),
        "{health:?}"
    );
    // Such a row is in nobody's way.
    must(&store, acquire("no owner", "b", 60)).await;
}

#[tokio::test]
async fn a_second_server_is_refused_in_words_whatever_path_it_takes() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("one.db");
    let link = directory.path().join("link.db");
    symlink("one.db", &link).unwrap();
    let store = open(&link);
    assert!(path.exists(), "a link to nothing makes what it points at");
    must(&store, acquire("r", "a", 60)).await;
    for path in [&path, &link, &directory.path().join("./one.db")] {
        assert!(refusal(path).contains("another ferrolho server"));
    }
    must(&store, acquire("s", "a", 60)).await;
    store.close().await;
    assert!(find(&open(&path), "r").await.is_some());
}

#[test]
fn what_cannot_be_opened_is_said_in_one_line() {
    let directory = TempDir::new().unwrap();
    let at = |name: &str| directory.path().join(name);
    std::fs::write(
        at("text.db"),
        "this is not a database, and long enough to be read as one. ".repeat(20),
    )
    .unwrap();
    assert!(refusal(&at("text.db")).contains("not a SQLite database"));
    assert!(refusal(&at("nowhere/x.db")).contains("No such file"));
    std::fs::create_dir(at("directory")).unwrap();
    refusal(&at("directory"));

    let made = |name: &str, sql: &str| {
        Connection::open(at(name)).unwrap().execute_batch(sql).unwrap();
        refusal(&at(name))
    };
    assert!(made("newer.db", "PRAGMA user_version = 99").contains("schema version 99"));
    assert!(
        made(
            "columns.db",
            "CREATE TABLE distributed_locks (id INTEGER PRIMARY KEY AUTOINCREMENT, x)"
        )
        .contains("no column resource")
    );
    assert!(made("unique.db", &SEED_TABLE.replace(" UNIQUE", "")).contains("UNIQUE"));
    assert!(made("counter.db", &SEED_TABLE.replace("AUTOINCREMENT", "")).contains("AUTOINCREMENT"));
    assert!(
        made(
            "view.db",
            "CREATE TABLE x (y); CREATE VIEW distributed_locks AS SELECT y FROM x"
        )
        .contains("view.db")
    );
}

#[test]
fn a_file_that_may_not_be_written_is_said_to_be_so() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("locked-away.db");
    std::fs::write(&path, "").unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o400)).unwrap();
    if std::fs::OpenOptions::new().write(true).open(&path).is_ok() {
        // Whoever may do anything is not refused; the rest of this test is for others.
        return;
    }
    assert!(refusal(&path).contains("ermission denied"));
}

/// What is on disk when a commit was answered is enough: a copy of the files, taken without a clean stop, has it.
#[tokio::test]
async fn what_was_answered_is_in_a_copy_of_the_files() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("x.db");
    let store = open(&path);
    let kept = must(&store, acquire("kept", "a", 60)).await;
    let gone = must(&store, acquire("gone", "a", 60)).await;
    must_remove(&store, release(&gone)).await;
    let copy = TempDir::new().unwrap();
    for name in ["x.db", "x.db-wal"] {
        std::fs::copy(directory.path().join(name), copy.path().join(name)).unwrap();
    }
    let copied = open(&copy.path().join("x.db"));
    assert_eq!(find(&copied, "kept").await.unwrap().lock, kept.lock);
    assert_eq!(find(&copied, "gone").await, None);
    let next = must(&copied, acquire("gone", "b", 60)).await;
    assert!(next.lock.fencing_token > gone.lock.fencing_token);
}
