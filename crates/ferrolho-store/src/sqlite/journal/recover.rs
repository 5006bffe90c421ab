//! What a server has left in the journal that did not stop cleanly.

use std::collections::BTreeMap;

use ferrolho_core::{Resource, Timestamp};
use rusqlite::{Connection, TransactionBehavior};

use super::record::Record;
use crate::sqlite::schema::MigrateError;
use crate::sqlite::{remembered, rows};
use crate::table::Held;

/// Folds it into `distributed_locks`.
pub(in crate::sqlite) fn recover(connection: &mut Connection) -> Result<(), MigrateError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let Some(left) = Left::read(&transaction)? else {
        return Ok(());
    };
    for (resource, outcome) in &left.outcomes {
        match outcome {
            Outcome::Granted(held) => rows::put(&transaction, held)?,
            Outcome::Renewed(end) => rows::set_end(&transaction, resource, *end)?,
            Outcome::Gone => rows::remove_resource(&transaction, resource)?,
        }
    }
    rows::raise_counter(&transaction, left.top)?;
    let seen = remembered::seen(&transaction)?;
    remembered::set_seen(&transaction, seen.max(Timestamp::from_micros(left.now)))?;
    transaction.execute("DELETE FROM ferrolho_journal", [])?;
    transaction.commit()?;
    Ok(())
}

/// All that a journal says.
#[derive(Debug, Default)]
struct Left {
    outcomes: BTreeMap<Resource, Outcome>,
    now: i64,
    top: u64,
}

/// What all records together make of a resource.
#[derive(Debug)]
enum Outcome {
    Granted(Held),
    /// The row that is there, with this end.
    Renewed(Timestamp),
    Gone,
}

impl Left {
    fn read(connection: &Connection) -> Result<Option<Self>, MigrateError> {
        let mut left = None;
        let mut statement = connection.prepare("SELECT record FROM ferrolho_journal ORDER BY seq")?;
        let mut records = statement.query([])?;
        while let Some(row) = records.next()? {
            let text = row.get_ref(0)?.as_str().unwrap_or_default();
            let record = serde_json::from_str(text).map_err(|cause| {
                MigrateError::Foreign(format!("its journal has a record that cannot be read ({cause})"))
            })?;
            left.get_or_insert_with(Self::default).add(record);
        }
        Ok(left)
    }

    fn add(&mut self, record: Record) {
        self.now = self.now.max(record.now);
        self.top = self.top.max(record.top);
        for resource in record.gone {
            self.outcomes.insert(resource, Outcome::Gone);
        }
        for granted in record.granted {
            let held = granted.held();
            self.outcomes
                .insert(held.lock.resource.clone(), Outcome::Granted(held));
        }
        for (resource, end) in record.renewed {
            let end = Timestamp::from_micros(end);
            match self.outcomes.get_mut(&resource) {
                Some(Outcome::Granted(held)) => held.lock.expires_at = end,
                _ => {
                    self.outcomes.insert(resource, Outcome::Renewed(end));
                }
            }
        }
    }
}
