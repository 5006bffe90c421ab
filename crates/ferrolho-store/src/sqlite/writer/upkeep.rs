//! What is done between the batches: the log, the clock, and mending what is broken.

use std::time::{Duration, Instant};

use tracing::{info, warn};

use super::answers::refuse_all;
use super::{MEND_EVERY, TICK, Writer};
use crate::sqlite::disk::{Checkpoint, Disk};
use crate::sqlite::error::DiskError;
use crate::sqlite::shared::Phase;
use crate::sqlite::wal::LogPolicy;
use crate::{Cause, StoreError};

/// So long without a commit, and the log is emptied.
const QUIET: Duration = Duration::from_secs(1);

/// The longest wait before reading the file anew again; it doubles up to this.
const MEND_EVERY_MAX: Duration = Duration::from_secs(2);

impl<D: Disk> Writer<D> {
    /// Reads the file anew through a new connection.
    pub(super) fn recover(&mut self) {
        match self.reopen() {
            Ok(()) => {
                info!("the database was opened and read anew");
                self.mend_every = MEND_EVERY;
                // Time to see whether writing works again.
                self.tick_at = Instant::now();
                self.refreshed();
            }
            Err(cause) => {
                warn!(%cause, retry_after = ?self.mend_every, "the database could not be read anew");
                self.shared.stop(Phase::Broken(Cause::new(cause)));
                self.hold_until = Instant::now() + self.mend_every;
                self.mend_every = (self.mend_every * 2).min(MEND_EVERY_MAX);
            }
        }
    }

    fn reopen(&mut self) -> Result<(), DiskError> {
        let loaded = self.disk.reopen()?;
        let stamp = self.disk.stamp()?;
        self.shared.recovered(loaded, self.disk.index(), stamp);
        Ok(())
    }

    /// While nothing is known, refuses what is asked; and when it is time, tries again to read the file.
    pub(super) fn mend(&mut self) {
        if Instant::now() >= self.hold_until || self.is_closing {
            self.shared.start_recovery();
            self.recover();
        }
        let Phase::Broken(cause) = self.shared.read().phase.clone() else {
            return;
        };
        self.changes = 0;
        refuse_all(std::mem::take(&mut self.waiting), &StoreError::Unavailable(cause));
        self.refreshed();
    }

    /// What is done now and then.
    pub(super) fn tick(&mut self) {
        self.tick_at = Instant::now() + TICK;
        self.watch_clock();
        let is_quiet = self.last_commit.elapsed() >= QUIET;
        if self.policy.is_stuck() || is_quiet && !self.is_at_rest {
            let how = if is_quiet {
                Checkpoint::Truncate
            } else {
                Checkpoint::Passive
            };
            self.is_at_rest = self.checkpoint(how) && is_quiet;
        }
    }

    /// Says in the log when somebody has set the wall clock, and when it is right again.
    fn watch_clock(&mut self) {
        let warning = self.shared.clock.warning();
        match (&warning, self.clock_is_off) {
            (Some(warning), false) => warn!("{warning}"),
            (None, true) => info!("the wall clock agrees again with the clock that locks are judged by"),
            _ => {}
        }
        self.clock_is_off = warning.is_some();
    }

    /// After a commit.
    pub(super) fn keep_log_small(&mut self) {
        if self.policy.is_checkpoint_due(self.shared.read().log_bytes()) {
            self.checkpoint(Checkpoint::Passive);
        }
        let pace = self.policy.pace(self.shared.read().log_bytes());
        self.hold_until = Instant::now() + pace.unwrap_or_default();
    }

    /// Copies the log into the database, and says whether all of it was.
    fn checkpoint(&mut self, how: Checkpoint) -> bool {
        if !matches!(self.shared.read().phase, Phase::Settled) {
            return false;
        }
        let log_bytes = self.shared.read().log_bytes();
        let done = self.disk.checkpoint(how);
        let trouble = match &done {
            Ok(false) if LogPolicy::is_large(log_bytes) => Some(
                "another program has been reading the database for long and keeps its log from being emptied"
                    .to_owned(),
            ),
            Ok(_) => None,
            Err(cause) => Some(format!("the log could not be copied into the database: {cause}")),
        };
        if let Some(trouble) = &trouble
            && self.shared.read().log_trouble.is_none()
        {
            warn!("{trouble}");
        }
        let is_whole = matches!(done, Ok(true));
        self.policy.checkpointed(log_bytes, is_whole);
        self.shared.note(|state| state.log_trouble = trouble);
        match done.and_then(|is_whole| Ok((is_whole, self.disk.stamp()?))) {
            Ok((is_whole, stamp)) => {
                self.shared.set_stamp(stamp);
                is_whole
            }
            Err(cause) => {
                if !cause.is_harmless() {
                    self.shared.start_recovery();
                    self.recover();
                }
                false
            }
        }
    }

    /// The last work: the file is left whole and without a log.
    pub(super) fn finish(mut self) {
        while let Some(at) = self.disk.tidy_at()
            && self.is_well()
        {
            std::thread::sleep(at.saturating_duration_since(Instant::now()));
            self.serve();
        }
        if !self.is_well() {
            return;
        }
        let now = self.shared.clock.now();
        let begun = self.disk.begin(&self.shared.read().table);
        let done = begun
            .and_then(|_| self.disk.touch(now))
            .and_then(|()| self.disk.commit())
            .and_then(|()| self.disk.checkpoint(Checkpoint::Truncate));
        if let Err(cause) = done {
            warn!(%cause, "the database could not be tidied up at its close; nothing is lost");
        }
    }

    fn is_well(&self) -> bool {
        let state = self.shared.read();
        matches!(state.phase, Phase::Settled) && state.trouble.is_none()
    }
}
