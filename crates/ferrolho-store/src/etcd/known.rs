//! What this server knows of the locks, and how long each still has.
//!
//! The watch feeds this map in the order of commits; answers of transactions and reads may run ahead of the watch
//! and are taken in too, so that the next act can guess right. A guess is only that: every write compares the
//! revision that it rests on, and every answer to a caller comes from etcd. Only lists are read from here, once
//! the watch has come far enough.
//!
//! Each version of a lock is timed by this server's monotonic clock from the moment it saw it, which is never
//! before it was committed, so that no lock is taken for over too early. The server that wrote a version tries
//! to remove it at its end; the others do so a little later, so that they need not when it lives. A lock is over
//! when that removal is committed, and not before.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ferrolho_core::{Live, Resource};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::record::{Act, Version};
use crate::ListQuery;

/// By how much the servers that did not write a version let the one that did go first, in milliseconds.
const OTHERS_LATER_MILLIS: std::ops::Range<u64> = 100..300;

/// A version of a lock and when it ends by this server's clock.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) version: Arc<Version>,
    pub(super) ends: Instant,
}

impl Seen {
    /// Whether its life is over, though its removal may not be committed yet.
    pub(super) fn is_overdue(&self, now: Instant) -> bool {
        self.ends <= now
    }

    /// The lock as it is reported.
    pub(super) fn live(&self, now: Instant) -> Live {
        Live {
            lock: self.version.lock.clone(),
            mark: self.version.mark.clone(),
            left: self.ends.saturating_duration_since(now),
        }
    }
}

/// What is known of one key.
struct Known {
    /// The last version that lived.
    seen: Seen,
    /// At which revision it was known to be gone, while the watch has not said so yet.
    gone: Option<i64>,
    /// When its removal is due to be tried, or tried again.
    due: Instant,
    /// Its removal is being tried.
    tried: bool,
}

#[derive(Default)]
struct Table {
    /// Everything up to here has been delivered by the watch.
    revision: i64,
    locks: BTreeMap<Resource, Known>,
    due: BTreeSet<(Instant, Resource)>,
}

/// The map of all locks. Its lock is held for moments only.
pub(super) struct Locks {
    /// The number of this server.
    me: u64,
    table: Mutex<Table>,
    /// Says that something has changed.
    changed: watch::Sender<()>,
    /// Says that a removal may be due earlier than was thought.
    pub(super) sooner: Notify,
}

