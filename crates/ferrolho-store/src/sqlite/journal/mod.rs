//! The journal: what has changed since the table was last written.
//!
//! Written straight into `distributed_locks`, almost every change of a batch dirties pages of its own: of the
//! table, of its index, of the counter. Under load that is most of what a commit costs. So a large batch goes
//! into a table beside it, `ferrolho_journal`, as one record of a page or two, and is as durable there. The
//! journal is folded into `distributed_locks` when the load pauses for a moment, every second, after many
//! changes, and at every opening and clean stop; most locks are gone by then and cost nothing. A small batch that
//! finds the journal empty is written straight, so that an operator who looks at the table at low load sees the
//! truth; under load it is at most about a second old.
//!
//! What another program does to `distributed_locks` is later than the journal, and counts, with one exception: a
//! lock that was granted since, and that the program could not see in the table, stays.

mod record;
mod recover;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ferrolho_core::{FencingToken, Resource, Timestamp};
use rusqlite::Connection;

use super::rows;
use crate::table::{Batch, Held, Table};
use record::Record;

pub(super) use recover::recover;

/// So few changes go straight to the table when the journal is empty.
const DIRECT_CHANGES: usize = 8;

/// So long without a change, and the journal is folded.
const PAUSE: Duration = Duration::from_millis(10);

/// So old, it is folded under load too.
const FOLD_EVERY: Duration = Duration::from_secs(1);

/// So many changes, likewise. It bounds what an opening after a crash has to do.
const JOURNAL_MAX_CHANGES: usize = 20_000;

/// How many locks are folded with one commit. More than a batch changes, so that it comes to an end under load.
const FOLD_PIECE_LOCKS: usize = 1000;

/// What `distributed_locks` has for a resource: the number and the end of its row, if there is one.
type Row = Option<(FencingToken, Timestamp)>;

/// How the journal stands to the table.
#[derive(Debug)]
pub(super) struct Journal {
    /// Resources whose rows may be out of date, with their rows.
    stale: BTreeMap<Resource, Row>,
    /// How many changes the records hold. 0 means that there are none.
    changes: usize,
    /// When the first record was written, and the last.
    first: Instant,
    last: Instant,
    /// Whether some of it has been folded, and the rest is to follow.
    is_folding: bool,
    /// [`DIRECT_CHANGES`] and [`FOLD_PIECE_LOCKS`], which tests make small.
    direct_changes: usize,
    fold_piece: usize,
    /// What the open transaction will have done.
    pending: Pending,
}

#[derive(Debug, Default)]
enum Pending {
    #[default]
    Nothing,
    /// A record of so many changes was added, and the rows of these resources brought up to date.
    Appended {
        stale: Vec<(Resource, Row)>,
        changes: usize,
        folded: Vec<Resource>,
    },
    /// All rows are up to date and the journal is empty.
    Folded,
}

impl Journal {
    /// The journal of a file in which it is empty.
    pub(super) fn empty() -> Self {
        Self::with_limits(DIRECT_CHANGES, FOLD_PIECE_LOCKS)
    }

    fn with_limits(direct_changes: usize, fold_piece: usize) -> Self {
        let now = Instant::now();
        Self {
            stale: BTreeMap::new(),
            changes: 0,
            first: now,
            last: now,
            is_folding: false,
            direct_changes,
            fold_piece,
            pending: Pending::Nothing,
        }
    }

    /// When it is time to fold, if there is anything to fold.
    pub(super) fn due(&self) -> Option<Instant> {
        if self.changes == 0 {
            None
        } else if self.is_folding || self.changes >= JOURNAL_MAX_CHANGES {
            Some(self.last)
        } else {
            Some((self.last + PAUSE).min(self.first + FOLD_EVERY))
        }
    }

    /// Writes the batch, and folds a piece of the journal or all of it if that `is_due`.
    pub(super) fn write(
        &mut self,
        connection: &Connection,
        batch: &Batch,
        table: &Table,
        is_due: bool,
    ) -> rusqlite::Result<()> {
        let is_direct = self.changes == 0 && batch.writes().len() <= self.direct_changes;
        let is_last_piece = is_due && self.stale.len() <= self.fold_piece;
        if is_direct || is_last_piece {
            self.write_all(connection, batch, table)
        } else {
            self.append(connection, batch, table, is_due)
        }
    }

