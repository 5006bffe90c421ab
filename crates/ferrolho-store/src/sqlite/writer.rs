//! The writer: one thread that owns the connection and commits many attempts at once.
//!
//! It takes all attempts that wait as one batch, decides them against the table with one reading of the clock,
//! writes, commits, publishes, and only then answers. While it does that the next batch gathers. Its wait for
//! attempts is also the sleep until the next lock ends, so there is no reaper besides: what is over is removed
//! with the batch at hand, in pieces.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tracing::{info, warn};

use super::disk::{Checkpoint, Disk};
use super::error::DiskError;
use super::shared::{Phase, Shared};
use super::wal::LogPolicy;
use crate::table::Batch;
use crate::{Attempt, Cause, Outcome, StoreError};

/// The most changes in one batch, expired locks included, but for the rest of its last attempt. It bounds what a
/// batch adds to the log to 16 MB, with all metadata as large as may be.
const BATCH_MAX_CHANGES: usize = crate::REAP_PIECE_LOCKS;

/// So many expired locks are removed with a batch that is full already, lest they pile up under load.
const REAP_ALWAYS: usize = BATCH_MAX_CHANGES / 10;

/// How long the writer sleeps at most: so soon it notices that another program has changed the file, or that the
/// machine was suspended.
const TICK: Duration = Duration::from_millis(500);

/// So long without a commit, and the log is emptied.
const QUIET: Duration = Duration::from_secs(1);

/// How long to wait before reading the file anew again; doubled each time, up to the longest.
const MEND_EVERY: Duration = Duration::from_millis(100);
const MEND_EVERY_MAX: Duration = Duration::from_secs(2);

/// What the writer is asked.
#[derive(Debug)]
pub(super) enum Message {
    /// To carry out an attempt.
    Apply(Waiting),
    /// To read what another program has changed.
    Refresh(oneshot::Sender<()>),
    /// To look again, since the clock was moved.
    Wake,
}

/// An attempt whose caller waits for the answer.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) attempt: Attempt,
    pub(super) answer: oneshot::Sender<Result<Outcome, StoreError>>,
}

impl Waiting {
    /// Tells the caller, if it is still there.
    fn tell(self, answer: Result<Outcome, StoreError>) {
        let _ = self.answer.send(answer);
    }
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

/// The thread's state.
#[derive(Debug)]
pub(super) struct Writer<D> {
    shared: Arc<Shared>,
    disk: D,
    queue: Receiver<Message>,
    /// Attempts that the next batch carries out.
    waiting: Vec<Waiting>,
    /// How many changes they are.
    changes: usize,
    /// Who waits for the file to be read.
    refreshing: Vec<oneshot::Sender<()>>,
    /// Nobody can ask any more, and nothing that was asked is left in the queue.
    is_closing: bool,
    policy: LogPolicy,
    /// The next commit must not come before this, for the log's sake.
    hold_until: Instant,
    /// The next time for what is done every [`TICK`].
    tick_at: Instant,
    last_commit: Instant,
    /// Whether the log has been emptied since.
    is_at_rest: bool,
    /// How long to wait before the next attempt to read the file anew.
    mend_every: Duration,
}

impl<D: Disk> Writer<D> {
    pub(super) fn new(shared: Arc<Shared>, disk: D, queue: Receiver<Message>) -> Self {
        let now = Instant::now();
        Self {
            shared,
            disk,
            queue,
            waiting: Vec::new(),
            changes: 0,
            refreshing: Vec::new(),
            is_closing: false,
            policy: LogPolicy::default(),
            hold_until: now,
            tick_at: now + TICK,
            last_commit: now,
            is_at_rest: false,
            mend_every: MEND_EVERY,
        }
    }

    /// Works until the store is closed and everything that was handed over is done.
    pub(super) fn run(mut self) {
        while !self.is_closing || !self.waiting.is_empty() {
            self.gather();
            let is_broken = matches!(self.shared.read().phase, Phase::Broken(_));
            if is_broken {
                self.mend();
            } else if self.is_closing || Instant::now() >= self.hold_until {
                self.serve();
            }
            if Instant::now() >= self.tick_at {
                self.tick();
            }
        }
        self.finish();
    }

    /// Waits for something to do, and takes all that has come.
    fn gather(&mut self) {
        if self.changes >= BATCH_MAX_CHANGES {
            // The batch is full and held back.
            std::thread::sleep(self.sleep());
            return;
        }
        let mut next = match self.queue.recv_timeout(self.sleep()) {
            Ok(message) => Some(message),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                self.is_closing = true;
                None
            }
        };
        while let Some(message) = next {
            match message {
                Message::Apply(waiting) => {
                    self.changes += waiting.attempt.changes.len();
                    self.waiting.push(waiting);
                }
                Message::Refresh(asking) => self.refreshing.push(asking),
                Message::Wake => {}
            }
            if self.changes >= BATCH_MAX_CHANGES {
                return;
            }
            next = self.queue.try_recv().ok();
        }
    }

    /// How long there is nothing to do unless somebody asks.
    fn sleep(&self) -> Duration {
        let until = |at: Instant| at.saturating_duration_since(Instant::now());
        let tick = until(self.tick_at);
        let state = self.shared.read();
        if !self.waiting.is_empty() || matches!(state.phase, Phase::Broken(_)) {
            return tick.min(until(self.hold_until));
        }
        match state.table.earliest_end() {
            Some(end) if state.trouble.is_none() => tick.min(end.since(self.shared.clock.now())),
            // What is over cannot be removed now: not before the next tick.
            _ => tick,
        }
    }

