//! The sentry: ends the command in time when the run cannot.
//!
//! A run that is stopped (SIGSTOP) renews nothing, and its command would work on while somebody else has the lock.
//! So a second process, in a session of its own where no signal meant for the others reaches it, knows until when
//! the lock is held for certain. When that time is nearly over, or the run is gone without a word, it kills what the
//! command has running. It is posted before the command starts, so that there is no moment without it. It hears from the run over a pipe; the end of the pipe means that the run is gone. When there is
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

/// The run's side: the sentry's process, and the pipe to it. The sentry ends with this: there is nothing left to
/// watch then.
pub(crate) struct Sentry {
    /// None when it is known to be dead.
    pid: Option<Pid>,
    orders: ChildStdin,
    /// What it was told last.
    told: Option<Order>,
}

/// What the run tells the sentry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    /// The command's group, once there is one.
    pub(crate) group: Option<Pid>,
    /// When the command must be dead.
    pub(crate) dead_at: Moment,
}

/// An order has so many bytes: the group (0 for none) and nanoseconds since boot.
const ORDER_BYTES: usize = 16;

impl Order {
    fn to_bytes(self) -> [u8; ORDER_BYTES] {
        let group = self.group.map_or(0, |group| i64::from(group.as_raw_pid()));
        let nanos = i64::try_from(self.dead_at.since_start().as_nanos()).unwrap_or(i64::MAX);
        ((i128::from(group) << 64) | i128::from(nanos)).to_be_bytes()
    }

    fn from_bytes(bytes: [u8; ORDER_BYTES]) -> Self {
        let both = i128::from_be_bytes(bytes);
        // Both halves were written above, and fit.
        let group = i32::try_from(both >> 64).unwrap_or(0);
        let nanos = u64::try_from(both & i128::from(u64::MAX)).unwrap_or(0);
        Self {
            group: Pid::from_raw(group),
            dead_at: Moment::at(Duration::from_nanos(nanos)),
        }
    }
}

impl Sentry {
    /// Sets up a sentry over this program.
    pub(crate) fn post() -> io::Result<Self> {
        let mut child = Command::new(THIS_PROGRAM)
            .arg0("ferrolho")
            .arg(SENTRY)
            .arg(std::process::id().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .current_dir("/")
            .spawn()?;
        let orders = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        // A sentry that is itself stopped must not stop the run when the pipe is full.
        rustix::io::ioctl_fionbio(&orders, true)?;
        Ok(Self {
            pid: Some(Pid::from_child(&child)),
            orders,
            told: None,
        })
    }

    /// Tells it what holds until the next order.
    pub(crate) fn tell(&mut self, order: Order) {
        if self.told != Some(order) {
            // It fails when somebody killed the sentry: then the run watches alone.
            let told = self.orders.write_all(&order.to_bytes());
            self.told = told.is_ok().then_some(order);
        }
    }

    /// Takes note that this process is dead, in case it was the sentry: its number may mean another one now.
    pub(crate) fn note_death(&mut self, pid: Pid) {
        self.pid = self.pid.filter(|sentry| *sentry != pid);
    }
}

impl Drop for Sentry {
    fn drop(&mut self) {
        if let Some(pid) = self.pid {
            let _gone = kill_process(pid, Signal::KILL);
            let _gone = waitpid(Some(pid), WaitOptions::empty());
        }
    }
}

/// `ferrolho __sentry RUN`: watches over a run's command.
pub(crate) fn watch(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let mut pid = || Pid::from_raw(arguments.next()?.to_str()?.parse().ok()?);
    let Some(root) = pid() else {
        exit::say("this is an inner part of `ferrolho run`");
        return exit::USAGE.into();
    };
    // Nothing but SIGKILL and SIGSTOP, which no program can refuse, ends or stops it.
    let _blocked = SigSet::all().thread_block();
    let _alone = rustix::process::setsid();
    let group = wait_for_the_end();
    let tree = Tree { root, group };
    for _ in 0..KILL_LOOKS {
        tree.signal(Signal::KILL);
        if tree.is_gone() {
            break;
        }
        std::thread::sleep(KILL_PAUSE);
    }
    ExitCode::SUCCESS
}

/// Listens to the run until the command must end, because its time is up or the run is gone: its group, if it is
/// known.
fn wait_for_the_end() -> Option<Pid> {
    let mut orders = io::stdin().lock();
    let mut last: Option<Order> = None;
    // That it cannot listen any more is an end too.
    loop {
        // The newest word counts, also after this process was stopped itself.
        while let Ok(true) = is_ready(Duration::ZERO) {
            let mut order = [0; ORDER_BYTES];
            if orders.read_exact(&mut order).is_err() {
                return last?.group;
            }
            last = Some(Order::from_bytes(order));
        }
        let left = last.map_or(LONGEST_NAP, |order| order.dead_at.since(BootClock.now()));
        if left.is_zero() || is_ready(left.min(LONGEST_NAP)).is_err() {
            return last?.group;
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
