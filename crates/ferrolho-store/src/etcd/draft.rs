//! The transaction that carries groups, before it is sent.

use std::sync::atomic::Ordering;

use etcd_client::{Compare, CompareOp, PutOptions, Txn, TxnOp};
use ferrolho_core::Timestamp;

use super::commit::{Committer, Ready};
use super::plan::{Step, To};
use super::record::{Note, Pen, Record};
use super::requests::Lease;
use crate::clock::{Moment, wall_now};

/// A value that is put, and under which lease.
#[derive(Clone)]
pub(super) struct Put {
    pub(super) record: Record,
    pub(super) lease: i64,
    /// When it was made, just before it was sent.
    pub(super) made: Moment,
}

/// A transaction that is ready to be sent.
pub(super) struct Draft {
    pub(super) txn: Txn,
    /// The value of `note`, which no other transaction has.
    pub(super) note: Vec<u8>,
    /// What each step of each group puts; nothing where it removes.
    pub(super) puts: Vec<Vec<Option<Put>>>,
}

impl Committer {
    /// The transaction that carries these groups, with the wall clock and the base as they are now.
    pub(super) fn draft(&self, ready: &[Ready<'_>]) -> Draft {
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
        let made = Moment::now();
        let pen = Pen {
            by: self.me.number,
            now,
            clock: made.since(self.me.started),
            base,
            spare: lease.ends.since(made + life),
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
            made,
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
}

impl Draft {
    /// All leases that it names.
    pub(super) fn leases(&self) -> Vec<i64> {
        self.puts
            .iter()
            .flatten()
            .flatten()
            .map(|put| put.lease)
            .collect()
    }
}
