//! Rows of `distributed_locks`: reading them, whoever wrote them, and writing ours.

use std::sync::Arc;

use ferrolho_core::{FencingToken, Lock, Mark, Metadata, Owner, Principal, Resource, Timestamp};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::table::Held;

/// What a file holds.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) locks: Vec<Arc<Held>>,
    /// The highest token that was ever drawn.
    pub(super) top_token: u64,
    /// How many rows are no locks, since a name or a time in them cannot be. They are passed over.
    pub(super) unreadable: usize,
}

/// Reads all locks.
pub(super) fn load(connection: &Connection) -> rusqlite::Result<Loaded> {
    let mut top_token = counter(connection)?.unwrap_or(0);
    let mut locks = Vec::new();
    let mut unreadable = 0;
    let mut statement = connection.prepare_cached(
        "SELECT id, resource, owner, expires_at, acquired_at, principal, metadata, mark FROM distributed_locks",
    )?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        top_token = top_token.max(row.get(0)?);
        match read(row)? {
            Some(held) => locks.push(Arc::new(held)),
            None => unreadable += 1,
        }
    }
    Ok(Loaded {
        locks,
        top_token: u64::try_from(top_token).unwrap_or(0),
        unreadable,
    })
}

/// The lock in this row. SQLite lets any column hold anything, and other programs may write, so nothing is taken
/// for granted; but a lock with metadata or a mark that cannot be is still a lock.
fn read(row: &Row<'_>) -> rusqlite::Result<Option<Held>> {
    let text = |column| row.get_ref(column).map(|value| value.as_str().ok());
    let (Some(resource), Some(owner), Some(expires_at), Some(acquired_at)) =
        (text(1)?, text(2)?, text(3)?, text(4)?)
    else {
        return Ok(None);
    };
    let principal = match row.get_ref(5)? {
        ValueRef::Null => None,
        value => match value.as_str().ok().and_then(|name| Principal::new(name).ok()) {
            None => return Ok(None),
            principal => principal,
        },
    };
    let (Ok(fencing_token), Ok(resource), Ok(owner), Some(expires_at), Some(acquired_at)) = (
        FencingToken::new(row.get::<_, i64>(0)?.into()),
        Resource::new(resource),
        Owner::new(owner),
        read_time(expires_at),
        read_time(acquired_at),
    ) else {
        return Ok(None);
    };
    Ok(Some(Held {
        lock: Lock {
            resource,
            owner,
            expires_at,
            acquired_at,
            fencing_token,
            metadata: text(6)?.and_then(|text| Metadata::parse(text).ok()),
            principal,
        },
        mark: text(7)?
            .and_then(|text| text.parse().ok())
            .unwrap_or(Mark::Random(0)),
    }))
}

/// A time in any form that other programs write: RFC 3339, or the same in UTC without a zone, as SQLite's own
/// `datetime()` gives it.
fn read_time(text: &str) -> Option<Timestamp> {
    Timestamp::parse(text)
        .or_else(|_| Timestamp::parse(&format!("{text}Z")))
        .ok()
}

/// Rewrites times that are not in our form, in which text order is time order. (`' ' < 'T'`: the short form of
/// SQLite's `datetime()` sorts before all of ours.)
pub(super) fn normalise_times(connection: &Connection) -> rusqlite::Result<()> {
    let mut other_forms = connection.prepare(
        "SELECT id, expires_at, acquired_at FROM distributed_locks
         WHERE NOT (expires_at GLOB ?1 AND acquired_at GLOB ?1)",
    )?;
    let mut update =
        connection.prepare("UPDATE distributed_locks SET expires_at = ?2, acquired_at = ?3 WHERE id = ?1")?;
    let digits = |count| "[0-9]".repeat(count);
    let (two, six) = (digits(2), digits(6));
    let ours = format!("{}-{two}-{two}T{two}:{two}:{two}.{six}Z", digits(4));
    let mut rows = other_forms.query([ours])?;
    let mut changes = Vec::new();
    while let Some(row) = rows.next()? {
        let time = |column| {
            row.get_ref(column)
                .map(|value| value.as_str().ok().and_then(read_time))
        };
        if let (Some(expires_at), Some(acquired_at)) = (time(1)?, time(2)?) {
            changes.push((row.get::<_, i64>(0)?, expires_at, acquired_at));
        }
    }
    for (id, expires_at, acquired_at) in changes {
        update.execute(params![id, expires_at.to_string(), acquired_at.to_string()])?;
    }
    Ok(())
}

