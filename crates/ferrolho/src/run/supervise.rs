//! From the start of the command to the end of all of its processes, with an eye on the lock.
//!
//! Three things happen in any order: signals arrive, processes end, and the time for which the lock is certain moves
//! on or runs out. A single loop takes them one by one. Two moments before that time is over matter: at the first the
//! command is asked to end, at the second it is killed, so that it is dead before the lock can end. Both follow every
//! renewal.

use std::time::Duration;

use ferrolho_client::{Guard, Loss, Moment};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_current_process_group, kill_process, wait};
use tokio::time::{Instant, sleep, sleep_until};

use super::margins::Margins;
use super::sentry::Sentry;
use super::signals::{Call, Signals};
use super::terminal::Terminal;
use super::tree::Tree;

/// How long what is left of a command may take to end when it is asked to. The lock is renewed meanwhile.
const LEFTOVER_GRACE: Duration = Duration::from_secs(2);

/// How long a command may take whose lock was taken away: somebody else may have it already.
const TAKEN_GRACE: Duration = Duration::from_secs(1);

/// How often processes are looked at whose end nobody reports to this program.
const LOOK_PAUSE: Duration = Duration::from_millis(20);

/// How far the ending of the command has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It works.
    Works,
    /// It was asked to end, and is killed at this moment, or else when the lock demands it.
    Asked(Option<Instant>),
    /// It was killed.
    Killed,
}

/// How the command ended.
pub(crate) struct Ended {
    /// How its main process did.
    pub(crate) status: WaitStatus,
    /// How the lock was lost, or about to be, before that.
    pub(crate) loss: Option<Loss>,
}

/// A command under way.
pub(crate) struct Supervisor<'a> {
    /// The main process, whose number is its group's too.
    main: Pid,
    tree: Tree,
    guard: &'a Guard,
    margins: Margins,
    signals: &'a mut Signals,
    sentry: Option<Sentry>,
    terminal: Option<Terminal>,
    /// Whether the command belongs at the front of the terminal when this program's job is there.
    belongs_to_front: bool,
    stage: Stage,
    /// The main process's end.
    status: Option<WaitStatus>,
    loss: Option<Loss>,
}

/// What the loop takes up next.
enum Next {
    Call(Call),
    /// The lock's certain time is short, or over.
    Short,
    /// The time is up that the command had to end.
    Overdue,
    /// The certain time has moved.
    Renewed,
    /// Nothing is known, but something may have changed.
    Look,
}

impl<'a> Supervisor<'a> {
    pub(crate) fn new(main: Pid, guard: &'a Guard, margins: Margins, signals: &'a mut Signals) -> Self {
        let tree = Tree {
            root: rustix::process::getpid(),
            group: Some(main),
        };
        Self {
            main,
            tree,
            guard,
            margins,
            signals,
            sentry: None,
            terminal: None,
            belongs_to_front: false,
            stage: Stage::Works,
            status: None,
            loss: None,
        }
    }

    /// With a sentry for the time in which this program cannot act.
    pub(crate) fn with_sentry(mut self, sentry: Option<Sentry>) -> Self {
        self.sentry = sentry;
        self
    }

    /// At this terminal.
    pub(crate) fn at(mut self, terminal: Option<Terminal>, belongs_to_front: bool) -> Self {
        self.terminal = terminal;
        self.belongs_to_front = belongs_to_front;
        self
    }

    /// Sees the command through to its end, and then what is left of it.
    pub(crate) async fn run(mut self) -> Ended {
        loop {
            let certain_until = self.guard.certain_until();
            if let Some(sentry) = &mut self.sentry {
                sentry.tell(self.margins.order(certain_until, Some(self.main)));
            }
            match self.next(certain_until).await {
                Next::Call(Call::Child) => self.reap(),
                Next::Call(Call::End(signal)) => self.tree.signal_group(signal),
                Next::Call(Call::Tell(signal)) => self.tell(signal),
                Next::Call(Call::Continue) => self.go_on(),
                Next::Short => self.heed_lock(),
                Next::Overdue => self.kill(),
                Next::Renewed | Next::Look => {}
            }
            let Some(status) = self.status else { continue };
            if self.leftovers_are_gone() {
                if let Some(terminal) = &self.terminal {
                    terminal.take_back_from(self.main);
                }
                return Ended {
                    status,
                    loss: self.loss,
                };
            }
        }
    }

    async fn next(&mut self, told: Moment) -> Next {
        let taken = self.guard.check() == Err(Loss::Taken);
        let (margin, overdue_at) = match self.stage {
            Stage::Works => (Some(self.margins.ask), None),
            // What was taken away has no time left that one could heed.
            Stage::Asked(Some(until)) if taken => (None, Some(until)),
            Stage::Asked(until) => (Some(self.margins.kill), until),
            Stage::Killed => (None, None),
        };
        let looks = self.status.is_some() || self.stage == Stage::Killed;
        tokio::select! {
            biased;
            () = self.guard.until_left(margin.unwrap_or_default()), if margin.is_some() => Next::Short,
            () = sleep_until(overdue_at.unwrap_or_else(Instant::now)), if overdue_at.is_some() => Next::Overdue,
            call = self.signals.next() => Next::Call(call),
            () = self.guard.moved_from(told) => Next::Renewed,
            () = sleep(LOOK_PAUSE), if looks => Next::Look,
        }
    }

