//! The terminal: who is at its front.
//!
//! A terminal sends Ctrl-C to one process group, and lets only that group read. The command has a group of its own,
//! so it must be brought to the front, and this program must step back there when the command has ended or was
//! stopped, or the shell's job control hangs.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal};

use nix::sys::signal::{SigSet, Signal};
use rustix::process::{Pid, getpgrp};

/// The controlling terminal.
pub(crate) struct Terminal(File);

impl Terminal {
    /// The controlling terminal, if there is one.
    pub(crate) fn open() -> Option<Self> {
        // Closed by itself in every program that is started.
        OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/tty")
            .ok()
            .map(Self)
    }

    /// The group at the front.
    fn front(&self) -> Option<Pid> {
        rustix::termios::tcgetpgrp(&self.0).ok()
    }

    /// Whether this program's group is at the front.
    pub(crate) fn is_ours(&self) -> bool {
        self.front() == Some(getpgrp())
    }

    /// Brings a group to the front.
    pub(crate) fn give_to(&self, group: Pid) {
        // Whoever does this from behind is stopped by SIGTTOU, unless that is blocked.
        let mut stop = SigSet::empty();
        stop.add(Signal::SIGTTOU);
        let before = stop.thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_BLOCK);
        // It fails when the terminal or the group is gone: then there is no front to be at.
        let _gone = rustix::termios::tcsetpgrp(&self.0, group);
        if let Ok(before) = before {
            let _same = before.thread_set_mask();
        }
    }

    /// Brings this program's group back to the front, if `group` is there.
    pub(crate) fn take_back_from(&self, group: Pid) {
        if self.front() == Some(group) {
            self.give_to(getpgrp());
        }
    }
}

/// Whether people are at both ends of the command. Where its output goes into a pipe, another program of the same
/// job (a pager, say) may need the terminal; the command gets it as soon as it asks.
pub(crate) fn is_interactive() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}
