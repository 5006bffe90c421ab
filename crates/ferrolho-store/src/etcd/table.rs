//! The map itself: one entry for each key, in whatever order the news of it comes.
//!
//! News come from the watch, in order but late, and from answers, which may be ahead of the watch. The newest
//! revision wins. A lock that an answer has found gone is kept as gone until the watch brings its end too, so
//! that news from before cannot bring it back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::leases::margin;
use super::record::{Act, Me, Version};
use crate::clock::Moment;
use ferrolho_core::{Live, Resource};

/// By how much the servers that did not write a version let the one that did go first, in milliseconds.
const OTHERS_LATER_MILLIS: std::ops::Range<u64> = 100..300;

/// A version of a lock and when it ends by this server's clock: for what is there, at the latest; for what this
/// server has just answered, at the earliest.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) version: Arc<Version>,
    pub(super) ends: Moment,
}

impl Seen {
    /// Whether its life is over, though its removal may not be committed yet.
    pub(super) fn is_overdue(&self, now: Moment) -> bool {
        self.ends <= now
    }

    /// The lock as it is reported.
    pub(super) fn live(&self, now: Moment) -> Live {
        Live {
            lock: self.version.lock.clone(),
            mark: self.version.mark.clone(),
            left: self.ends.since(now),
        }
    }
}

/// What is known of one key.
pub(super) struct Known {
    /// The last version that lived.
    pub(super) seen: Seen,
    /// At which revision it was known to be gone, while the watch has not said so yet.
    pub(super) gone: Option<i64>,
    /// When its removal is due to be tried, or tried again.
    pub(super) due: Moment,
    /// Its removal is being tried.
    pub(super) tried: bool,
}

#[derive(Default)]
pub(super) struct Table {
    /// Everything up to here has been delivered by the watch.
    pub(super) revision: i64,
    pub(super) locks: BTreeMap<Resource, Known>,
    pub(super) due: BTreeSet<(Moment, Resource)>,
    /// Versions of this server whose lease does not last.
    pub(super) thin: Vec<Arc<Version>>,
}

impl Table {
    /// Whether this version is thought to be there.
    pub(super) fn lives(&self, version: &Version) -> bool {
        let known = self.locks.get(&version.lock.resource);
        known.is_some_and(|known| known.gone.is_none() && known.seen.version.revision == version.revision)
    }

    /// Takes in a version that was seen now, unless something newer is known.
    pub(super) fn see(&mut self, me: Me, version: Version, left: Option<Duration>) -> Seen {
        let now = Moment::now();
        let resource = version.lock.resource.clone();
        let mut ends = now + left.unwrap_or(version.ttl.duration());
        if let Some(known) = self.locks.get(&resource) {
            let before = &known.seen.version;
            if before.revision == version.revision {
                return known.seen.clone();
            }
            if known.gone.unwrap_or(before.revision) >= version.revision {
                let version = version.into();
                return Seen { version, ends };
            }
            // A lock that was put under another lease ends when it would have.
            if version.act == Act::Kept && version.lock == before.lock {
                ends = known.seen.ends;
            }
        }
        let is_mine = version.by == me.number;
        let later = Duration::from_millis(rand::random_range(OTHERS_LATER_MILLIS));
        let due = if is_mine { ends } else { ends + later };
        let lease_ends = me.started + version.clock + version.ttl.duration() + version.spare;
        let seen = Seen {
            version: version.into(),
            ends,
        };
        if is_mine && lease_ends < ends + margin(seen.version.ttl) {
            self.thin.push(seen.version.clone());
        }
        self.forget(&resource);
        self.due.insert((due, resource.clone()));
        let known = Known {
            seen: seen.clone(),
            gone: None,
            due,
            tried: false,
        };
        self.locks.insert(resource, known);
        seen
    }

    /// Notes that a lock was not there at a revision. Only a lock that is thought to live is worth the note: the
    /// watch will bring its end.
    pub(super) fn lose(&mut self, resource: &Resource, at: i64) {
        if let Some(known) = self.locks.get_mut(resource)
            && known.seen.version.revision <= at
        {
            known.gone = Some(known.gone.unwrap_or(at).max(at));
            let entry = (known.due, resource.clone());
            self.due.remove(&entry);
        }
    }

    /// Forgets a lock that was removed at a revision, unless something newer is known. Returns whether it did.
    pub(super) fn remove(&mut self, resource: &Resource, revision: i64) -> bool {
        let known = self.locks.get(resource);
        let is_older = known.is_some_and(|known| known.seen.version.revision <= revision);
        if is_older {
            self.forget(resource);
        }
        is_older
    }

