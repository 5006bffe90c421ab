//! One transaction for many groups of steps.
//!
//! Each group is a nested transaction: it compares the modification revision of every key that it is about, then
//! writes, or else reads what is there. So a group that fails harms no other, and its refusal is committed state.
//! Around them stands the comparison of the base, so that no token is made from an old one, and one put of
//! `note`, which names what ended. The server's limit of 128 operations counts the outer ones and those of the
//! largest group: with at most 96 changes in a batch and 32 in a group it is never met.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use etcd_client::{Compare, CompareOp, KeyValue};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::failure::{Failure, Kind};
use super::fates::{Fate, fail_all};
use super::keys::Keys;
use super::known::Locks;
use super::leases::Leases;
use super::members::Effort;
use super::plan::Group;
use super::record::{MAX_BASE, Me};
use super::requests::{Cluster, Committed, Lease, values};
use crate::{CommitMeter, StoreError};

/// The most changes in one transaction.
pub(super) const MAX_BATCH_CHANGES: usize = 96;

/// What the number that is added to tokens is, and which write made it so.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Base {
    pub(super) value: u64,
    pub(super) revision: i64,
}

/// A group with a lease for each step that puts.
pub(super) struct Ready<'a> {
    index: usize,
    pub(super) group: &'a Group,
    pub(super) leases: Vec<Option<Lease>>,
}

/// Carries groups out.
pub(super) struct Committer {
    pub(super) cluster: Arc<Cluster>,
    pub(super) keys: Keys,
    pub(super) locks: Arc<Locks>,
    leases: Arc<Leases>,
    pub(super) me: Me,
    pub(super) meter: Arc<CommitMeter>,
    base: Mutex<Base>,
    /// The highest revision that `note` is known to have had.
    noted: AtomicI64,
    /// Counts this server's transactions.
    pub(super) sequence: AtomicU64,
}

impl Committer {
    pub(super) fn new(cluster: Arc<Cluster>, keys: Keys, locks: Arc<Locks>, me: Me) -> Self {
        Self {
            leases: Arc::new(Leases::new(Arc::clone(&cluster))),
            cluster,
            keys,
            locks,
            me,
            meter: Arc::default(),
            base: Mutex::default(),
            noted: AtomicI64::new(0),
            sequence: AtomicU64::new(0),
        }
    }

    /// Carries out groups, which are about different resources, in one transaction that ends by `until`.
    pub(super) async fn commit(&self, groups: &[Group], until: Instant) -> Vec<Fate> {
        let mut fates: Vec<Option<Fate>> = groups.iter().map(|_| None).collect();
        let mut open: Vec<_> = groups.iter().enumerate().collect();
        while !open.is_empty() {
            let mut ready = Vec::with_capacity(open.len());
            for (index, group) in open {
                match self.prepare(group, until).await {
                    Ok(leases) => ready.push(Ready { index, group, leases }),
                    Err(error) => fates[index] = Some(Fate::Failed(error)),
                }
            }
            open = match self.attempt(&ready, until).await {
                Some(settled) => {
                    for (ready, fate) in ready.iter().zip(settled) {
                        fates[ready.index] = Some(fate);
                    }
                    Vec::new()
                }
                None => ready.iter().map(|ready| (ready.index, ready.group)).collect(),
            };
        }
        fates.into_iter().flatten().collect()
    }

    /// Sends one transaction. Returns what became of each group, or nothing when the transaction was certainly
    /// not carried out and is worth another attempt.
    async fn attempt(&self, ready: &[Ready<'_>], until: Instant) -> Option<Vec<Fate>> {
        if ready.is_empty() {
            return Some(Vec::new());
        }
        let begin_by = ready
            .iter()
            .map(|ready| ready.group.not_after)
            .fold(until, Instant::min);
        let draft = self.draft(ready);
        let begun = Instant::now();
        match self
            .cluster
            .transact(draft.txn.clone(), Effort::Once(begin_by), until)
            .await
        {
            Ok(committed) if committed.succeeded => {
                self.noted.fetch_max(committed.revision, Ordering::SeqCst);
                let changes = ready.iter().map(|ready| ready.group.steps.len()).sum();
                self.meter.committed(begun.elapsed(), changes);
                Some(self.fates(ready, &draft, committed))
            }
            Ok(committed) => match self.take_base(&committed) {
                Ok(()) => None,
                Err(failure) => Some(fail_all(ready, &failure)),
            },
            Err(failure) => match failure.kind {
                Kind::NoLease => {
                    self.leases.forget(&draft.leases()).await;
                    None
                }
                // Whoever is too late now drops out, the others go on.
                Kind::Refused | Kind::SignIn if begin_by < until => None,
                Kind::NoSpace => {
                    self.meter.failed();
                    Some(self.settle(ready, &draft, &failure, until).await)
                }
                _ => {
                    self.meter.failed();
                    Some(fail_all(ready, &failure))
                }
            },
        }
    }

    /// Finds a lease for every step that puts, unless it is too late for the group.
    async fn prepare(&self, group: &Group, until: Instant) -> Result<Vec<Option<Lease>>, StoreError> {
        if Instant::now() > group.not_after {
            return Err(StoreError::TooLate);
        }
        let mut leases = Vec::with_capacity(group.steps.len());
        for step in &group.steps {
            leases.push(match step.to.ttl() {
                Some(ttl) => Some(self.leases.cover(ttl, until).await.map_err(Failure::of_read)?),
                None => None,
            });
        }
        Ok(leases)
    }

    pub(super) fn base(&self) -> Base {
        *self.base.lock()
    }

    /// The comparison without which nothing may be written: that etcd has not gone back in its history.
    pub(super) fn compare_note(&self) -> Compare {
        let noted = self.noted.load(Ordering::SeqCst);
        Compare::mod_revision(self.keys.note.clone(), CompareOp::Greater, noted - 1)
    }

    /// The revision of the last write of `note`; 0 when there was none.
    pub(super) async fn read_noted(&self, until: Instant) -> Result<i64, Failure> {
        let reading = self
            .cluster
            .read(std::slice::from_ref(&self.keys.note), until)
            .await?;
        let noted = reading
            .values
            .iter()
            .flatten()
            .map(KeyValue::mod_revision)
            .next()
            .unwrap_or(0);
        self.noted.fetch_max(noted, Ordering::SeqCst);
        Ok(noted)
    }

    /// Takes in what a transaction found whose comparisons failed: another base, it is to be hoped.
    fn take_base(&self, found: &Committed) -> Result<(), Failure> {
        let values = values(&found.answers);
        let revision = |index: usize| {
            values
                .get(index)
                .and_then(Option::as_ref)
                .map_or(0, KeyValue::mod_revision)
        };
        if revision(1) < self.noted.load(Ordering::SeqCst) {
            let reason = "etcd has lost what was written to it: it was restored from a snapshot";
            self.cluster.condemn(reason.into());
            return Err(Failure::new(Kind::Denied, reason));
        }
        let base = match values.first().and_then(Option::as_ref) {
            Some(value) => parse_base(value.value())?,
            None => 0,
        };
        *self.base.lock() = Base {
            value: base,
            revision: revision(0),
        };
        Ok(())
    }
}

/// The number in the value of the `base` key.
pub(super) fn parse_base(value: &[u8]) -> Result<u64, Failure> {
    std::str::from_utf8(value)
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .filter(|base| *base <= MAX_BASE)
        .ok_or_else(|| {
            Failure::new(
                Kind::Denied,
                format!("the base key must hold a number up to {MAX_BASE}"),
            )
        })
}
