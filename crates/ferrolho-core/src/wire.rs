//! The bodies that travel over HTTP, as both sides write and read them.
//!
//! The server reads request bodies with more care than this (see its `http::form`): every wrong, unknown or
//! doubled key is refused by name.

use serde::{Deserialize, Serialize};

use crate::{Event, FencingToken, Lock, Metadata, Owner, Principal, Reason, Resource, Timestamp};

/// The body of `POST /locks/{resource}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcquireBody {
    /// Who wants it.
    pub owner: Owner,
    /// For how long, in seconds.
    pub ttl_seconds: u32,
    /// How long to wait for it, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_seconds: Option<u32>,
    /// What to note on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Metadata>,
}

/// The body of `POST /locks`: all of them or none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcquireSetBody {
    /// Which locks, 1 to 32, none twice.
    pub resources: Vec<Resource>,
    /// The rest, as for one lock.
    #[serde(flatten)]
    pub acquire: AcquireBody,
}

/// The body of a release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReleaseBody {
    /// Who gives it back.
    pub owner: Owner,
    /// Which grant; any of the owner's when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fencing_token: Option<FencingToken>,
}

/// The body of a renewal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenewBody {
    /// Who renews.
    pub owner: Owner,
    /// The new lifetime from now, in seconds.
    pub ttl_seconds: u32,
    /// Which grant; any of the owner's when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fencing_token: Option<FencingToken>,
}

/// The body of a forced release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForceReleaseBody {
    /// Why.
    pub reason: Reason,
}

/// The body of `POST /owners/{owner}/renew`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenewOwnerBody {
    /// The new lifetime from now, in seconds, of each lock.
    pub ttl_seconds: u32,
}

/// The answer to an acquire: the lock when it was acquired, else the resource that another holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcquireAnswer {
    /// Whether the caller holds the lock now.
    pub acquired: bool,
    /// The lock, when acquired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock: Option<Lock>,
    /// The resource, when not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<Resource>,
}

/// The answer to an acquire of several locks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcquireSetAnswer {
    /// Whether the caller holds all of them now. If not, it got none.
    pub acquired: bool,
    /// The locks in the order asked for, when acquired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locks: Option<Vec<Lock>>,
    /// The resources that others hold or wait for, when not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Vec<Resource>>,
}

/// A page of locks, ordered by the bytes of their resources.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockList {
    /// The locks.
    pub locks: Vec<Lock>,
    /// Where the next page begins; null on the last.
    pub next_cursor: Option<String>,
}

/// The answer to `POST /owners/{owner}/renew`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RenewedLocks {
    /// Those renewed.
    pub locks: Vec<Lock>,
}

/// The answer to `DELETE /owners/{owner}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReleasedLocks {
    /// Those released.
    pub released: Vec<Resource>,
}

/// Who waits for a lock on the server that was asked, in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaiterList {
    /// The first is the next to get it.
    pub waiters: Vec<Waiter>,
}

/// The answer to `GET /whoami`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WhoAmI {
    /// As whom the caller takes locks; null without authentication.
    pub principal: Option<Principal>,
    /// What it may do: `acquire`, `read`, `admin`.
    pub rights: Vec<String>,
    /// To which locks: names, or beginnings of names with a `*` behind.
    pub allow: Vec<String>,
}

/// The answer to `GET /waiters`, ordered by the bytes of the resources.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineList {
    /// One for each resource that anybody waits for.
    pub lines: Vec<Line>,
}

/// A line of those who wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// For what.
    pub resource: Resource,
    /// How many owners wait for it on this server.
    pub waiters: usize,
}

/// The answer to `GET /locks/{resource}/events`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventList {
    /// The oldest first.
    pub events: Vec<PastEvent>,
}

/// An event with its id, which `Last-Event-ID` understands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastEvent {
    /// Opaque.
    pub id: String,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

/// One who waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiter {
    /// Its owner's name.
    pub owner: Owner,
    /// Since when it has had its place.
    pub since: Timestamp,
    /// How long its newest request will wait in all, in seconds.
    pub wait_seconds: u32,
}

/// A problem (RFC 9457): every error that answers a request has this form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// A page about the kind of problem: `/problems/<code>`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The kind in words.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What happened here and what to do.
    pub detail: String,
    /// The path that was asked.
    pub instance: String,
    /// The kind for programs.
    pub code: String,
    /// The request's id, which the server's log has too.
    pub request_id: String,
    /// For `validation-failed`: every field that is wrong.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldError>,
    /// When a limit refused the request: the limit's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
}

/// One wrong field of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldError {
    /// Its name.
    pub field: String,
    /// The kind of error, for programs.
    pub code: String,
    /// What is wrong and what would be right.
    pub message: String,
}
