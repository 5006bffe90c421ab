//! The form of a record: JSON, so that an operator can read it.

use ferrolho_core::{FencingToken, Lock, Mark, Metadata, Owner, Principal, Resource, Timestamp};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::table::{Batch, Held, Table};

/// What one batch has changed. Times are microseconds since 1970; a lock is an array, to be short.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Record {
    /// When it was decided.
    pub(super) now: i64,
    /// The highest token drawn so far.
    pub(super) top: u64,
    pub(super) granted: Vec<Granted>,
    pub(super) renewed: Vec<(Resource, i64)>,
    pub(super) gone: Vec<Resource>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Granted(
    Resource,
    Owner,
    Option<Principal>,
    FencingToken,
    i64,
    i64,
    MarkText,
    Option<Metadata>,
);

#[derive(Debug)]
struct MarkText(Mark);

impl Serialize for MarkText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for MarkText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map(Self).map_err(serde::de::Error::custom)
    }
}

impl Record {
    pub(super) fn new(batch: &Batch, table: &Table) -> Self {
        let mut record = Self {
            now: batch.now().as_micros(),
            top: batch.top_token(),
            granted: Vec::new(),
            renewed: Vec::new(),
            gone: Vec::new(),
        };
        for (resource, after) in batch.writes() {
            let before = table.get(resource).map(|held| held.lock.fencing_token);
            match after {
                None => record.gone.push(resource.clone()),
                Some(held) if before == Some(held.lock.fencing_token) => {
                    record
                        .renewed
                        .push((resource.clone(), held.lock.expires_at.as_micros()));
                }
                Some(held) => record.granted.push(Granted::new(held)),
            }
        }
        record
    }
}

impl Granted {
    fn new(held: &Held) -> Self {
        let lock = held.lock.clone();
        Self(
            lock.resource,
            lock.owner,
            lock.principal,
            lock.fencing_token,
            lock.expires_at.as_micros(),
            lock.acquired_at.as_micros(),
            MarkText(held.mark.clone()),
            lock.metadata,
        )
    }

    pub(super) fn held(self) -> Held {
        let Self(resource, owner, principal, fencing_token, expires_at, acquired_at, mark, metadata) = self;
        Held {
            lock: Lock {
                resource,
                owner,
                expires_at: Timestamp::from_micros(expires_at),
                acquired_at: Timestamp::from_micros(acquired_at),
                fencing_token,
                metadata,
                principal,
            },
            mark: mark.0,
        }
    }
}
