//! The rows of the functions, and what they mean.

use std::time::Duration;

use ferrolho_core::{FencingToken, Live, Lock, Mark, Metadata, Owner, Principal, Resource, Timestamp};
use tokio_postgres::Row;

use super::failure::Failure;

/// What a call came back with.
pub(super) struct Answer {
    /// Whether the clock was as the caller expected; if not, nothing was done.
    pub(super) is_in_time: bool,
    pub(super) era: i64,
    pub(super) clock: i64,
    /// For each change that was answered: its place from 0, whether it was done, the lock as it is now.
    pub(super) changes: Vec<(usize, bool, Option<Live>)>,
}

fn odd(what: impl std::fmt::Display) -> Failure {
    // What the database answered was committed before it was answered.
    Failure::Unknown(format!("the database holds what is no lock: {what}"))
}

impl Answer {
    pub(super) fn read(rows: &[Row]) -> Result<Self, Failure> {
        let (first, others) = rows.split_first().ok_or_else(|| odd("no answer"))?;
        let mut answer = Self {
            is_in_time: first.try_get("done").map_err(odd)?,
            era: first.try_get("era").map_err(odd)?,
            clock: first.try_get("clock").map_err(odd)?,
            changes: Vec::with_capacity(others.len()),
        };
        for row in others {
            let place: i32 = row.try_get("place").map_err(odd)?;
            let place = usize::try_from(place - 1).map_err(odd)?;
            let is_done = row.try_get("done").map_err(odd)?;
            answer.changes.push((place, is_done, live(row)?));
        }
        Ok(answer)
    }

    /// The locks of a list.
    pub(super) fn locks(self) -> Vec<Live> {
        self.changes.into_iter().filter_map(|(_, _, live)| live).collect()
    }
}

fn live(row: &Row) -> Result<Option<Live>, Failure> {
    let Some(token) = row.try_get::<_, Option<i64>>("token").map_err(odd)? else {
        return Ok(None);
    };
    let text = |name: &str| row.try_get::<_, Option<&str>>(name).map_err(odd);
    let needed = |name: &str| text(name)?.ok_or_else(|| odd(name));
    let moment = |name: &str| row.try_get(name).map(Timestamp::from_micros).map_err(odd);
    let left: i64 = row.try_get("remaining").map_err(odd)?;
    let fields = Fields {
        resource: needed("resource")?,
        owner: needed("owner")?,
        principal: text("principal")?.unwrap_or_default(),
        metadata: text("metadata")?.unwrap_or_default(),
        token,
        acquired_at: moment("acquired")?,
        expires_at: moment("expires")?,
    };
    let mark: Mark = needed("mark")?.parse().map_err(odd)?;
    Ok(Some(Live {
        lock: fields.lock().map_err(odd)?,
        mark,
        left: Duration::from_micros(u64::try_from(left).unwrap_or(0)),
    }))
}

/// A lock in plain values; what is absent is empty.
pub(super) struct Fields<'a> {
    pub(super) resource: &'a str,
    pub(super) owner: &'a str,
    pub(super) principal: &'a str,
    pub(super) metadata: &'a str,
    pub(super) token: i64,
    pub(super) acquired_at: Timestamp,
    pub(super) expires_at: Timestamp,
}

impl Fields<'_> {
    pub(super) fn lock(&self) -> Result<Lock, String> {
        let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let wrong = |invalid: ferrolho_core::Invalid| invalid.message;
        Ok(Lock {
            resource: Resource::new(self.resource).map_err(wrong)?,
            owner: Owner::new(self.owner).map_err(wrong)?,
            principal: given(self.principal)
                .map(|name| Principal::new(&name))
                .transpose()
                .map_err(wrong)?,
            metadata: given(self.metadata)
                .map(|text| Metadata::parse(&text))
                .transpose()
                .map_err(wrong)?,
            fencing_token: FencingToken::new(self.token.into()).map_err(wrong)?,
            acquired_at: self.acquired_at,
            expires_at: self.expires_at,
        })
    }
}
