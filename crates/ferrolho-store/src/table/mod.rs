//! The committed locks of an engine that keeps them in memory, and how a batch of attempts changes them.
//!
//! [`Table`] is a plain map with two indexes, pure and handed the time. It never changes by itself: a [`Batch`]
//! decides attempts against the table and its own overlay, the engine makes the batch durable however it does
//! that, and only then the batch is published into the table in one step. A batch that failed is dropped, and
//! nobody has seen it. A lock that is over stays in the table until a batch removes or replaces it, which is
//! what makes its end be reported exactly once; readers never see it.
//!
//! A million live locks have to fit into 400 MB, so a lock is stored once, behind an `Arc` that the indexes
//! share.

mod batch;
mod index;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use ferrolho_core::{Change, FencingToken, Live, Lock, Mark, Resource, Timestamp};

use crate::{ListQuery, Outcome, Page};
use index::{ByEnd, ByOwner, OwnerKey};

pub(crate) use batch::Batch;

/// A lock as an engine keeps it, whether it still lives or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) lock: Lock,
    pub(crate) mark: Mark,
}

impl Held {
    /// Whether it lives: its end is the first moment at which it is over.
    pub(crate) fn is_live(&self, now: Timestamp) -> bool {
        now < self.lock.expires_at
    }

    /// The lock as a store reports it, if it lives.
    pub(crate) fn live(&self, now: Timestamp) -> Option<Live> {
        self.is_live(now).then(|| Live {
            lock: self.lock.clone(),
            mark: self.mark.clone(),
            left: self.lock.expires_at.since(now),
        })
    }
}

/// What a read found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reading<T> {
    pub(crate) answer: T,
    /// The latest end among the locks that were taken for over though they are still in the table. While a
    /// batch is on its way to the disk it may hold a renewal of such a lock, decided in time.
    pub(crate) over_since: Option<Timestamp>,
}

impl<T> Reading<T> {
    fn new(answer: T) -> Self {
        Self {
            answer,
            over_since: None,
        }
    }

    fn pass_over(&mut self, held: &Held) {
        self.over_since = self.over_since.max(Some(held.lock.expires_at));
    }
}

/// Locks, in each of the orders that are asked for.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    resources: BTreeMap<Resource, Arc<Held>>,
    ends: BTreeSet<ByEnd>,
    owners: BTreeSet<ByOwner>,
}

/// Built in one go, which packs the nodes and is much faster than one by one.
impl FromIterator<Arc<Held>> for Locks {
    fn from_iter<I: IntoIterator<Item = Arc<Held>>>(locks: I) -> Self {
        let locks: Vec<_> = locks.into_iter().collect();
        Self {
            ends: locks.iter().cloned().map(ByEnd).collect(),
            owners: locks.iter().cloned().map(ByOwner).collect(),
            resources: locks
                .into_iter()
                .map(|held| (held.lock.resource.clone(), held))
                .collect(),
        }
    }
}

/// The committed locks.
#[derive(Debug)]
pub(crate) struct Table {
    locks: Locks,
    /// The highest token drawn so far; 0 for none.
    top_token: u64,
    /// The history that this table's positions belong to.
    epoch: u64,
    /// How many commits of it had events.
    commits: u64,
}

impl Table {
    /// A table of these locks, which draws tokens above `top_token` and starts a history of its own.
    pub(crate) fn new(locks: Locks, top_token: u64) -> Self {
        Self {
            locks,
            top_token,
            epoch: rand::random(),
            commits: 0,
        }
    }

    /// Takes these locks in the place of all that are here, which it returns, and draws tokens above `top_token`
    /// and above all that it has drawn. The history goes on.
    #[must_use = "freeing many locks takes a while, which others need not wait for"]
    pub(crate) fn replace(&mut self, locks: Locks, top_token: u64) -> Locks {
        self.top_token = self.top_token.max(top_token);
        std::mem::replace(&mut self.locks, locks)
    }

    /// The lock on a resource, whether it still lives or not.
    pub(crate) fn get(&self, resource: &Resource) -> Option<&Arc<Held>> {
        self.locks.resources.get(resource)
    }

    /// The live lock on a resource.
    pub(crate) fn find(&self, resource: &Resource, now: Timestamp) -> Reading<Option<Live>> {
        let mut reading = Reading::new(None);
        if let Some(held) = self.get(resource) {
            reading.answer = held.live(now);
            if reading.answer.is_none() {
                reading.pass_over(held);
            }
        }
        reading
    }

