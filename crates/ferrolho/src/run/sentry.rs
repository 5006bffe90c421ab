//! The sentry: ends the command in time when the run cannot.
//!
//! A run that is stopped (SIGSTOP) renews nothing, and its command would work on while somebody else has the lock.
//! So a second process, in a session of its own where no signal meant for the others reaches it, knows until when
//! the lock is held for certain. When that time is nearly over, or the run is gone without a word, it kills what the
//! command has running. It hears from the run over a pipe; the end of the pipe means that the run is gone. When there is
//! nothing left to watch, the run ends it.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, Command, ExitCode, Stdio};
use std::time::Duration;

use ferrolho_client::{BootClock, Clock, Moment};
use nix::sys::signal::SigSet;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use super::launch::THIS_PROGRAM;
use super::tree::Tree;
use crate::exit;

/// The hidden name under which this program is a sentry.
pub(crate) const SENTRY: &str = "__sentry";

/// The longest single sleep: timers stand still while the machine sleeps, and the clock does not.
const LONGEST_NAP: Duration = Duration::from_millis(500);

/// How long between two looks whether those who were killed are gone.
const KILL_PAUSE: Duration = Duration::from_millis(5);

/// How often the dying are looked at before they are left to the kernel: a process that cannot die now never
/// runs again either.
const KILL_LOOKS: usize = 2_000;

/// The run's side: the sentry's process, and the pipe to it.
pub(crate) struct Sentry {
    pid: Pid,
    orders: ChildStdin,
    /// What it was told last.
    told: Option<Moment>,
}

impl Sentry {
    /// Sets up a sentry over this group of this program.
    pub(crate) fn post(group: Pid) -> io::Result<Self> {
        let mut child = Command::new(THIS_PROGRAM)
            .arg0("ferrolho")
            .arg(SENTRY)
            .arg(std::process::id().to_string())
            .arg(group.as_raw_pid().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .current_dir("/")
            .spawn()?;
        let orders = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        // A sentry that is itself stopped must not stop the run when the pipe is full.
        rustix::io::ioctl_fionbio(&orders, true)?;
        Ok(Self {
            pid: Pid::from_child(&child),
            orders,
            told: None,
        })
    }

    /// The command is to be dead at this moment, unless another is named before.
    pub(crate) fn dead_at(&mut self, moment: Moment) {
        if self.told != Some(moment) {
            let nanos = u64::try_from(moment.since_start().as_nanos()).unwrap_or(u64::MAX);
            // It fails when somebody killed the sentry: then the run watches alone.
            let told = self.orders.write_all(&nanos.to_be_bytes());
            self.told = told.is_ok().then_some(moment);
        }
    }

    /// Ends it: there is nothing left to watch.
    pub(crate) fn dismiss(self) {
        let _gone = kill_process(self.pid, Signal::KILL);
        let _gone = waitpid(Some(self.pid), WaitOptions::empty());
    }
}

/// `ferrolho __sentry RUN GROUP`: watches over a command.
pub(crate) fn watch(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let mut pid = || Pid::from_raw(arguments.next()?.to_str()?.parse().ok()?);
    let (Some(root), Some(group)) = (pid(), pid()) else {
        exit::say("this is an inner part of `ferrolho run`");
        return exit::USAGE.into();
    };
    let tree = Tree { root, group };
    // Nothing but SIGKILL and SIGSTOP, which no program can refuse, ends or stops it.
    let _blocked = SigSet::all().thread_block();
    let _alone = rustix::process::setsid();
    wait_for_the_end();
    for _ in 0..KILL_LOOKS {
        tree.signal(Signal::KILL);
        if tree.is_gone() {
            break;
        }
        std::thread::sleep(KILL_PAUSE);
    }
    ExitCode::SUCCESS
}

/// Listens to the run until the command must end: its time is up, or the run is gone.
fn wait_for_the_end() {
    let mut orders = io::stdin().lock();
    let mut dead_at: Option<Moment> = None;
    // That it cannot listen any more is an end too.
    loop {
        // The newest word counts, also after this process was stopped itself.
        while let Ok(true) = is_ready(Duration::ZERO) {
            let mut order = [0; 8];
            if orders.read_exact(&mut order).is_err() {
                return;
            }
            dead_at = Some(Moment::at(Duration::from_nanos(u64::from_be_bytes(order))));
        }
        let left = dead_at.map_or(LONGEST_NAP, |moment| moment.since(BootClock.now()));
        if left.is_zero() || is_ready(left.min(LONGEST_NAP)).is_err() {
            return;
        }
    }
}

/// Waits so long for a word of the run, or for its end.
fn is_ready(timeout: Duration) -> io::Result<bool> {
    let stdin = rustix::stdio::stdin();
    let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
    let timeout = Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    Ok(poll(&mut fds, Some(&timeout))? > 0)
}
