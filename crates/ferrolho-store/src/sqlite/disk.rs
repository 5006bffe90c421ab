//! The one connection to the file, and the one transaction that there may be on it.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ferrolho_core::Timestamp;
use rusqlite::{Connection, OpenFlags};
use tracing::warn;

use super::error::{DiskError, SqliteOpenError};
use super::file::DatabaseFile;
use super::high_water::HighWater;
use super::journal::{self, Journal};
use super::remembered;
use super::rows::{self, Loaded};
use super::schema::{self, MigrateError};
use super::wal::{KEPT_BYTES, Stamp, WalIndex};
use crate::table::{Batch, Table};

/// How long a commit waits for another program that is writing to the file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(1);

/// How much of the file SQLite keeps in memory, in KiB. It only writes there, and looks for where.
const PAGE_CACHE_KIB: i64 = 16 * 1024;

/// How the log is copied into the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Checkpoint {
    /// What can be copied without waiting for anybody.
    Passive,
    /// All, and the log's file is emptied; nothing at all while anybody reads.
    Truncate,
}

/// What the writer needs of the disk. Tests put one between that fails when told.
pub(super) trait Disk: Send + 'static {
    /// What the file holds now, if another program has changed it since the last look. Waits for nobody.
    fn refresh(&mut self, table: &Table) -> Result<Option<Loaded>, DiskError>;

    /// Begins a transaction that may write. When another program has changed the file since the last one, what
    /// the file holds now.
    fn begin(&mut self, table: &Table) -> Result<Option<Loaded>, DiskError>;

    /// Writes what the batch changes on this table, and tidies up if [`Disk::tidy_at`] has come.
    fn write(&mut self, batch: &Batch, table: &Table) -> Result<(), DiskError>;

    /// When there is something to tidy up with the next batch, or without one.
    fn tidy_at(&self) -> Option<Instant>;

    /// Makes all that was written since `begin` durable.
    fn commit(&mut self) -> Result<(), DiskError>;

    /// Ends the transaction, if there still is one, as if nothing had been written.
    fn rollback(&mut self) -> Result<(), DiskError>;

    /// The state of the file, if it holds what the last transaction left and nobody else has committed since.
    fn stamp(&mut self) -> Result<Option<Stamp>, DiskError>;

    /// Where others read the stamp. Another one after `reopen`.
    fn index(&self) -> Arc<WalIndex>;

    /// Copies the log into the database. Says whether all of it was copied.
    fn checkpoint(&mut self, how: Checkpoint) -> Result<bool, DiskError>;

    /// Writes nothing but the time, to see whether writing works.
    fn touch(&mut self, now: Timestamp) -> Result<(), DiskError>;

    /// Closes the connection, whatever state it is in, opens another and reads what the file holds.
    fn reopen(&mut self) -> Result<Loaded, DiskError>;
}

/// The real disk.
#[derive(Debug)]
pub(super) struct SqliteDisk {
    // The order matters: fields are dropped from the first to the last, and no other descriptor of the file or
    // of its log may be closed before the connection.
    /// Nothing only while `reopen` fails.
    connection: Option<Connection>,
    index: Arc<WalIndex>,
    file: DatabaseFile,
    high_water: HighWater,
    journal: Journal,
    data_version: i64,
    /// What `remembered::seen` says.
    seen: Timestamp,
    /// The highest token of the open transaction.
    drawn: u64,
}

impl SqliteDisk {
    /// The disk on this connection, which must have been prepared with [`connect`].
    pub(super) fn new(
        file: DatabaseFile,
        connection: Connection,
        high_water: HighWater,
        seen: Timestamp,
    ) -> Result<Self, DiskError> {
        let index = WalIndex::open(&file.beside("-shm")).map_err(DiskError::File)?;
        Ok(Self {
            data_version: data_version(&connection)?,
            connection: Some(connection),
            index: Arc::new(index),
            file,
            high_water,
            journal: Journal::empty(),
            seen,
            drawn: 0,
        })
    }

    /// Reads the file within a transaction, if another program has changed it since the last time.
    fn read_if_changed(&mut self, table: &Table) -> Result<Option<Loaded>, DiskError> {
        let connection = opened(self.connection.as_ref())?;
        let version = data_version(connection)?;
        if version == self.data_version {
            return Ok(None);
        }
        let mut loaded = rows::load(connection)?;
        self.journal.reconcile(&mut loaded.locks, table);
        self.data_version = version;
        Ok(Some(loaded))
    }

    #[cfg(test)]
    pub(super) fn connection(&self) -> &Connection {
        opened(self.connection.as_ref()).unwrap()
    }
}

/// The connection, unless opening it again has failed, which must then come first.
fn opened(connection: Option<&Connection>) -> Result<&Connection, DiskError> {
    connection.ok_or(DiskError::NotOpen)
}

impl Disk for SqliteDisk {
    fn refresh(&mut self, table: &Table) -> Result<Option<Loaded>, DiskError> {
        opened(self.connection.as_ref())?
            .prepare_cached("BEGIN")?
            .execute([])?;
        let read = self.read_if_changed(table);
        self.rollback()?;
        read
    }

    fn begin(&mut self, table: &Table) -> Result<Option<Loaded>, DiskError> {
        if !self.file.is_in_place() {
            return Err(DiskError::Moved);
        }
        opened(self.connection.as_ref())?
            .prepare_cached("BEGIN IMMEDIATE")?
            .execute([])?;
        self.read_if_changed(table)
    }