    fn forget(&mut self, resource: &Resource) {
        if let Some(known) = self.locks.remove(resource) {
            self.due.remove(&(known.due, resource.clone()));
        }
    }

    pub(super) fn reschedule(
        &mut self,
        resource: &Resource,
        due: Moment,
        tried: bool,
    ) -> Option<Arc<Version>> {
        let known = self.locks.get_mut(resource)?;
        known.tried = tried;
        let before = std::mem::replace(&mut known.due, due);
        self.due.remove(&(before, resource.clone()));
        self.due.insert((due, resource.clone()));
        Some(known.seen.version.clone())
    }
}

#[cfg(test)]
mod tests {
    use ferrolho_core::{Grant, Holder, Mark, Owner, Timestamp, Ttl};

    use super::super::record::{Pen, Record};
    use super::*;

    const LASTS: Duration = Duration::from_mins(1);

    fn me() -> Me {
        Me {
            number: 1,
            started: Moment::now(),
        }
    }

    fn name() -> Resource {
        Resource::new("r").unwrap()
    }

    fn pen(by: u64, spare: Duration) -> Pen {
        Pen {
            by,
            now: Timestamp::from_micros(0),
            clock: Duration::ZERO,
            base: 0,
            spare,
        }
    }

    fn granted(revision: i64, pen: Pen) -> Version {
        let holder = Holder {
            owner: Owner::new("a").unwrap(),
            principal: None,
        };
        let grant = Grant {
            holder,
            ttl: Ttl::new(30, Ttl::MAX).unwrap(),
            metadata: None,
            mark: Mark::Random(1),
        };
        Record::grant(&grant, pen)
            .into_version(&name(), revision, 1)
            .unwrap()
    }

    fn living(table: &Table) -> Option<i64> {
        let known = table.locks.get(&name())?;
        known.gone.is_none().then_some(known.seen.version.revision)
    }

    #[test]
    fn old_news_bring_nothing_back_and_take_nothing_away() {
        let (me, pen) = (me(), pen(1, LASTS));
        let mut table = Table::default();
        table.see(me, granted(5, pen), None);
        // An answer is ahead of the watch: gone at 9. The watch then brings what was before.
        table.lose(&name(), 9);
        assert_eq!(living(&table), None);
        table.remove(&name(), 6);
        table.see(me, granted(7, pen), None);
        table.remove(&name(), 8);
        assert_eq!((living(&table), table.due.len()), (None, 0));
        // An answer is ahead with a newer version.
        table.see(me, granted(12, pen), None);
        table.remove(&name(), 11);
        table.lose(&name(), 11);
        table.see(me, granted(10, pen), None);
        assert_eq!((living(&table), table.due.len()), (Some(12), 1));
        table.lose(&name(), 13);
        table.see(me, granted(14, pen), None);
        assert_eq!((living(&table), table.due.len()), (Some(14), 1));
    }

    #[test]
    fn the_writer_tries_first_and_the_others_a_little_later() {
        let mut table = Table::default();
        for (by, later) in [(1, 0..1), (2, 100..300)] {
            let seen = table.see(me(), granted(i64::try_from(by).unwrap(), pen(by, LASTS)), None);
            let (due, _) = table.due.first().unwrap();
            let wait = u64::try_from(due.since(seen.ends).as_millis()).unwrap();
            assert!(later.contains(&wait), "{wait} ms later");
        }
    }

    #[test]
    fn a_life_begins_when_its_version_is_seen_and_not_when_it_is_kept() {
        let (me, pen) = (me(), pen(2, LASTS));
        let mut table = Table::default();
        let first = table.see(me, granted(5, pen), None);
        assert_eq!(table.see(me, granted(5, pen), None).ends, first.ends);
        let kept = Record::kept(&first.version, pen)
            .into_version(&name(), 6, 2)
            .unwrap();
        assert_eq!(table.see(me, kept, None).ends, first.ends);
        let renewed = Record::renewed(&first.version, first.version.ttl, pen);
        let renewed = table.see(me, renewed.into_version(&name(), 7, 2).unwrap(), None);
        assert!(renewed.ends > first.ends);
        assert_eq!(
            renewed.version.lock.fencing_token,
            first.version.lock.fencing_token
        );
    }

    #[test]
    fn a_version_of_ours_whose_lease_would_end_first_is_thin() {
        let mut table = Table::default();
        table.see(me(), granted(5, pen(1, LASTS)), None);
        table.see(me(), granted(6, pen(2, Duration::ZERO)), None);
        assert!(table.thin.is_empty());
        table.see(me(), granted(7, pen(1, Duration::from_secs(9))), None);
        assert_eq!(table.thin.len(), 1);
    }
}