    /// Brings every row up to date, with the batch, and empties the journal.
    fn write_all(&mut self, connection: &Connection, batch: &Batch, table: &Table) -> rusqlite::Result<()> {
        for (resource, row) in &self.stale {
            if !batch.touches(resource) {
                rows::write(connection, token(*row), table.get(resource).map(AsRef::as_ref))?;
            }
        }
        for (resource, after) in batch.writes() {
            rows::write(connection, token(self.row(resource, table)), after)?;
        }
        rows::raise_counter(connection, batch.top_token())?;
        if self.changes > 0 {
            connection
                .prepare_cached("DELETE FROM ferrolho_journal")?
                .execute([])?;
        }
        self.pending = Pending::Folded;
        Ok(())
    }

    /// Adds a record of the batch, and if folding `is_due`, brings some rows up to date.
    fn append(
        &mut self,
        connection: &Connection,
        batch: &Batch,
        table: &Table,
        is_due: bool,
    ) -> rusqlite::Result<()> {
        let mut folded = Vec::new();
        if is_due {
            for (resource, row) in self.stale.iter().take(self.fold_piece) {
                if !batch.touches(resource) {
                    rows::write(connection, token(*row), table.get(resource).map(AsRef::as_ref))?;
                    folded.push(resource.clone());
                }
            }
        }
        if !batch.is_empty() {
            let record = serde_json::to_string(&Record::new(batch, table))
                .map_err(|cause| rusqlite::Error::ToSqlConversionFailure(cause.into()))?;
            connection
                .prepare_cached("INSERT INTO ferrolho_journal (record) VALUES (?1)")?
                .execute([record])?;
        }
        let stale = batch
            .writes()
            .filter(|(resource, _)| !self.stale.contains_key(*resource))
            .map(|(resource, _)| (resource.clone(), row_of(table.get(resource))))
            .collect();
        self.pending = Pending::Appended {
            stale,
            changes: batch.writes().len(),
            folded,
        };
        Ok(())
    }

    /// The transaction is durable.
    pub(super) fn committed(&mut self) {
        match std::mem::take(&mut self.pending) {
            Pending::Nothing => {}
            Pending::Appended {
                stale,
                changes,
                folded,
            } => {
                self.last = Instant::now();
                if self.changes == 0 {
                    self.first = self.last;
                }
                self.changes += changes;
                self.is_folding |= !folded.is_empty();
                for resource in folded {
                    self.stale.remove(&resource);
                }
                self.stale.extend(stale);
            }
            Pending::Folded => *self = Self::with_limits(self.direct_changes, self.fold_piece),
        }
    }

    /// The transaction has not happened.
    pub(super) fn rolled_back(&mut self) {
        self.pending = Pending::Nothing;
    }

    /// Brings rows that were read because another program has changed some up to what the journal knows.
    pub(super) fn reconcile(&self, read: &mut Vec<Arc<Held>>, table: &Table) {
        if self.stale.is_empty() {
            return;
        }
        let mut by_name: BTreeMap<_, _> = std::mem::take(read)
            .into_iter()
            .map(|held| (held.lock.resource.clone(), held))
            .collect();
        for (resource, row) in &self.stale {
            let ours = table.get(resource);
            let there = row_of(by_name.get(resource));
            let is_untouched = there == *row;
            let is_new_grant = ours.is_some_and(|held| Some(held.lock.fencing_token) != token(*row));
            if !is_untouched && !is_new_grant {
                continue;
            }
            match ours {
                Some(held) => by_name.insert(resource.clone(), Arc::clone(held)),
                None => by_name.remove(resource),
            };
        }
        read.extend(by_name.into_values());
    }

    /// The row of a resource as it is in the table, where `table` is what the engine knows.
    fn row(&self, resource: &Resource, table: &Table) -> Row {
        match self.stale.get(resource) {
            Some(row) => *row,
            None => row_of(table.get(resource)),
        }
    }
}

fn row_of(held: Option<&Arc<Held>>) -> Row {
    held.map(|held| (held.lock.fencing_token, held.lock.expires_at))
}

fn token(row: Row) -> Option<FencingToken> {
    row.map(|(token, _)| token)
}

#[cfg(test)]
mod tests;
