//! From changes to steps: whether a change may be tried on what is known, and what it then does to its key.

use std::sync::Arc;

use ferrolho_core::{Change, EventKind, Expected, Grant, Lock, Reason, Resource, Ttl, Write};
use tokio::time::Instant;

use super::known::Seen;
use super::record::{Ended, Version};

/// Steps that are done together or not at all: one nested transaction.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) steps: Vec<Step>,
    /// It must not begin after this.
    pub(super) not_after: Instant,
}

/// What is done to one key if it still is what it was.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) resource: Resource,
    /// The version that must be there; none: the key must not exist.
    pub(super) from: Option<Arc<Version>>,
    pub(super) to: To,
    /// What this ends, for those who watch.
    pub(super) ended: Option<Ended>,
}

/// What becomes of the key.
#[derive(Clone, Debug)]
pub(super) enum To {
    /// A new grant.
    Grant(Grant),
    /// The same grant with a new end.
    Extend(Arc<Version>, Ttl),
    /// The same grant with the same end under a lease that lasts.
    Keep(Arc<Version>),
    /// No key.
    Remove,
}

impl To {
    /// The life that a lease has to cover.
    pub(super) fn ttl(&self) -> Option<Ttl> {
        match self {
            Self::Grant(grant) => Some(grant.ttl),
            Self::Extend(_, ttl) => Some(*ttl),
            Self::Keep(version) => Some(version.ttl),
            Self::Remove => None,
        }
    }
}

impl Group {
    /// Whether it only removes, which etcd does even when it is out of space.
    pub(super) fn only_removes(&self) -> bool {
        self.steps.iter().all(|step| matches!(step.to, To::Remove))
    }
}

/// Whether every change finds what it expects.
pub(super) fn all_hold(changes: &[Change], current: &[Option<Seen>]) -> bool {
    changes
        .iter()
        .zip(current)
        .all(|(change, seen)| holds(change, seen.as_ref().map(|seen| &seen.version.lock)))
}

fn holds(change: &Change, lock: Option<&Lock>) -> bool {
    match (&change.expected, lock) {
        (Expected::Free, None) => true,
        (Expected::HeldBy(claim), Some(lock)) => claim.is_true_of(lock),
        (Expected::Token(token), Some(lock)) => *token == lock.fencing_token,
        (Expected::Free, Some(_)) | (Expected::HeldBy(_) | Expected::Token(_), None) => false,
    }
}

/// The steps of changes that all hold on what is known; nothing when one does not.
pub(super) fn plan(changes: &[Change], current: &[Option<Seen>]) -> Option<Vec<Step>> {
    if !all_hold(changes, current) {
        return None;
    }
    let steps = changes
        .iter()
        .zip(current)
        .map(|(change, seen)| step(change, seen.as_ref()));
    Some(steps.collect())
}

fn step(change: &Change, seen: Option<&Seen>) -> Step {
    let from = seen.map(|seen| seen.version.clone());
    let to = match (&change.write, &from) {
        (Write::Grant(grant), _) => To::Grant(grant.clone()),
        (Write::Extend(ttl), Some(version)) => To::Extend(version.clone(), *ttl),
        // The end of no lock is moved by leaving no lock.
        (Write::Extend(_), None) | (Write::Remove, _) => To::Remove,
    };
    let kind = change.event_kinds().first().copied();
    let ended = match (kind, &from) {
        (Some(kind @ (EventKind::Released | EventKind::Forced)), Some(version)) => {
            Some(ended(version, kind, change.reason()))
        }
        _ => None,
    };
    Step {
        resource: change.resource.clone(),
        from,
        to,
        ended,
    }
}

/// The removal of a lock whose life is over.
pub(super) fn expiry(version: Arc<Version>) -> Step {
    Step {
        resource: version.lock.resource.clone(),
        ended: Some(ended(&version, EventKind::Expired, None)),
        from: Some(version),
        to: To::Remove,
    }
}

/// A lock put under a lease that lasts.
pub(super) fn keeping(version: Arc<Version>) -> Step {
    Step {
        resource: version.lock.resource.clone(),
        from: Some(version.clone()),
        to: To::Keep(version),
        ended: None,
    }
}

fn ended(version: &Version, kind: EventKind, reason: Option<Reason>) -> Ended {
    Ended {
        kind,
        lock: version.lock.clone(),
        reason,
    }
}