impl Locks {
    pub(super) fn new(me: u64) -> Self {
        Self {
            me,
            table: Mutex::default(),
            changed: watch::Sender::new(()),
            sooner: Notify::new(),
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Nothing in here panics halfway through a change.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lock as it is thought to be.
    pub(super) fn guess(&self, resource: &Resource) -> Option<Seen> {
        let table = self.table();
        let known = table.locks.get(resource).filter(|known| known.gone.is_none())?;
        Some(known.seen.clone())
    }

    /// Takes in what an answer of etcd says of a lock at a revision, and returns it with its end.
    pub(super) fn learn(&self, resource: &Resource, at: i64, version: Option<Version>) -> Option<Seen> {
        let seen = {
            let mut table = self.table();
            match version {
                Some(version) => Some(table.see(self.me, resource, version, None)),
                None => {
                    table.lose(resource, at);
                    None
                }
            }
        };
        self.tell();
        seen
    }

    /// Takes in what the watch says of a lock at a revision: a version, or that it is gone. Returns the version
    /// that was known to live before.
    pub(super) fn deliver(&self, resource: &Resource, revision: i64, version: Option<Version>) -> Option<Seen> {
        let before = {
            let mut table = self.table();
            let before = table.locks.get(resource).map(|known| known.seen.clone());
            match version {
                Some(version) => {
                    table.see(self.me, resource, version, None);
                }
                None => table.remove(resource, revision),
            }
            before
        };
        before.filter(|seen| seen.version.revision < revision)
    }

    /// Says that the watch has delivered everything up to a revision.
    pub(super) fn reach(&self, revision: i64) {
        let mut table = self.table();
        table.revision = table.revision.max(revision);
        drop(table);
        self.tell();
    }

    /// Up to which revision the watch has delivered everything.
    pub(super) fn revision(&self) -> i64 {
        self.table().revision
    }

    /// How many keys are known.
    pub(super) fn count(&self) -> usize {
        self.table().locks.len()
    }

    /// Whether this very version is known.
    pub(super) fn knows(&self, resource: &Resource, version: &Version) -> bool {
        let table = self.table();
        table.locks.get(resource).is_some_and(|known| known.seen.version.revision >= version.revision)
    }

    /// Takes in a whole reading: every lock there is at a revision, each with what it still has where that is
    /// known better than by its lifetime. Returns whether it differs from what was known.
    pub(super) fn replace(&self, revision: i64, all: Vec<(Version, Option<Duration>)>) -> bool {
        let mut differs = false;
        let mut table = self.table();
        let mut vanished: BTreeSet<Resource> = table.locks.keys().cloned().collect();
        for (version, left) in all {
            let resource = version.lock.resource.clone();
            vanished.remove(&resource);
            let known = table.locks.get(&resource);
            differs |= known.is_none_or(|known| known.seen.version.revision < version.revision);
            table.see(self.me, &resource, version, left);
        }
        for resource in vanished {
            let revision_of = |known: &Known| known.seen.version.revision;
            if table.locks.get(&resource).is_some_and(|known| revision_of(known) <= revision) {
                table.remove(&resource, revision);
                differs = true;
            }
        }
        table.revision = table.revision.max(revision);
        drop(table);
        self.tell();
        differs
    }

    /// Waits until the watch has delivered a revision; false when it has not by `until`.
    pub(super) async fn reached(&self, revision: i64, until: Instant) -> bool {
        self.wait(until, |table| table.revision >= revision).await
    }

    /// Has a lock removed now whose life is over, and waits until it is; false when it is not by `until`.
    pub(super) async fn ended(&self, seen: &Seen, until: Instant) -> bool {
        let resource = &seen.version.lock.resource;
        self.hasten(resource, seen.version.revision);
        self.wait(until, |table| {
            table.locks.get(resource).is_none_or(|known| {
                known.gone.is_some() || known.seen.version.revision != seen.version.revision
            })
        })
        .await
    }

    async fn wait(&self, until: Instant, is_so: impl Fn(&Table) -> bool) -> bool {
        let mut changed = self.changed.subscribe();
        tokio::time::timeout_at(until, async {
            while !is_so(&self.table()) {
                // The sender lives as long as this map.
                let _ = changed.changed().await;
            }
        })
        .await
        .is_ok()
    }

    fn tell(&self) {
        self.changed.send_replace(());
    }

    /// Up to `limit` versions whose removal is due, and when to ask again. Each comes again after `pause`, unless
    /// it is known to be gone by then.
    pub(super) fn take_due(&self, limit: usize, pause: Duration) -> (Vec<Arc<Version>>, Option<Instant>) {
        let now = Instant::now();
        let mut table = self.table();
        let mut taken = Vec::new();
        while taken.len() < limit {
            match table.due.first() {
                Some((due, resource)) if *due <= now => {
                    let resource = resource.clone();
                    taken.extend(table.reschedule(&resource, now + pause, true));
                }
                _ => break,
            }
        }
        (taken, table.due.first().map(|(due, _)| *due))
    }

    /// Has the removal of a version tried now, unless it is being tried already.
    fn hasten(&self, resource: &Resource, revision: i64) {
        let mut table = self.table();
        let known = table.locks.get(resource);
        let waits = |known: &Known| known.gone.is_none() && !known.tried && known.seen.version.revision == revision;
        if known.is_some_and(waits) {
            table.reschedule(resource, Instant::now(), false);
            self.sooner.notify_one();
        }
    }

    /// Looks at up to `budget` locks behind `after`, or from the query's beginning on, and returns those that the
    /// query wants, in order, and the last one looked at if there are more.
    pub(super) fn scan(
        &self,
        query: &ListQuery,
        after: Option<&Resource>,
        budget: usize,
    ) -> (Vec<Seen>, Option<Resource>) {
        let table = self.table();
        let start = match after {
            Some(after) if after.as_str() >= query.prefix.as_str() => Bound::Excluded(after.as_str()),
            _ => Bound::Included(query.prefix.as_str()),
        };
        let mut looked_at = table
            .locks
            .range::<str, _>((start, Bound::Unbounded))
            .take_while(|(resource, _)| resource.as_str().starts_with(&query.prefix));
        let mut wanted = Vec::new();
        let mut last = None;
        for (resource, known) in looked_at.by_ref().take(budget) {
            last = Some(resource.clone());
            if known.gone.is_none() && query.wants(&known.seen.version.lock) {
                wanted.push(known.seen.clone());
            }
        }
        let last = last.filter(|_| looked_at.next().is_some());
        (wanted, last)
    }
}

impl Table {
    /// Takes in a version that was seen now, unless something newer is known.
    fn see(&mut self, me: u64, resource: &Resource, version: Version, left: Option<Duration>) -> Seen {
        let now = Instant::now();
        let known = self.locks.get(resource);
        if let Some(known) = known {
            let newest = known.gone.unwrap_or(known.seen.version.revision);
            if newest >= version.revision {
                let ends = now + left.unwrap_or(version.ttl.duration());
                let same = known.seen.version.revision == version.revision;
                return if same { known.seen.clone() } else { Seen { version: version.into(), ends } };
            }
        }
        let ends = match known {
            // A lock that was put under another lease ends when it would have.
            Some(known) if version.act == Act::Kept && version.lock == known.seen.version.lock => known.seen.ends,
            _ => now + left.unwrap_or(version.ttl.duration()),
        };
        let due = if version.by == me {
            ends
        } else {
            ends + Duration::from_millis(rand::random_range(OTHERS_LATER_MILLIS))
        };
        let seen = Seen {
            version: version.into(),
            ends,
        };
        self.forget(resource);
        self.due.insert((due, resource.clone()));
        let known = Known {
            seen: seen.clone(),
            gone: None,
            due,
            tried: false,
        };
        self.locks.insert(resource.clone(), known);
        seen
    }

    /// Notes that a lock was not there at a revision. Only a lock that is thought to live is worth the note: the
    /// watch will bring its end.
    fn lose(&mut self, resource: &Resource, at: i64) {
        if let Some(known) = self.locks.get_mut(resource)
            && known.seen.version.revision <= at
        {
            known.gone = Some(known.gone.unwrap_or(at).max(at));
            let entry = (known.due, resource.clone());
            self.due.remove(&entry);
        }
    }

    /// Forgets a lock that was removed at a revision, unless something newer is known.
    fn remove(&mut self, resource: &Resource, revision: i64) {
        if let Some(known) = self.locks.get(resource)
            && known.seen.version.revision < revision
        {
            self.forget(resource);
        }
    }

    fn forget(&mut self, resource: &Resource) {
        if let Some(known) = self.locks.remove(resource) {
            self.due.remove(&(known.due, resource.clone()));
        }
    }

    fn reschedule(&mut self, resource: &Resource, due: Instant, tried: bool) -> Option<Arc<Version>> {
        let known = self.locks.get_mut(resource)?;
        known.tried = tried;
        let before = std::mem::replace(&mut known.due, due);
        self.due.remove(&(before, resource.clone()));
        self.due.insert((due, resource.clone()));
        Some(known.seen.version.clone())
    }
}
