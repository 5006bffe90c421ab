//! What this server knows of the locks, and how long each still has.
//!
//! The watch feeds this map in the order of commits; answers of transactions and reads may run ahead of the watch
//! and are taken in too, so that the next act can guess right. A guess is only that: every write compares the
//! revision that it rests on, and every answer to a caller comes from etcd. Only lists are read from here, once
//! the watch has come far enough.
//!
//! Each version of a lock is timed by this server's boot-time clock from the moment it saw it, which is never
//! before it was committed, so that no lock is taken for over too early. The server that wrote a version tries
//! to remove it at its end; the others do so a little later, so that they need not when it lives. A lock is over
//! when that removal is committed, and not before.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use ferrolho_core::Resource;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::record::{Me, Version};
pub(super) use super::table::Seen;
use super::table::Table;
use crate::ListQuery;
use crate::clock::Moment;

/// The map of all locks. Its lock is held for moments only.
pub(super) struct Locks {
    me: Me,
    table: Mutex<Table>,
    /// Says that something has changed.
    changed: watch::Sender<()>,
    /// Says that there is something to do earlier than was thought.
    pub(super) sooner: Notify,
}

impl Locks {
    pub(super) fn new(me: Me) -> Self {
        Self {
            me,
            table: Mutex::default(),
            changed: watch::Sender::new(()),
            sooner: Notify::new(),
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock()
    }

    /// Changes the table and tells all who wait for that.
    fn change<T>(&self, act: impl FnOnce(&mut Table) -> T) -> T {
        let mut table = self.table();
        let first = table.due.first().map(|(due, _)| *due);
        let done = act(&mut table);
        let sooner = match (first, table.due.first()) {
            (Some(first), Some((now, _))) => *now < first,
            (None, now) => now.is_some(),
            (Some(_), None) => false,
        };
        let sooner = sooner || !table.thin.is_empty();
        drop(table);
        self.changed.send_replace(());
        if sooner {
            self.sooner.notify_one();
        }
        done
    }

    /// The lock as it is thought to be.
    pub(super) fn guess(&self, resource: &Resource) -> Option<Seen> {
        let table = self.table();
        let known = table.locks.get(resource).filter(|known| known.gone.is_none())?;
        Some(known.seen.clone())
    }

    /// Takes in what an answer of etcd says of a lock at a revision, and returns it with its end.
    pub(super) fn learn(&self, resource: &Resource, at: i64, version: Option<Version>) -> Option<Seen> {
        self.change(|table| {
            if version.is_none() {
                table.lose(resource, at);
            }
            version.map(|version| table.see(self.me, version, None))
        })
    }

    /// Takes in what the watch says of a lock at a revision: a version, or that it is gone. Returns the version
    /// that was known to live before.
    pub(super) fn deliver(
        &self,
        resource: &Resource,
        revision: i64,
        version: Option<Version>,
    ) -> Option<Seen> {
        let before = self.change(|table| {
            let before = table.locks.get(resource).map(|known| known.seen.clone());
            match version {
                Some(version) => {
                    table.see(self.me, version, None);
                }
                None => {
                    table.remove(resource, revision);
                }
            }
            before
        });
        before.filter(|seen| seen.version.revision < revision)
    }

    /// Says that the watch has delivered everything up to a revision.
    pub(super) fn reach(&self, revision: i64) {
        self.change(|table| table.revision = table.revision.max(revision));
    }

    /// Up to which revision the watch has delivered everything.
    pub(super) fn revision(&self) -> i64 {
        self.table().revision
    }

    /// How many keys are known.
    pub(super) fn count(&self) -> usize {
        self.table().locks.len()
    }

    /// Whether this version is known, or a later one.
    pub(super) fn knows(&self, version: &Version) -> bool {
        let table = self.table();
        table
            .locks
            .get(&version.lock.resource)
            .is_some_and(|known| known.seen.version.revision >= version.revision)
    }

    /// Takes in a whole reading: every lock there is at a revision, each with what it still has where that is
    /// known better than by its lifetime. Returns whether it differs from what was known.
    pub(super) fn replace(&self, revision: i64, all: Vec<(Version, Option<Duration>)>) -> bool {
        self.change(|table| {
            let mut differs = false;
            let mut vanished: BTreeSet<Resource> = table.locks.keys().cloned().collect();
            for (version, left) in all {
                let known = table.locks.get(&version.lock.resource);
                differs |= known.is_none_or(|known| known.seen.version.revision < version.revision);
                vanished.remove(&version.lock.resource);
                table.see(self.me, version, left);
            }
            for resource in vanished {
                differs |= table.remove(&resource, revision);
            }
            table.revision = table.revision.max(revision);
            differs
        })
    }

    /// Waits until the watch has delivered a revision; false when it has not by `until`.
    pub(super) async fn reached(&self, revision: i64, until: Instant) -> bool {
        self.wait(until, |table| table.revision >= revision).await
    }

    /// Waits until a version is not there any more; false when it still is by `until`.
    pub(super) async fn ended(&self, version: &Version, until: Instant) -> bool {
        self.wait(until, |table| !table.lives(version)).await
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

    /// Up to `limit` versions whose removal is due, and when to ask again. Each comes again after `pause`, unless
    /// it is known to be gone by then.
    pub(super) fn take_due(&self, limit: usize, pause: Duration) -> (Vec<Arc<Version>>, Option<Moment>) {
        let now = Moment::now();
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

    /// The versions whose lease does not last, each once.
    pub(super) fn take_thin(&self) -> Vec<Arc<Version>> {
        std::mem::take(&mut self.table().thin)
    }

    /// Has a version tried again whose lease does not last, if it is still the one.
    pub(super) fn still_thin(&self, version: Arc<Version>) {
        self.change(|table| {
            if table.lives(&version) {
                table.thin.push(version);
            }
        });
    }

    /// Has the removal of a version tried before all others, unless it is being tried already.
    pub(super) fn hasten(&self, version: &Version) {
        self.change(|table| {
            let resource = &version.lock.resource;
            if table.lives(version) && table.locks.get(resource).is_some_and(|known| !known.tried) {
                let now = Moment::now();
                let first = table.due.first().map_or(now, |(due, _)| now.min(*due));
                let due = first.just_before();
                table.reschedule(resource, due, false);
            }
        });
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