    /// Carries out a batch of what waits and of what is over, if there is any of either.
    fn serve(&mut self) {
        let asked = std::mem::take(&mut self.waiting);
        self.changes = 0;
        let now = tokio::time::Instant::now();
        let (waiting, late): (Vec<_>, Vec<_>) = asked
            .into_iter()
            .partition(|waiting| waiting.attempt.not_after >= now);
        for waiting in late {
            waiting.tell(Err(StoreError::TooLate));
        }
        if waiting.is_empty() && !self.is_anything_due() {
            self.refreshed();
            return;
        }
        self.shared.start_flight();
        match self.commit(&waiting) {
            Ok(outcomes) => {
                for (waiting, outcome) in waiting.into_iter().zip(outcomes) {
                    waiting.tell(outcome);
                }
                self.refreshed();
                self.keep_log_small();
            }
            Err(failure) => self.fail(waiting, failure),
        }
    }

    fn is_anything_due(&self) -> bool {
        let state = self.shared.read();
        let is_over = |end| end <= self.shared.clock.now();
        let is_tick = Instant::now() >= self.tick_at;
        let may_reap = state.trouble.is_none() || is_tick;
        !state.is_current()
            || may_reap && (state.trouble.is_some() || state.table.earliest_end().is_some_and(is_over))
    }

    /// Decides, writes and publishes. What it returns is true when it returns.
    fn commit(&mut self, waiting: &[Waiting]) -> Result<Vec<Result<Outcome, StoreError>>, Failure> {
        if let Some(loaded) = self.disk.begin()? {
            info!("another program has changed the database; read anew");
            self.shared.load(loaded);
        }
        let state = self.shared.read();
        let mut batch = Batch::new(&state.table, self.shared.clock.now());
        let mut changes = 0;
        let outcomes = waiting
            .iter()
            .map(|waiting| {
                changes += waiting.attempt.changes.len();
                batch
                    .decide(&state.table, &waiting.attempt.changes)
                    .map_err(StoreError::unavailable)
            })
            .collect();
        let room = BATCH_MAX_CHANGES.saturating_sub(changes);
        batch.reap(&state.table, room.max(REAP_ALWAYS));
        let is_trial = batch.is_empty() && state.trouble.is_some();
        if batch.is_empty() && !is_trial {
            drop(state);
            self.disk.rollback()?;
            let stamp = self.disk.stamp()?;
            self.shared.publish(batch, stamp);
            return Ok(outcomes);
        }
        if self.policy.pace(state.log_bytes()).is_none() {
            return Err(DiskError::LogFull.into());
        }
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
        self.shared.publish(batch, stamp);
        self.last_commit = Instant::now();
        self.is_at_rest = false;
        Ok(outcomes)
    }

    /// Who asked for the file to be read has what it asked for.
    fn refreshed(&mut self) {
        for asking in self.refreshing.drain(..) {
            let _ = asking.send(());
        }
    }

    /// Answers a batch that was not carried out. Unless the connection is sound, nothing is known until the file
    /// has been read anew.
    fn fail(&mut self, waiting: Vec<Waiting>, failure: Failure) {
        let rolled_back = match (failure.is_unknown, self.disk.rollback()) {
            (true, _) => false,
            (false, Ok(())) => true,
            (false, Err(cause)) => {
                warn!(%cause, "a batch could not be rolled back");
                false
            }
        };
        let is_sound = rolled_back && failure.cause.is_harmless();
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
        for waiting in waiting {
            waiting.tell(Err(error.clone()));
        }
        if is_sound {
            self.shared.settle();
            self.refreshed();
        } else {
            self.recover();
        }
    }

    /// Reads the file anew through a new connection.
    fn recover(&mut self) {
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
    fn mend(&mut self) {
        if Instant::now() >= self.hold_until || self.is_closing {
            self.shared.start_recovery();
            self.recover();
        }
        let Phase::Broken(cause) = self.shared.read().phase.clone() else {
            return;
        };
        self.changes = 0;
        for waiting in self.waiting.drain(..) {
            waiting.tell(Err(StoreError::Unavailable(cause.clone())));
        }
        self.refreshed();
    }

    /// What is done now and then.
    fn tick(&mut self) {
        self.tick_at = Instant::now() + TICK;
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

    /// After a commit.
    fn keep_log_small(&mut self) {
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
        let done = self
            .disk
            .checkpoint(how)
            .and_then(|whole| Ok((whole, self.disk.stamp()?)));
        match done {
            Ok((is_whole, stamp)) => {
                self.policy.checkpointed(self.shared.read().log_bytes(), is_whole);
                self.shared.note(|state| state.log_is_stuck = !is_whole);
                self.shared.set_stamp(stamp);
                is_whole
            }
            Err(cause) => {
                warn!(%cause, "the log could not be copied into the database");
                if !cause.is_harmless() {
                    self.shared.start_recovery();
                    self.recover();
                }
                false
            }
        }
    }

    /// The last work: the file is left whole and without a log.
    fn finish(mut self) {
        if !matches!(self.shared.read().phase, Phase::Settled) {
            return;
        }
        let now = self.shared.clock.now();
        let done = self
            .disk
            .begin()
            .and_then(|_| self.disk.touch(now))
            .and_then(|()| self.disk.commit())
            .and_then(|()| self.disk.checkpoint(Checkpoint::Truncate));
        if let Err(cause) = done {
            warn!(%cause, "the database could not be tidied up at its close; nothing is lost");
        }
    }
}
