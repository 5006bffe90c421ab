//! What the engine remembers in the file besides the locks: how its clock runs.

use std::time::Duration;

use ferrolho_core::Timestamp;
use rusqlite::{Connection, OptionalExtension};

use crate::clock::Anchor;

/// The anchor of the clock, as the last start left it. Nothing if there is none, or none that makes sense.
pub(super) fn anchor(connection: &Connection) -> rusqlite::Result<Option<Anchor>> {
    let Some(text) = get(connection, "clock_anchor")? else {
        return Ok(None);
    };
    // The boot id comes last, since it may contain spaces.
    let mut parts = text.splitn(3, ' ');
    let mut part = || parts.next().unwrap_or_default();
    let (wall, micros, boot_id) = (part(), part(), part());
    Ok(Timestamp::parse(wall)
        .ok()
        .zip(micros.parse().ok())
        .map(|(wall, micros)| Anchor {
            boot_id: boot_id.to_owned(),
            wall,
            since_boot: Duration::from_micros(micros),
        }))
}

/// Remembers the anchor.
pub(super) fn set_anchor(connection: &Connection, anchor: &Anchor) -> rusqlite::Result<()> {
    let micros = anchor.since_boot.as_micros();
    set(
        connection,
        "clock_anchor",
        &format!("{} {micros} {}", anchor.wall, anchor.boot_id),
    )
}

/// A time that the engine's clock has shown: at most [`SEEN_EVERY`] older than the latest commit.
pub(super) fn seen(connection: &Connection) -> rusqlite::Result<Timestamp> {
    let text = get(connection, "clock_seen")?;
    Ok(text
        .and_then(|text| Timestamp::parse(&text).ok())
        .unwrap_or(Timestamp::from_micros(0)))
}

/// How old the remembered time may grow before a commit brings it up to date.
pub(super) const SEEN_EVERY: Duration = Duration::from_secs(1);

/// Remembers that the clock has shown this time.
pub(super) fn set_seen(connection: &Connection, now: Timestamp) -> rusqlite::Result<()> {
    set(connection, "clock_seen", &now.to_string())
}

fn get(connection: &Connection, name: &str) -> rusqlite::Result<Option<String>> {
    connection
        .prepare_cached("SELECT value FROM ferrolho_state WHERE name = ?1")?
        .query_row([name], |row| row.get(0))
        .optional()
}

fn set(connection: &Connection, name: &str, value: &str) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO ferrolho_state (name, value) VALUES (?1, ?2)
             ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        )?
        .execute([name, value])?;
    Ok(())
}
