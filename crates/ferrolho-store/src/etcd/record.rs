//! What the keys' values hold.
//!
//! A lock's value is a [`Record`], JSON so that an operator can read it with `etcdctl`. With the key's
//! modification revision it makes a [`Version`]: the lock as one write left it. The value of a grant cannot name
//! its own token, which is the base and the revision of that very write; a renewal writes the token down, since
//! from then on the revision is another one.

use std::time::Duration;

use crate::clock::Moment;
use etcd_client::KeyValue;
use ferrolho_core::{
    EventKind, FencingToken, Grant, Lock, Mark, Metadata, Owner, Principal, Reason, Resource, Timestamp, Ttl,
};
use serde::{Deserialize, Serialize};

/// The largest base. A revision is far below 2^52 too, so that tokens stay below 2^53.
pub(super) const MAX_BASE: u64 = 1 << 52;

/// What a write of a lock's key did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Act {
    /// It made the grant; the number is the base of its token.
    Granted,
    /// It moved the end; the number is the token.
    Renewed,
    /// It put the lock under another lease and changed nothing else; the number is the token.
    Kept,
}

/// The value of a lock's key.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) act: Act,
    pub(super) number: u64,
    pub(super) owner: Owner,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) principal: Option<Principal>,
    /// The lifetime in seconds, from this write; of a kept lock, from the write before.
    pub(super) ttl: u32,
    pub(super) acquired_at: Timestamp,
    /// When the lifetime began, by the writer's wall clock: for people.
    pub(super) written_at: Timestamp,
    pub(super) mark: String,
    /// Which server wrote it: a number that it draws when it starts.
    pub(super) by: u64,
    /// When, in milliseconds since that server started.
    pub(super) clock: u64,
    /// How many milliseconds the lease outlives the lock at the least, had the write taken no time.
    pub(super) spare: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) metadata: Option<Metadata>,
}

/// A lock as one write left it.
#[derive(Clone, Debug)]
pub(super) struct Version {
    /// The modification revision of its key: what every further write compares.
    pub(super) revision: i64,
    pub(super) lease: i64,
    pub(super) lock: Lock,
    pub(super) mark: Mark,
    pub(super) ttl: Ttl,
    pub(super) act: Act,
    pub(super) written_at: Timestamp,
    pub(super) by: u64,
    /// When it was sent, on the clock of the server that wrote it, which counts from its start.
    pub(super) clock: Duration,
    pub(super) spare: Duration,
}

/// A value that this version of ferrolho cannot read.
#[derive(Debug, thiserror::Error)]
#[error("the lock {resource} has a value in etcd that cannot be read: {reason}")]
pub(super) struct Unreadable {
    resource: Resource,
    reason: String,
}

/// This server, as others tell it from theirs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Me {
    /// Drawn at its start.
    pub(super) number: u64,
    /// Where its clock counts from.
    pub(super) started: Moment,
}

/// Who writes, and what it knows at the time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pen {
    /// Which server.
    pub(super) by: u64,
    /// Its wall clock.
    pub(super) now: Timestamp,
    /// How long ago it started.
    pub(super) clock: Duration,
    /// What is added to tokens.
    pub(super) base: u64,
    /// How much longer the lease lives than the lock.
    pub(super) spare: Duration,
}

impl Record {
    /// The value of a new grant.
    pub(super) fn grant(grant: &Grant, pen: Pen) -> Self {
        Self {
            act: Act::Granted,
            number: pen.base,
            owner: grant.holder.owner.clone(),
            principal: grant.holder.principal.clone(),
            ttl: grant.ttl.seconds(),
            acquired_at: pen.now,
            written_at: pen.now,
            mark: grant.mark.to_string(),
            by: pen.by,
            clock: millis(pen.clock),
            spare: millis(pen.spare),
            metadata: grant.metadata.clone(),
        }
    }

    /// The value of the same grant with a new end.
    pub(super) fn renewed(version: &Version, ttl: Ttl, pen: Pen) -> Self {
        Self {
            act: Act::Renewed,
            ttl: ttl.seconds(),
            written_at: pen.now,
            ..Self::kept(version, pen)
        }
    }

    /// The value of the same grant with the same end, for another lease.
    pub(super) fn kept(version: &Version, pen: Pen) -> Self {
        let lock = &version.lock;
        Self {
            act: Act::Kept,
            number: lock.fencing_token.get(),
            owner: lock.owner.clone(),
            principal: lock.principal.clone(),
            ttl: version.ttl.seconds(),
            acquired_at: lock.acquired_at,
            written_at: version.written_at,
            mark: version.mark.to_string(),
            by: pen.by,
            clock: millis(pen.clock),
            spare: millis(pen.spare),
            metadata: lock.metadata.clone(),
        }
    }

    /// The lock that this value is, written at this revision.
    pub(super) fn into_version(
        self,
        resource: &Resource,
        revision: i64,
        lease: i64,
    ) -> Result<Version, Unreadable> {
        let wrong = |reason: String| Unreadable {
            resource: resource.clone(),
            reason,
        };
        let number = match self.act {
            Act::Granted => i128::from(self.number) + i128::from(revision),
            Act::Renewed | Act::Kept => self.number.into(),
        };
        let token = FencingToken::new(number).map_err(|error| wrong(error.message))?;
        let ttl = Ttl::new(self.ttl.into(), Ttl::MAX).map_err(|error| wrong(error.message))?;
        let mark = self.mark.parse().map_err(|error| wrong(format!("{error}")))?;
        Ok(Version {
            revision,
            lease,
            lock: Lock {
                resource: resource.clone(),
                owner: self.owner,
                expires_at: self.written_at.plus(ttl.duration()),
                acquired_at: self.acquired_at,
                fencing_token: token,
                metadata: self.metadata,
                principal: self.principal,
            },
            mark,
            ttl,
            act: self.act,
            written_at: self.written_at,
            by: self.by,
            clock: Duration::from_millis(self.clock),
            spare: Duration::from_millis(self.spare),
        })
    }

    /// The value as it is stored.
    pub(super) fn encode(&self) -> Vec<u8> {
        encode(self)
    }
}

impl Version {
    /// The lock in this key and value.
    pub(super) fn read(resource: &Resource, kv: &KeyValue) -> Result<Self, Unreadable> {
        match serde_json::from_slice::<Record>(kv.value()) {
            Ok(record) => record.into_version(resource, kv.mod_revision(), kv.lease()),
            Err(error) => Err(Unreadable {
                resource: resource.clone(),
                reason: error.to_string(),
            }),
        }
    }
}

/// The value of the `note` key: what ended in the transaction that wrote it, and why, since the deletion of a
/// key says neither. An entry whose lock the same transaction did not touch is of a change that did not happen.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Note {
    pub(super) by: u64,
    /// Tells this transaction from every other of the same server.
    pub(super) sequence: u64,
    pub(super) at: Timestamp,
    pub(super) ended: Vec<Ended>,
}

/// A lock that ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ended {
    pub(super) kind: EventKind,
    pub(super) lock: Lock,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<Reason>,
}

impl Note {
    /// The value as it is stored.
    pub(super) fn encode(&self) -> Vec<u8> {
        encode(self)
    }
}

#[expect(
    clippy::expect_used,
    reason = "names, numbers, times and metadata always have a JSON form"
)]
fn encode(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("values have a JSON form")
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
