//! One transaction for many groups of steps.
//!
//! Each group is a nested transaction: it compares the modification revision of every key that it is about, then
//! writes, or else reads what is there. So a group that fails harms no other, and its refusal is committed state.
//! Around them stands the comparison of the base, so that no token is made from an old one, and one put of
//! `note`, which names what ended. The server's limit of 128 operations counts the outer ones and those of the
//! largest group: with at most 96 changes in a batch and 32 in a group it is never met.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use etcd_client::{Compare, CompareOp, KeyValue, PutOptions, Txn, TxnOp, TxnOpResponse};
use ferrolho_core::{Resource, Timestamp};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::failure::{Failure, Kind};
use super::keys::Keys;
use super::known::{Locks, Seen};
use super::leases::Leases;
use super::members::Effort;
use super::plan::{Group, Step, To};
use super::record::{MAX_BASE, Me, Note, Pen, Record, Version};
use super::requests::{Cluster, Committed, Lease, values};
use crate::StoreError;
use crate::clock::wall_now;

/// The most changes in one transaction.
pub(super) const MAX_BATCH_CHANGES: usize = 96;

/// What the number that is added to tokens is, and which write made it so.
#[derive(Clone, Copy, Debug, Default)]
struct Base {
    value: u64,
    revision: i64,
}

/// How a group ended.
#[derive(Debug)]
pub(super) enum Fate {
    /// It is done; each lock as it is now.
    Done(Vec<Option<Seen>>),
    /// Nothing of it is done, since a key was not what it should have been; each lock as it is now.
    Lost(Vec<Option<Seen>>),
    /// It is not done, or nobody knows.
    Failed(StoreError),
}

/// Carries groups out.
pub(super) struct Committer {
    pub(super) cluster: Arc<Cluster>,
    pub(super) keys: Keys,
    pub(super) locks: Arc<Locks>,
    leases: Arc<Leases>,
    pub(super) me: Me,
    base: Mutex<Base>,
    /// The highest revision that `note` is known to have had.
    noted: AtomicI64,
    sequence: AtomicU64,
}

/// A group with a lease for each step that puts.
pub(super) struct Ready<'a> {
    index: usize,
    pub(super) group: &'a Group,
    leases: Vec<Option<Lease>>,
}

/// A value that is put, and under which lease.
#[derive(Clone)]
pub(super) struct Put {
    record: Record,
    lease: i64,
}

/// A transaction that is ready to be sent.
pub(super) struct Draft {
    txn: Txn,
    /// The value of `note`, which no other transaction has.
    pub(super) note: Vec<u8>,
    /// What each step of each group puts; nothing where it removes.
    pub(super) puts: Vec<Vec<Option<Put>>>,
}

