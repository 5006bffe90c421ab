//! From etcd's events to ours.
//!
//! What a put did stands in its value; what a removal was stands in the note of the same revision. A removal
//! without a note is one of a lease, or one made while etcd is out of space: then the lock is the one that was
//! known, and it ended by itself if its life was over.

use std::time::Duration;

use etcd_client::{Event as EtcdEvent, EventType, KeyValue};
use ferrolho_core::{Event, EventKind, Lock, Position, Reason, Resource, Timestamp};
use tracing::warn;

use super::keys::Keys;
use super::known::{Locks, Seen};
use super::record::{Act, Ended, Note, Version};
use crate::clock::{Moment, wall_now};

/// How long before the end of its life, as this server counts it, a lock counts as over when it goes without a
/// note: another server saw it earlier.
const JUST_BEFORE: Duration = Duration::from_millis(500);

/// What one revision brought.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) events: Vec<Event>,
    /// Something happened that cannot be told.
    pub(super) is_incomplete: bool,
}

/// Takes in all events of one revision and tells them in our terms.
pub(super) fn take(keys: &Keys, locks: &Locks, epoch: u64, revision: i64, events: &[EtcdEvent]) -> Told {
    let mut note = note_of(keys, events);
    let mut teller = Teller {
        epoch,
        commit: u64::try_from(revision).unwrap_or(0),
        told: Told::default(),
    };
    for event in events {
        let Some(kv) = event.kv() else { continue };
        let Some(resource) = keys.resource(kv.key()) else {
            continue;
        };
        let at = note.as_ref().map_or_else(wall_now, |note| note.at);
        let ended = note.as_mut().and_then(|note| take_ended(note, &resource));
        match event.event_type() {
            EventType::Put => teller.put(locks, &resource, kv, ended, at),
            EventType::Delete => teller.delete(locks, &resource, revision, ended, at),
        }
    }
    teller.told
}

fn note_of(keys: &Keys, events: &[EtcdEvent]) -> Option<Note> {
    let kv = events
        .iter()
        .filter_map(EtcdEvent::kv)
        .find(|kv| kv.key() == keys.note)?;
    match serde_json::from_slice(kv.value()) {
        Ok(note) => Some(note),
        Err(error) => {
            warn!(%error, "a note in etcd cannot be read");
            None
        }
    }
}

fn take_ended(note: &mut Note, resource: &Resource) -> Option<Ended> {
    let index = note
        .ended
        .iter()
        .position(|ended| ended.lock.resource == *resource)?;
    Some(note.ended.swap_remove(index))
}

struct Teller {
    epoch: u64,
    commit: u64,
    told: Told,
}

impl Teller {
    fn put(
        &mut self,
        locks: &Locks,
        resource: &Resource,
        kv: &KeyValue,
        ended: Option<Ended>,
        at: Timestamp,
    ) {
        let version = match Version::read(resource, kv) {
            Ok(version) => version,
            Err(error) => {
                warn!(%error, "a lock in etcd is not shown");
                self.told.is_incomplete = true;
                return;
            }
        };
        let kind = match version.act {
            Act::Granted => Some(EventKind::Acquired),
            Act::Renewed => Some(EventKind::Renewed),
            Act::Kept => None,
        };
        let (lock, written_at) = (version.lock.clone(), version.written_at);
        locks.deliver(resource, kv.mod_revision(), Some(version));
        if let Some(ended) = ended {
            self.tell(ended.kind, ended.lock, at, ended.reason);
        }
        if let Some(kind) = kind {
            self.tell(kind, lock, written_at, None);
        }
    }

    fn delete(
        &mut self,
        locks: &Locks,
        resource: &Resource,
        revision: i64,
        ended: Option<Ended>,
        at: Timestamp,
    ) {
        let before = locks.deliver(resource, revision, None);
        match (ended, before) {
            (Some(ended), _) => self.tell(ended.kind, ended.lock, at, ended.reason),
            (None, Some(seen)) => {
                let kind = kind_of_end(&seen);
                self.tell(kind, seen.version.lock.clone(), at, None);
            }
            (None, None) => self.told.is_incomplete = true,
        }
    }

    fn tell(&mut self, kind: EventKind, lock: Lock, at: Timestamp, reason: Option<Reason>) {
        self.told.events.push(Event {
            position: Position {
                epoch: self.epoch,
                commit: self.commit,
                index: u32::try_from(self.told.events.len()).unwrap_or(u32::MAX),
            },
            kind,
            resource: lock.resource.clone(),
            lock,
            at,
            reason,
        });
    }
}

fn kind_of_end(seen: &Seen) -> EventKind {
    if seen.is_overdue(Moment::now() + JUST_BEFORE) {
        EventKind::Expired
    } else {
        EventKind::Released
    }
}
