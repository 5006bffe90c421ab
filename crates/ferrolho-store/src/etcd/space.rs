//! When etcd is out of space.
//!
//! It then refuses every transaction that puts something, and still carries out those that only remove. So
//! releases and expiries are sent once more without their note; who watches then learns of them without being
//! told why. But the refusal itself is not always true: the transaction that first meets the limit is carried out
//! and answered with the same error. What really happened is read from the keys before anything is said.

use etcd_client::{KeyValue, Txn, TxnOp};
use tokio::time::Instant;

use super::commit::{Committer, Ready};
use super::draft::{Draft, Put};
use super::failure::Failure;
use super::fates::{Fate, fail_all};
use super::members::Effort;
use crate::StoreError;

impl Committer {
    /// What became of groups whose transaction was answered with `refusal`, which says that etcd is out of space.
    pub(super) async fn settle(
        &self,
        ready: &[Ready<'_>],
        draft: &Draft,
        refusal: &Failure,
        until: Instant,
    ) -> Vec<Fate> {
        let mut keys = vec![self.keys.note.clone()];
        let steps = ready.iter().flat_map(|ready| &ready.group.steps);
        keys.extend(steps.map(|step| self.keys.lock(&step.resource)));
        let Ok(reading) = self.cluster.read(&keys, until).await else {
            return fail_all(ready, refusal);
        };
        let mut values = reading.values.into_iter();
        let note = values.next().flatten().filter(|note| note.value() == draft.note);
        let mut fates = Vec::with_capacity(ready.len());
        for (ready, puts) in ready.iter().zip(&draft.puts) {
            let found: Vec<_> = values.by_ref().take(ready.group.steps.len()).collect();
            fates.push(match &note {
                // The transaction was carried out, and none after it.
                Some(note) if was_done(puts, &found, note.mod_revision()) => {
                    self.done(ready, puts, note.mod_revision())
                }
                Some(_) => self.lost(ready, reading.revision, &found),
                // It was not: then every group that could have been done would have been.
                None if !is_untouched(ready, &found) => Fate::Failed(refusal.of_write()),
                None if ready.group.only_removes() => self.remove_bare(ready, puts, until).await,
                None => Fate::Failed(StoreError::unavailable(refusal.to_string())),
            });
        }
        fates
    }

    /// Carries out a group that only removes, without a note.
    async fn remove_bare(&self, ready: &Ready<'_>, puts: &[Option<Put>], until: Instant) -> Fate {
        let nested = TxnOp::txn(self.nested(&ready.group.steps, puts));
        let txn = Txn::new().when([self.compare_note()]).and_then([nested]);
        match self.cluster.transact(txn, Effort::Once(until), until).await {
            Ok(committed) if committed.succeeded => {
                let answer = committed.answers.into_iter().next();
                self.fate(ready, puts, committed.revision, answer)
            }
            Ok(_) => Fate::Failed(StoreError::unavailable("etcd has lost what was written to it")),
            Err(failure) => Fate::Failed(failure.of_write()),
        }
    }
}

/// Whether the keys are as the group's part of the transaction that wrote `revision` leaves them.
fn was_done(puts: &[Option<Put>], found: &[Option<KeyValue>], revision: i64) -> bool {
    puts.iter().zip(found).all(|(put, value)| match (put, value) {
        (Some(_), Some(value)) => value.mod_revision() == revision,
        (None, value) => value.is_none(),
        (Some(_), None) => false,
    })
}

/// Whether the keys are as the group expects them still.
fn is_untouched(ready: &Ready<'_>, found: &[Option<KeyValue>]) -> bool {
    ready.group.steps.iter().zip(found).all(|(step, value)| {
        let expected = step.from.as_ref().map(|version| version.revision);
        expected == value.as_ref().map(KeyValue::mod_revision)
    })
}
