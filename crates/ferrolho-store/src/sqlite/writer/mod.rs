//! The writer: one thread that owns the connection and commits many attempts at once.
//!
//! It takes all attempts that wait as one batch, decides them against the table with one reading of the clock,
//! writes, commits, publishes, and only then answers. While it does that the next batch gathers. Its wait for
//! attempts is also the sleep until the next lock ends, so there is no reaper besides: what is over is removed
//! with the batch at hand, in pieces.

mod answers;
mod serve;
mod upkeep;
mod workers;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::disk::Disk;
use super::shared::{Phase, Shared};
use super::wal::LogPolicy;
use crate::Attempt;
use workers::Workers;

pub(super) use answers::Answer;

/// The most changes in one batch, expired locks included, but for the rest of its last attempt. With what is tidied
/// up besides, it bounds what a commit adds to the log to 32 MB, with all metadata as large as may be.
const BATCH_MAX_CHANGES: usize = 500;

/// How long a batch of several attempts may gather more of them while the processors have other work: the fewer
/// commits, the more is left for that. While the workers are saturated, waiting costs nothing, since what they do not
/// get to waits longer for them. An attempt that comes alone is never held up.
const GATHER_WITHIN: Duration = Duration::from_micros(200);

/// A short sleep while saturated workers bring more. The system makes it longer, by 50 µs as a rule.
const NAP: Duration = Duration::from_micros(1);

/// How long the writer sleeps at most: so soon it notices that another program has changed the file, or that the
/// machine was suspended.
const TICK: Duration = Duration::from_millis(500);

/// How long to wait before reading the file anew again, at first.
const MEND_EVERY: Duration = Duration::from_millis(100);

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
    pub(super) answer: oneshot::Sender<Answer>,
}

/// The thread's state.
#[derive(Debug)]
pub(super) struct Writer<D> {
    shared: Arc<Shared>,
    disk: D,
    queue: Receiver<Message>,
    /// Those who fill the queue.
    workers: Workers,
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
    /// Whether the wall clock was last seen to be off.
    clock_is_off: bool,
}

impl<D: Disk> Writer<D> {
    pub(super) fn new(shared: Arc<Shared>, disk: D, queue: Receiver<Message>) -> Self {
        let now = Instant::now();
        Self {
            shared,
            disk,
            queue,
            workers: Workers::here(),
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
            clock_is_off: false,
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
        match self.queue.recv_timeout(self.sleep()) {
            Ok(message) => self.take(message),
            Err(RecvTimeoutError::Timeout) => return,
            Err(RecvTimeoutError::Disconnected) => {
                self.is_closing = true;
                return;
            }
        }
        let until = Instant::now() + GATHER_WITHIN;
        let mut is_saturated = self.workers.are_saturated();
        let mut has_come = self.take_all();
        while (has_come || is_saturated)
            && self.waiting.len() > 1
            && self.changes < BATCH_MAX_CHANGES
            && Instant::now() < until
        {
            if is_saturated {
                std::thread::sleep(NAP);
                is_saturated = self.workers.are_saturated();
            } else {
                // Comes back at once when there is nothing else to do.
                std::thread::yield_now();
            }
            has_come = self.take_all();
        }
    }

    /// Takes all that has come, as far as the batch has room. Whether there was anything.
    fn take_all(&mut self) -> bool {
        let mut has_come = false;
        while self.changes < BATCH_MAX_CHANGES
            && let Ok(message) = self.queue.try_recv()
        {
            self.take(message);
            has_come = true;
        }
        has_come
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Apply(waiting) => {
                self.changes += waiting.attempt.changes.len();
                self.waiting.push(waiting);
            }
            Message::Refresh(asking) => self.refreshing.push(asking),
            Message::Wake => {}
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
        if state.trouble.is_some() {
            // What is over cannot be removed now: not before the next tick.
            return tick;
        }
        let end = state
            .table
            .earliest_end()
            .map(|end| end.since(self.shared.clock.now()));
        let tidy = self.disk.tidy_at().map(until);
        [end, tidy].into_iter().flatten().fold(tick, Duration::min)
    }
}
