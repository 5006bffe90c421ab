//! Carrying out a batch, or failing to.

use std::time::Instant;

use ferrolho_core::Timestamp;
use tracing::{info, warn};

use super::answers::{Told, refuse_all, tell_all};
use super::{BATCH_MAX_CHANGES, Waiting, Writer};
use crate::sqlite::disk::Disk;
use crate::sqlite::error::DiskError;
use crate::sqlite::rows::Loaded;
use crate::table::{Batch, Table};
use crate::{Cause, StoreError};

/// So many expired locks are removed with a batch that is full already, lest they pile up under load.
const REAP_ALWAYS: usize = BATCH_MAX_CHANGES / 10;

/// Decides all attempts at one moment, and removes what is over then.
fn decide(table: &Table, now: Timestamp, waiting: &[Waiting]) -> (Batch, Vec<Told>) {
    let mut batch = Batch::new(table, now);
    let mut changes = 0;
    let outcomes = waiting
        .iter()
        .map(|waiting| {
            changes += waiting.attempt.changes.len();
            batch
                .decide(table, &waiting.attempt.changes)
                .map_err(StoreError::unavailable)
        })
        .collect();
    let room = BATCH_MAX_CHANGES.saturating_sub(changes);
    batch.reap(table, room.max(REAP_ALWAYS));
    (batch, outcomes)
}

/// Why a batch was not carried out.
struct Failure {
    cause: DiskError,
    /// The commit had begun.
    is_unknown: bool,
}

impl From<DiskError> for Failure {
    fn from(cause: DiskError) -> Self {
        Self {
            cause,
            is_unknown: false,
        }
    }
}

impl<D: Disk> Writer<D> {
    /// Carries out a batch of what waits and of what is over, if there is any of either.
    pub(super) fn serve(&mut self) {
        let asked = std::mem::take(&mut self.waiting);
        self.changes = 0;
        let now = tokio::time::Instant::now();
        let (waiting, late): (Vec<_>, Vec<_>) = asked
            .into_iter()
            .partition(|waiting| waiting.attempt.not_after >= now);
        refuse_all(late, &StoreError::TooLate);
        if waiting.is_empty() && !self.is_anything_due() {
            self.refreshed();
            return;
        }
        self.shared.start_flight();
        match self.commit(&waiting) {
            Ok(outcomes) => {
                tell_all(waiting, outcomes);
                self.refreshed();
                self.keep_log_small();
            }
            Err(failure) => self.fail(waiting, failure),
        }
    }

    /// Whether there is something to do though nobody waits: something to read, to remove, to tidy up, or to try.
    fn is_anything_due(&self) -> bool {
        let state = self.shared.read();
        if !state.is_current() {
            return true;
        }
        if state.trouble.is_some() {
            return Instant::now() >= self.tick_at;
        }
        let now = self.shared.clock.now();
        self.is_tidying_due() || state.table.earliest_end().is_some_and(|end| end <= now)
    }

    fn is_tidying_due(&self) -> bool {
        self.disk.tidy_at().is_some_and(|at| at <= Instant::now())
    }

    /// Decides, writes and publishes. What it returns is true when it returns.
    fn commit(&mut self, waiting: &[Waiting]) -> Result<Vec<Told>, Failure> {
        if !self.shared.read().is_current() {
            // Apart from the batch, so that looking goes on while another program keeps us from writing.
            let read = self.disk.refresh(&self.shared.read().table)?;
            self.take_in(read);
            let stamp = self.disk.stamp()?;
            self.shared.set_stamp(stamp);
        }
        let read = self.disk.begin(&self.shared.read().table)?;
        self.take_in(read);
        let state = self.shared.read();
        let (batch, outcomes) = decide(&state.table, self.shared.clock.now(), waiting);
        let is_trial = batch.is_empty() && state.trouble.is_some();
        if batch.is_empty() && !is_trial && !self.is_tidying_due() {
            drop(state);
            self.disk.rollback()?;
            let stamp = self.disk.stamp()?;
            self.shared.publish(batch, stamp);
            return Ok(outcomes);
        }
        if self.policy.pace(state.log_bytes()).is_none() {
            return Err(DiskError::LogFull.into());
        }
        let (begun, changes) = (Instant::now(), batch.len());
        if is_trial {
            self.disk.touch(batch.now())?;
        } else {
            self.disk.write(&batch, &state.table)?;
        }
        drop(state);
        self.disk.commit().map_err(|cause| Failure {
            is_unknown: !cause.is_harmless(),
            cause,
        })?;
        let stamp = self.disk.stamp().map_err(|cause| Failure {
            cause,
            is_unknown: true,
        })?;
        if self.shared.read().trouble.is_some() {
            info!("the database can be written again");
        }
        self.shared.commits.committed(begun.elapsed(), changes);
        self.shared.publish(batch, stamp);
        self.last_commit = Instant::now();
        self.is_at_rest = false;
        Ok(outcomes)
    }

    /// Takes in what another program has made of the file.
    fn take_in(&self, read: Option<Loaded>) {
        if let Some(loaded) = read {
            info!("another program has changed the database; read anew");
            self.shared.load(loaded);
        }
    }

    /// Who asked for the file to be read has what it asked for.
    pub(super) fn refreshed(&mut self) {
        for asking in self.refreshing.drain(..) {
            let _ = asking.send(());
        }
    }

    /// Answers a batch that was not carried out. Unless the connection is sound, nothing is known until the file
    /// has been read anew.
    fn fail(&mut self, waiting: Vec<Waiting>, failure: Failure) {
        self.shared.commits.failed();
        let rolled_back = self.disk.rollback();
        if let Err(cause) = &rolled_back {
            warn!(%cause, "a batch could not be rolled back");
        }
        let is_sound = rolled_back.is_ok() && failure.cause.is_harmless() && !failure.is_unknown;
        if !is_sound {
            self.shared.start_recovery();
        }
        let is_new = self.shared.read().trouble.is_none();
        if is_new || !is_sound {
            warn!(
                cause = %failure.cause, attempts = waiting.len(), is_unknown = failure.is_unknown,
                "a batch could not be written"
            );
        }
        let cause = Cause::new(failure.cause);
        let error = if failure.is_unknown {
            StoreError::Unknown(cause.clone())
        } else {
            StoreError::Unavailable(cause.clone())
        };
        self.shared.note(|state| state.trouble = Some(cause));
        refuse_all(waiting, &error);
        if is_sound {
            self.shared.settle();
            self.refreshed();
        } else {
            self.recover();
        }
    }
}
