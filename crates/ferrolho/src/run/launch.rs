//! Starting the command.
//!
//! What must happen in the new process before the command takes over (going to the front of the terminal, asking to
//! die with this program) cannot be done from outside, and not without unsafe code after a fork. So this program
//! starts itself once more under a hidden name, does it there, and then becomes the command.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use rustix::process::{Pid, Signal};

use super::terminal::Terminal;
use crate::exit;

/// This program, also when its file was replaced in the meantime.
pub(crate) const THIS_PROGRAM: &str = "/proc/self/exe";

/// The hidden name under which this program becomes the command.
pub(crate) const BECOME: &str = "__become";

/// The command cannot be run, as shells say it.
const CANNOT_RUN: u8 = 126;

/// There is no such command, as shells say it.
const NO_SUCH_COMMAND: u8 = 127;

/// What is started, and how.
pub(crate) struct Launch<'a> {
    /// The program and its arguments.
    pub(crate) command: &'a [OsString],
    /// What is added to the environment.
    pub(crate) environment: &'a [(&'static str, String)],
    /// Whether it goes to the front of the terminal.
    pub(crate) to_the_front: bool,
}

impl Launch<'_> {
    /// Starts it, in a process group of its own, whose number is the process's.
    pub(crate) fn start(&self) -> io::Result<Pid> {
        let child = Command::new(THIS_PROGRAM)
            .arg0("ferrolho")
            .arg(BECOME)
            .arg(std::process::id().to_string())
            .arg(if self.to_the_front { "front" } else { "behind" })
            .args(self.command)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .process_group(0)
            .spawn()?;
        Ok(Pid::from_child(&child))
    }
}

/// `ferrolho __become PARENT front|behind COMMAND…`, in the new process: becomes the command.
pub(crate) fn become_command(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let parent = arguments.next().and_then(|parent| parent.to_str()?.parse().ok());
    let to_the_front = arguments.next().is_some_and(|place| place == "front");
    let (Some(parent), Some(program)) = (parent, arguments.next()) else {
        exit::say("this is an inner part of `ferrolho run`");
        return exit::USAGE.into();
    };
    // A command must not outlive the run that holds its lock, however that ends. Where the kernel does not know
    // this, the sentry is left.
    let _unknown = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    if rustix::process::getppid() != Pid::from_raw(parent) {
        // It died before it could be asked about.
        return ExitCode::FAILURE;
    }
    if to_the_front && let Some(terminal) = Terminal::open() {
        terminal.give_to(rustix::process::getpgrp());
    }
    let error = Command::new(&program).args(arguments).exec();
    exit::say(format_args!("cannot run {}: {error}", program.display()));
    match error.kind() {
        io::ErrorKind::NotFound => NO_SUCH_COMMAND.into(),
        _ => CANNOT_RUN.into(),
    }
}
