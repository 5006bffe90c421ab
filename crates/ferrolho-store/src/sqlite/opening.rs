//! Opening the file: everything that happens before the first look.

use std::path::Path;
use std::sync::Arc;

use ferrolho_core::FencingToken;
use rusqlite::TransactionBehavior;

use super::disk::{Checkpoint, Disk, SqliteDisk, connect};
use super::error::SqliteOpenError;
use super::file::DatabaseFile;
use super::high_water::HighWater;
use super::remembered;
use super::rows::{self, Loaded};
use crate::Lift;
use crate::clock::{Clock, TimeSource};

/// What the file beside the database is called that remembers the highest token.
const HIGH_WATER_SUFFIX: &str = "-top-token";

/// An opened file.
pub(super) struct Opened {
    pub(super) disk: SqliteDisk,
    pub(super) loaded: Loaded,
    pub(super) clock: Clock,
    /// What an operator should know.
    pub(super) notices: Vec<String>,
}

/// Opens and locks the file, brings it to today's shape, and reads it.
pub(super) fn open(path: &Path, time: Arc<dyn TimeSource>) -> Result<Opened, SqliteOpenError> {
    let file = DatabaseFile::lock(path)?;
    let high_water = HighWater::open(&file.beside(HIGH_WATER_SUFFIX));
    let mut notices = Vec::new();
    if let Some(kind) = file.network_file_system() {
        notices.push(format!(
            "the database lies on {kind}, which may not keep SQLite's locks and syncs: locks could be granted \
             twice or lost; use a local disk"
        ));
    }
    let mut connection = connect(file.path())?;
    let prepare = || {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        rows::normalise_times(&transaction)?;
        let stored = remembered::anchor(&transaction)?;
        let clock = Clock::resume(time, stored.clone(), remembered::seen(&transaction)?);
        if stored.as_ref() != Some(clock.anchor()) {
            remembered::set_anchor(&transaction, clock.anchor())?;
        }
        let seen = clock.now();
        remembered::set_seen(&transaction, seen)?;
        let mut loaded = rows::load(&transaction)?;
        if loaded.top_token < high_water.token() {
            notices.push(older_than_seen(loaded.top_token, high_water.token()));
            loaded.top_token = high_water.token();
            rows::raise_counter(&transaction, loaded.top_token)?;
        }
        transaction.commit()?;
        Ok((loaded, clock, seen))
    };
    let (loaded, clock, seen) = prepare().map_err(|cause| SqliteOpenError::sqlite(path, cause))?;
    let opened = SqliteDisk::new(file, connection, high_water, seen).and_then(|mut disk| {
        disk.checkpoint(Checkpoint::Truncate)?;
        Ok(disk)
    });
    let disk = opened.map_err(|cause| SqliteOpenError::disk(path, cause))?;
    Ok(Opened {
        disk,
        loaded,
        clock,
        notices,
    })
}

fn older_than_seen(found: u64, seen: u64) -> String {
    format!(
        "the database is older than what has run here: it knows fencing tokens up to {found}, but {seen} has been \
         drawn; if an older copy was put back, locks in it may be out of date. Tokens go on above {seen}"
    )
}

/// Lifts the counter of fencing tokens in a file that no server has open, and says where it is now.
pub(crate) fn lift_tokens(path: &Path, lift: Lift) -> Result<u64, SqliteOpenError> {
    let file = DatabaseFile::lock(path)?;
    let mut high_water = HighWater::open(&file.beside(HIGH_WATER_SUFFIX));
    let mut connection = connect(file.path())?;
    let mut raise = || {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let top = rows::load(&transaction)?.top_token.max(high_water.token());
        let lifted = lift.target(top).min(FencingToken::MAX.get());
        rows::raise_counter(&transaction, lifted)?;
        transaction.commit()?;
        Ok(lifted)
    };
    let lifted = raise().map_err(|cause| SqliteOpenError::sqlite(path, cause))?;
    high_water.raise(lifted);
    high_water.sync();
    // The connection first: closing the file gives up SQLite's locks on it.
    drop(connection);
    drop(file);
    Ok(lifted)
}