    /// The refusal of changes that cannot be carried out on what is committed.
    pub(crate) fn refuse(&self, changes: &[Change], now: Timestamp) -> Reading<Option<Outcome>> {
        let current: Vec<_> = changes.iter().map(|change| self.get(&change.resource)).collect();
        let mut reading = Reading::new(batch::refusal(changes, &current, now));
        for held in current.into_iter().flatten().filter(|held| !held.is_live(now)) {
            reading.pass_over(held);
        }
        reading
    }

    /// A page of the live locks, in the order of their resources' bytes. Costs in proportion to the page when
    /// only a prefix is asked for, and to what the owner holds when one is named.
    pub(crate) fn list(&self, query: &ListQuery, now: Timestamp) -> Reading<Page> {
        let after = query.after.as_ref().map_or("", Resource::as_str);
        let start = if after < query.prefix.as_str() {
            Bound::Included(query.prefix.as_str())
        } else {
            Bound::Excluded(after)
        };
        let owner = query
            .owner
            .as_ref()
            .or(query.holder.as_ref().map(|holder| &holder.owner));
        match owner {
            None => page(
                self.locks
                    .resources
                    .range::<str, _>((start, Bound::Unbounded))
                    .map(|(_, held)| held)
                    .take_while(|held| held.lock.resource.as_str().starts_with(&query.prefix)),
                query,
                now,
            ),
            Some(owner) => {
                let start = start.map(|resource| OwnerKey {
                    owner: owner.as_str(),
                    resource,
                });
                let probe = start.as_ref().map(|key| key as &dyn index::AsOwnerKey);
                page(
                    self.locks
                        .owners
                        .range::<dyn index::AsOwnerKey, _>((probe, Bound::Unbounded))
                        .map(|ByOwner(held)| held)
                        .take_while(|held| held.lock.owner == *owner)
                        .take_while(|held| held.lock.resource.as_str().starts_with(&query.prefix)),
                    query,
                    now,
                )
            }
        }
    }

    /// When the first of the locks ends, or ended.
    pub(crate) fn earliest_end(&self) -> Option<Timestamp> {
        self.locks.ends.first().map(|ByEnd(held)| held.lock.expires_at)
    }

    /// How many locks live.
    pub(crate) fn live_locks(&self, now: Timestamp) -> usize {
        self.locks.ends.len() - self.dead(now).count()
    }

    /// Sets the lock on a resource, or that there is none.
    fn put(&mut self, resource: &Resource, held: Option<Arc<Held>>) {
        let old = match held {
            Some(held) => {
                self.top_token = self.top_token.max(held.lock.fencing_token.get());
                // Each takes the place of this resource's old entry if that has the same key.
                self.locks.ends.replace(ByEnd(Arc::clone(&held)));
                self.locks.owners.replace(ByOwner(Arc::clone(&held)));
                self.locks
                    .resources
                    .insert(resource.clone(), Arc::clone(&held))
                    .map(|old| (old, Some(held)))
            }
            None => self.locks.resources.remove(resource).map(|old| (old, None)),
        };
        let Some((old, new)) = old else { return };
        let end = |held: &Held| (held.lock.expires_at, held.lock.fencing_token);
        if new.as_ref().is_none_or(|new| end(new) != end(&old)) {
            self.locks.ends.remove(&ByEnd(Arc::clone(&old)));
        }
        if new.is_none_or(|new| new.lock.owner != old.lock.owner) {
            self.locks.owners.remove(&ByOwner(old));
        }
    }

    /// The locks that are over and still here, the longest dead first.
    fn dead(&self, now: Timestamp) -> impl Iterator<Item = &Arc<Held>> {
        self.locks
            .ends
            .iter()
            .map(|ByEnd(held)| held)
            .take_while(move |held| !held.is_live(now))
    }
}

/// The first of these locks that the query wants.
fn page<'t>(locks: impl Iterator<Item = &'t Arc<Held>>, query: &ListQuery, now: Timestamp) -> Reading<Page> {
    let mut reading = Reading::new(Page {
        locks: Vec::new(),
        more: false,
    });
    for held in locks.filter(|held| query.wants(&held.lock)) {
        match held.live(now) {
            None => reading.pass_over(held),
            Some(_) if reading.answer.locks.len() == query.limit => {
                reading.answer.more = true;
                break;
            }
            Some(live) => reading.answer.locks.push(live),
        }
    }
    reading
}

/// No number below 2^53 is left for another grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the fencing tokens are used up: none is left below 2^53")]
pub(crate) struct TokensUsedUp;

/// The token after `top`.
fn next_token(top: u64) -> Result<FencingToken, TokensUsedUp> {
    FencingToken::new(i128::from(top) + 1).map_err(|_| TokensUsedUp)
}

#[cfg(test)]
mod tests;
