//! The shape of the file, from the seed's bare table to today's.
//!
//! `user_version` says which shape a file has; each step of [`migrate`] brings it one further, all in one
//! transaction. Columns that are added have defaults, so a program that knows the seed's five columns can go on
//! inserting.

use std::collections::BTreeSet;

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior};

/// The shape that this version writes.
const VERSION: u32 = 1;

/// The seed's table, word for word in its columns, and what came later.
const TABLE: &str = "
CREATE TABLE IF NOT EXISTS distributed_locks (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    resource    TEXT    NOT NULL UNIQUE,
    owner       TEXT    NOT NULL,
    expires_at  TEXT    NOT NULL,
    acquired_at TEXT    NOT NULL
)";

/// The columns that came after the seed's five.
const ADDED: [(&str, &str); 3] = [
    ("principal", "TEXT"),
    ("metadata", "TEXT"),
    ("mark", "TEXT NOT NULL DEFAULT ''"),
];

/// What the engine remembers besides the locks: one value a name.
const STATE: &str = "
CREATE TABLE IF NOT EXISTS ferrolho_state (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID";

/// What has changed since `distributed_locks` was last written, one record a batch.
const JOURNAL: &str = "
CREATE TABLE IF NOT EXISTS ferrolho_journal (
    seq    INTEGER PRIMARY KEY,
    record TEXT NOT NULL
)";

/// Why a file cannot be brought to today's shape.
#[derive(Debug, thiserror::Error)]
pub(super) enum MigrateError {
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    #[error("{0}")]
    Foreign(String),
}

/// Brings the file to today's shape.
pub(super) fn migrate(connection: &mut Connection) -> Result<(), MigrateError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let found: u32 = transaction.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    if found > VERSION {
        return Err(MigrateError::Foreign(format!(
            "the file has schema version {found} and this ferrolho knows only {VERSION}: a newer version, or \
             another program, has written it"
        )));
    }
    if found < VERSION {
        transaction.execute_batch(TABLE)?;
        let columns = columns(&transaction)?;
        for (name, kind) in ADDED.iter().filter(|(name, _)| !columns.contains(*name)) {
            transaction.execute_batch(&format!("ALTER TABLE distributed_locks ADD COLUMN {name} {kind}"))?;
        }
        transaction.execute_batch(STATE)?;
        transaction.execute_batch(JOURNAL)?;
        transaction.pragma_update(None, "user_version", VERSION)?;
    }
    check(&transaction)?;
    transaction.commit()?;
    Ok(())
}

fn columns(connection: &Connection) -> rusqlite::Result<BTreeSet<String>> {
    connection
        .prepare("SELECT name FROM pragma_table_info('distributed_locks')")?
        .query_map([], |row| row.get(0))?
        .collect()
}

/// What the engine rests on: the columns, one row a resource, and a counter that never goes back.
fn check(transaction: &Transaction<'_>) -> Result<(), MigrateError> {
    let columns = columns(transaction)?;
    let seed = ["id", "resource", "owner", "expires_at", "acquired_at"];
    let added = ADDED.map(|(name, _)| name);
    for name in seed.into_iter().chain(added) {
        if !columns.contains(name) {
            return Err(MigrateError::Foreign(format!(
                "its table distributed_locks has no column {name}"
            )));
        }
    }
    let is_unique: bool = transaction.query_row(
        "SELECT EXISTS (
            SELECT 1 FROM pragma_index_list('distributed_locks') AS list
            WHERE list.\"unique\" AND NOT list.partial
              AND (SELECT group_concat(name) FROM pragma_index_info(list.name)) = 'resource')",
        [],
        |row| row.get(0),
    )?;
    if !is_unique {
        return Err(MigrateError::Foreign(
            "its table distributed_locks lacks UNIQUE (resource)".to_owned(),
        ));
    }
    let definition: Option<String> = transaction
        .query_row(
            "SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = 'distributed_locks'",
            [],
            |row| row.get(0),
        )
        .optional()?;
    let has_counter = definition.is_some_and(|sql| sql.to_ascii_uppercase().contains("AUTOINCREMENT"));
    if !has_counter {
        return Err(MigrateError::Foreign(
            "its table distributed_locks lacks AUTOINCREMENT, so fencing tokens would come twice".to_owned(),
        ));
    }
    Ok(())
}
