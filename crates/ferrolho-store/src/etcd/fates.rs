//! What became of groups, from the answer to the transaction that carried them.

use etcd_client::{KeyValue, TxnOpResponse};
use ferrolho_core::Resource;

use super::commit::{Committer, Ready};
use super::draft::{Draft, Put};
use super::failure::Failure;
use super::known::Seen;
use super::record::Version;
use super::requests::{Committed, values};
use crate::StoreError;

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

impl Committer {
    /// What became of each group of a transaction that was carried out.
    pub(super) fn fates(&self, ready: &[Ready<'_>], draft: &Draft, committed: Committed) -> Vec<Fate> {
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

    /// A group that was carried out at this revision.
    pub(super) fn done(&self, ready: &Ready<'_>, puts: &[Option<Put>], revision: i64) -> Fate {
        let mut now = Vec::with_capacity(puts.len());
        for (step, put) in ready.group.steps.iter().zip(puts) {
            let version = put
                .clone()
                .map(|put| put.record.into_version(&step.resource, revision, put.lease))
                .transpose();
            let seen = match version {
                Ok(version) => self.locks.learn(&step.resource, revision, version),
                // Only when the tokens are used up: the grant stands and cannot be answered.
                Err(unreadable) => return Fate::Failed(StoreError::unknown(unreadable)),
            };
            // The others may have seen it long before this answer came: it claims no more than is sure.
            let sure = |seen: Seen, put: &Put| Seen {
                ends: seen.ends.min(put.made + seen.version.ttl.duration()),
                ..seen
            };
            now.push(seen.zip(put.as_ref()).map(|(seen, put)| sure(seen, put)));
        }
        Fate::Done(now)
    }

    /// A group that was not carried out, since this was found instead.
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
}

/// The fate of all groups of a transaction that failed like this.
pub(super) fn fail_all(ready: &[Ready<'_>], failure: &Failure) -> Vec<Fate> {
    ready.iter().map(|_| Fate::Failed(failure.of_write())).collect()
}