    fn write(&mut self, batch: &Batch, table: &Table) -> Result<(), DiskError> {
        let is_due = self.tidy_at().is_some_and(|at| at <= Instant::now());
        let connection = opened(self.connection.as_ref())?;
        self.journal.write(connection, batch, table, is_due)?;
        if batch.now().since(self.seen) >= remembered::SEEN_EVERY {
            self.touch(batch.now())?;
        }
        self.drawn = batch.top_token();
        Ok(())
    }

    fn tidy_at(&self) -> Option<Instant> {
        self.journal.due()
    }

    fn commit(&mut self) -> Result<(), DiskError> {
        opened(self.connection.as_ref())?
            .prepare_cached("COMMIT")?
            .execute([])?;
        self.journal.committed();
        self.high_water.raise(self.drawn);
        Ok(())
    }

    fn rollback(&mut self) -> Result<(), DiskError> {
        self.journal.rolled_back();
        let connection = opened(self.connection.as_ref())?;
        // After some errors, such as a full disk, SQLite has done it itself.
        if !connection.is_autocommit() {
            connection.prepare_cached("ROLLBACK")?.execute([])?;
        }
        Ok(())
    }

    fn stamp(&mut self) -> Result<Option<Stamp>, DiskError> {
        let stamp = self.index.stamp().map_err(DiskError::File)?;
        // Asked after the stamp was read: if nobody else has committed by now, the stamp is of our own commit.
        let is_ours = data_version(opened(self.connection.as_ref())?)? == self.data_version;
        Ok(is_ours.then_some(stamp))
    }

    fn index(&self) -> Arc<WalIndex> {
        Arc::clone(&self.index)
    }

    fn checkpoint(&mut self, how: Checkpoint) -> Result<bool, DiskError> {
        let connection = opened(self.connection.as_ref())?;
        let pragma = match how {
            Checkpoint::Passive => "PRAGMA wal_checkpoint(PASSIVE)",
            Checkpoint::Truncate => "PRAGMA wal_checkpoint(TRUNCATE)",
        };
        connection.busy_timeout(Duration::ZERO)?;
        let done = connection.prepare_cached(pragma)?.query_row([], |row| {
            let (is_busy, frames, copied): (bool, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
            Ok(!is_busy && frames == copied)
        });
        connection.busy_timeout(BUSY_TIMEOUT)?;
        Ok(done?)
    }

    fn touch(&mut self, now: Timestamp) -> Result<(), DiskError> {
        remembered::set_seen(opened(self.connection.as_ref())?, now)?;
        self.seen = now;
        Ok(())
    }

    fn reopen(&mut self) -> Result<Loaded, DiskError> {
        if let Some(connection) = self.connection.take()
            && let Err((connection, cause)) = connection.close()
        {
            warn!(%cause, "the connection to the database did not close cleanly");
            drop(connection);
        }
        if !self.file.is_in_place() {
            return Err(DiskError::Moved);
        }
        let connection = connect(self.file.path())?;
        let loaded = rows::load(&connection)?;
        // An old index may only be closed if it is another file: see `SqliteDisk`.
        let index = self.file.beside("-shm");
        if !self.index.is_at(&index) {
            self.index = Arc::new(WalIndex::open(&index).map_err(DiskError::File)?);
        }
        self.data_version = data_version(&connection)?;
        self.journal = Journal::empty();
        self.connection = Some(connection);
        // What was read may be in the system's memory only, if it was a sync that failed.
        self.checkpoint(Checkpoint::Truncate)?;
        Ok(loaded)
    }
}

impl Drop for SqliteDisk {
    fn drop(&mut self) {
        self.high_water.sync();
    }
}

fn data_version(connection: &Connection) -> rusqlite::Result<i64> {
    connection
        .prepare_cached("PRAGMA data_version")?
        .query_row([], |row| row.get(0))
}

/// Opens a connection to the file, sets it up for durable commits, brings the file to today's shape and folds the
/// journal that a server has left which did not stop cleanly.
pub(super) fn connect(path: &Path) -> Result<Connection, SqliteOpenError> {
    let failed = |cause| SqliteOpenError::sqlite(path, cause);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags).map_err(failed)?;
    let mode: String = set_up(&connection).map_err(failed)?;
    if mode != "wal" {
        return Err(SqliteOpenError::Foreign {
            path: path.to_owned(),
            what: format!("its file system does not allow a write-ahead log (journal mode {mode})"),
        });
    }
    match schema::migrate(&mut connection).and_then(|()| journal::recover(&mut connection)) {
        Ok(()) => Ok(connection),
        Err(MigrateError::Sqlite(cause)) => Err(failed(cause)),
        Err(MigrateError::Foreign(what)) => Err(SqliteOpenError::Foreign {
            path: path.to_owned(),
            what,
        }),
    }
}

fn set_up(connection: &Connection) -> rusqlite::Result<String> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(32);
    let mode = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    // The log is copied when the writer says so.
    connection.query_row("PRAGMA wal_autocheckpoint = 0", [], |_| Ok(()))?;
    let kept = KEPT_BYTES.cast_signed();
    connection.query_row(&format!("PRAGMA journal_size_limit = {kept}"), [], |_| Ok(()))?;
    connection.pragma_update(None, "cache_size", -PAGE_CACHE_KIB)?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    Ok(mode)
}