    /// Does what the lock demands: nothing while its time is long, then asks the command to end, then kills it.
    fn heed_lock(&mut self) {
        match (self.guard.check(), self.stage) {
            (_, Stage::Killed) => {}
            (Err(Loss::Taken), Stage::Works) => self.ask(Loss::Taken, Some(Instant::now() + TAKEN_GRACE)),
            (Err(Loss::Taken), Stage::Asked(_)) => {
                self.stage = Stage::Asked(Some(Instant::now() + TAKEN_GRACE));
            }
            (Err(loss), _) => {
                self.lose(loss);
                self.kill();
            }
            (Ok(left), _) if left <= self.margins.kill => {
                self.lose(Loss::NotRenewed);
                self.kill();
            }
            (Ok(left), Stage::Works) if left <= self.margins.ask => self.ask(Loss::NotRenewed, None),
            (Ok(_), _) => {}
        }
    }

    /// The lock is lost, or about to be. Once the main process has ended, its work is done and judged.
    fn lose(&mut self, loss: Loss) {
        if self.status.is_none() {
            self.loss = self.loss.or(Some(loss));
        }
    }

    fn ask(&mut self, loss: Loss, until: Option<Instant>) {
        self.lose(loss);
        self.ask_to_end(until);
    }

    fn ask_to_end(&mut self, until: Option<Instant>) {
        self.stage = Stage::Asked(until);
        self.tree.signal(Signal::TERM);
        // One that is stopped hears it only when it goes on.
        self.tree.signal(Signal::CONT);
    }

    fn kill(&mut self) {
        self.stage = Stage::Killed;
        self.tree.signal(Signal::KILL);
    }

    /// Tells the main process something of its own.
    fn tell(&self, signal: Signal) {
        if self.status.is_none() {
            let _gone = kill_process(self.main, signal);
        }
    }

    /// Takes note of the children that have ended or were stopped: the command's main process, and orphans.
    fn reap(&mut self) {
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            if let Some(sentry) = self.sentry.as_mut().filter(|_| !status.stopped()) {
                sentry.note_death(pid);
            }
            if pid != self.main || self.status.is_some() {
                continue;
            }
            if let Some(signal) = status.stopping_signal() {
                self.was_stopped(signal);
            } else {
                self.status = Some(status);
                // The work is judged by whether it was alone to its end.
                if let Err(loss) = self.guard.check() {
                    self.loss = self.loss.or(Some(loss));
                }
            }
        }
    }

    /// The command was stopped: it wants the terminal, or the person at the terminal wants to do something else.
    fn was_stopped(&mut self, signal: i32) {
        let Some(terminal) = &self.terminal else { return };
        let wants_terminal = [Signal::TTIN, Signal::TTOU].map(Signal::as_raw).contains(&signal);
        if wants_terminal && terminal.is_ours() {
            self.belongs_to_front = true;
        } else if wants_terminal || signal == Signal::TSTP.as_raw() {
            // This program's job stops as well, so that the shell takes over. Where there is no shell that could
            // bring it back, the kernel does not stop it.
            terminal.take_back_from(self.main);
            let _cannot = kill_current_process_group(Signal::TSTP);
        } else {
            // Somebody stopped it with a purpose.
            return;
        }
        self.go_on();
    }

    /// The job goes on after it was stopped, if the lock is still there.
    fn go_on(&mut self) {
        self.heed_lock();
        if self.stage == Stage::Killed {
            return;
        }
        if let Some(terminal) = self.terminal.as_ref().filter(|_| self.belongs_to_front)
            && terminal.is_ours()
        {
            terminal.give_to(self.main);
        }
        self.tree.signal_group(Signal::CONT);
    }

    /// Whether nothing of the command is alive. What is, is asked to end, and killed when that takes too long.
    fn leftovers_are_gone(&mut self) -> bool {
        if self.is_gone() {
            return true;
        }
        match self.stage {
            Stage::Works => self.ask_to_end(Some(Instant::now() + LEFTOVER_GRACE)),
            Stage::Asked(None) => self.stage = Stage::Asked(Some(Instant::now() + LEFTOVER_GRACE)),
            Stage::Asked(Some(_)) => {}
            // Whoever was started in that very moment.
            Stage::Killed => self.tree.signal(Signal::KILL),
        }
        false
    }

    fn is_gone(&mut self) -> bool {
        if !self.tree.is_group_gone() {
            return false;
        }
        // Most often that was all. With the sentry gone too, having no child means that nothing descends from this
        // program, and spares the search.
        self.sentry = None;
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some(_)) => {}
                Ok(None) => return self.tree.is_gone(),
                Err(_) => return true,
            }
        }
    }
}

/// The exit code that a shell would show for this end.
pub(crate) fn exit_code(status: WaitStatus) -> u8 {
    let code = status
        .exit_status()
        .or_else(|| status.terminating_signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}