impl Committer {
    pub(super) fn new(cluster: Arc<Cluster>, keys: Keys, locks: Arc<Locks>, me: Me) -> Self {
        Self {
            leases: Arc::new(Leases::new(Arc::clone(&cluster))),
            cluster,
            keys,
            locks,
            me,
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
        match self
            .cluster
            .transact(draft.txn.clone(), Effort::Once(begin_by), until)
            .await
        {
            Ok(committed) if committed.succeeded => {
                self.noted.fetch_max(committed.revision, Ordering::SeqCst);
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
                Kind::NoSpace => Some(self.settle(ready, &draft, &failure, until).await),
                _ => Some(fail_all(ready, &failure)),
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

    fn draft(&self, ready: &[Ready<'_>]) -> Draft {
        let now = wall_now();
        let base = self.base();
        let mut puts = Vec::with_capacity(ready.len());
        let mut operations = Vec::with_capacity(ready.len() + 1);
        for ready in ready {
            let group_puts: Vec<_> = ready
                .group
                .steps
                .iter()
                .zip(&ready.leases)
                .map(|(step, lease)| self.put(step, (*lease)?, now, base.value))
                .collect();
            operations.push(TxnOp::txn(self.nested(&ready.group.steps, &group_puts)));
            puts.push(group_puts);
        }
        let note = Note {
            by: self.me.number,
            sequence: self.sequence.fetch_add(1, Ordering::Relaxed),
            at: now,
            ended: ready
                .iter()
                .flat_map(|ready| &ready.group.steps)
                .filter_map(|step| step.ended.clone())
                .collect(),
        }
        .encode();
        operations.push(TxnOp::put(self.keys.note.clone(), note.clone(), None));
        let compare_base = Compare::mod_revision(self.keys.base.clone(), CompareOp::Equal, base.revision);
        let txn = Txn::new()
            .when([compare_base, self.compare_note()])
            .and_then(operations)
            .or_else([&self.keys.base, &self.keys.note].map(|key| TxnOp::get(key.clone(), None)));
        Draft { txn, note, puts }
    }

    fn put(&self, step: &Step, lease: Lease, now: Timestamp, base: u64) -> Option<Put> {
        let life = step.to.ttl()?.duration();
        let pen = Pen {
            by: self.me.number,
            now,
            clock: self.me.started.elapsed(),
            base,
            spare: lease.ends.saturating_duration_since(Instant::now() + life),
        };
        let record = match &step.to {
            To::Grant(grant) => Record::grant(grant, pen),
            To::Extend(version, ttl) => Record::renewed(version, *ttl, pen),
            To::Keep(version) => Record::kept(version, pen),
            To::Remove => return None,
        };
        Some(Put {
            record,
            lease: lease.id,
        })
    }

    /// The transaction of one group.
    pub(super) fn nested(&self, steps: &[Step], puts: &[Option<Put>]) -> Txn {
        let mut compares = Vec::with_capacity(steps.len());
        let mut writes = Vec::with_capacity(steps.len());
        let mut reads = Vec::with_capacity(steps.len());
        for (step, put) in steps.iter().zip(puts) {
            let key = self.keys.lock(&step.resource);
            let revision = step.from.as_ref().map_or(0, |version| version.revision);
            compares.push(Compare::mod_revision(key.clone(), CompareOp::Equal, revision));
            writes.push(match put {
                Some(put) => {
                    let options = PutOptions::new().with_lease(put.lease);
                    TxnOp::put(key.clone(), put.record.encode(), Some(options))
                }
                None => TxnOp::delete(key.clone(), None),
            });
            reads.push(TxnOp::get(key, None));
        }
        Txn::new().when(compares).and_then(writes).or_else(reads)
    }

    /// What became of each group of a transaction that was carried out.
    fn fates(&self, ready: &[Ready<'_>], draft: &Draft, committed: Committed) -> Vec<Fate> {
        let mut answers = committed.answers.into_iter();
        ready
            .iter()
            .zip(&draft.puts)
            .map(|(ready, puts)| self.fate(ready, puts, committed.revision, answers.next()))
            .collect()
    }

    /// What became of a group whose nested transaction was answered so.
    pub(super) fn fate(
        &self,
        ready: &Ready<'_>,
        puts: &[Option<Put>],
        revision: i64,
        answer: Option<TxnOpResponse>,
    ) -> Fate {
        match answer {
            Some(TxnOpResponse::Txn(nested)) if nested.succeeded() => self.done(ready, puts, revision),
            Some(TxnOpResponse::Txn(nested)) => self.lost(ready, revision, &values(&nested.op_responses())),
            _ => Fate::Failed(StoreError::unknown(
                "an answer of etcd has not the form of its question",
            )),
        }
    }

    pub(super) fn done(&self, ready: &Ready<'_>, puts: &[Option<Put>], revision: i64) -> Fate {
        let mut now = Vec::with_capacity(puts.len());
        for (step, put) in ready.group.steps.iter().zip(puts) {
            let version = put
                .clone()
                .map(|put| put.record.into_version(&step.resource, revision, put.lease))
                .transpose();
            match version {
                Ok(version) => now.push(self.locks.learn(&step.resource, revision, version)),
                // Only when the tokens are used up: the grant stands and cannot be answered.
                Err(unreadable) => return Fate::Failed(StoreError::unknown(unreadable)),
            }
        }
        Fate::Done(now)
    }

    pub(super) fn lost(&self, ready: &Ready<'_>, revision: i64, found: &[Option<KeyValue>]) -> Fate {
        let resources = ready.group.steps.iter().map(|step| &step.resource);
        match self.learn_all(resources, revision, found) {
            Ok(now) => Fate::Lost(now),
            Err(error) => Fate::Failed(error),
        }
    }

    /// Takes in what keys held at a revision.
    pub(super) fn learn_all<'a>(
        &self,
        resources: impl Iterator<Item = &'a Resource>,
        revision: i64,
        found: &[Option<KeyValue>],
    ) -> Result<Vec<Option<Seen>>, StoreError> {
        resources
            .zip(found)
            .map(|(resource, value)| {
                let version = value
                    .as_ref()
                    .map(|value| Version::read(resource, value))
                    .transpose();
                Ok(self
                    .locks
                    .learn(resource, revision, version.map_err(StoreError::unavailable)?))
            })
            .collect()
    }

    fn base(&self) -> Base {
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

pub(super) fn fail_all(ready: &[Ready<'_>], failure: &Failure) -> Vec<Fate> {
    ready.iter().map(|_| Fate::Failed(failure.of_write())).collect()
}

impl Draft {
    fn leases(&self) -> Vec<i64> {
        self.puts
            .iter()
            .flatten()
            .flatten()
            .map(|put| put.lease)
            .collect()
    }
}