/// Brings the row of a resource from what is in the file to what it shall be.
pub(super) fn write(
    connection: &Connection,
    before: Option<FencingToken>,
    after: Option<&Held>,
) -> rusqlite::Result<()> {
    match (before, after) {
        (None, None) => Ok(()),
        (Some(before), None) => remove(connection, before),
        (Some(before), Some(after)) if before == after.lock.fencing_token => extend(connection, after),
        (_, Some(after)) => replace(connection, after),
    }
}

/// Makes this the row of its resource, whatever is there, the same grant included.
pub(super) fn put(connection: &Connection, held: &Held) -> rusqlite::Result<()> {
    remove_resource(connection, &held.lock.resource)?;
    replace(connection, held)
}

/// Moves the end of the row of a resource, if there is one.
pub(super) fn set_end(connection: &Connection, resource: &Resource, end: Timestamp) -> rusqlite::Result<()> {
    connection
        .prepare_cached("UPDATE distributed_locks SET expires_at = ?2 WHERE resource = ?1")?
        .execute(params![resource.as_str(), end.to_string()])?;
    Ok(())
}

/// Removes the row of a resource, if there is one.
pub(super) fn remove_resource(connection: &Connection, resource: &Resource) -> rusqlite::Result<()> {
    connection
        .prepare_cached("DELETE FROM distributed_locks WHERE resource = ?1")?
        .execute([resource.as_str()])?;
    Ok(())
}

fn remove(connection: &Connection, token: FencingToken) -> rusqlite::Result<()> {
    connection
        .prepare_cached("DELETE FROM distributed_locks WHERE id = ?1")?
        .execute([token.get().cast_signed()])?;
    Ok(())
}

/// Nothing of a grant changes but its end.
fn extend(connection: &Connection, held: &Held) -> rusqlite::Result<()> {
    connection
        .prepare_cached("UPDATE distributed_locks SET expires_at = ?2 WHERE id = ?1")?
        .execute(params![
            held.lock.fencing_token.get().cast_signed(),
            held.lock.expires_at.to_string()
        ])?;
    Ok(())
}

/// A new grant takes the place of whatever row its resource has. It is an insert, since AUTOINCREMENT follows
/// inserts only: after an `UPDATE … SET id` the same number could come twice.
fn replace(connection: &Connection, held: &Held) -> rusqlite::Result<()> {
    let lock = &held.lock;
    connection
        .prepare_cached(
            "INSERT INTO distributed_locks
                (id, resource, owner, expires_at, acquired_at, principal, metadata, mark)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
             ON CONFLICT (resource) DO UPDATE SET
                id = excluded.id, owner = excluded.owner, expires_at = excluded.expires_at,
                acquired_at = excluded.acquired_at, principal = excluded.principal,
                metadata = excluded.metadata, mark = excluded.mark",
        )?
        .execute(params![
            lock.fencing_token.get().cast_signed(),
            lock.resource.as_str(),
            lock.owner.as_str(),
            lock.expires_at.to_string(),
            lock.acquired_at.to_string(),
            lock.principal.as_ref().map(Principal::as_str),
            lock.metadata.as_ref().map(Metadata::as_str),
            held.mark.to_string(),
        ])?;
    Ok(())
}

/// Lifts the counter of tokens to at least `top`, also where no row has the number. Writes nothing if it is there
/// already.
pub(super) fn raise_counter(connection: &Connection, top: u64) -> rusqlite::Result<()> {
    let counter = counter(connection)?;
    let top = top.cast_signed();
    let statement = match counter {
        Some(counter) if counter >= top => return Ok(()),
        Some(_) => "UPDATE sqlite_sequence SET seq = ?1 WHERE name = 'distributed_locks'",
        None => "INSERT INTO sqlite_sequence (name, seq) VALUES ('distributed_locks', ?1)",
    };
    connection.prepare_cached(statement)?.execute([top])?;
    Ok(())
}

/// The highest number that AUTOINCREMENT remembers.
fn counter(connection: &Connection) -> rusqlite::Result<Option<i64>> {
    connection
        .prepare_cached("SELECT seq FROM sqlite_sequence WHERE name = 'distributed_locks'")?
        .query_row([], |row| row.get(0))
        .optional()
}
