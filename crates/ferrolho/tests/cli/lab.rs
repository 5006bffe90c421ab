//! A server, a folder, and processes to look after.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tempfile::TempDir;

use crate::fake::Fake;

/// The program under test.
pub(crate) const FERROLHO: &str = env!("CARGO_BIN_EXE_ferrolho");

pub(crate) struct Lab {
    pub(crate) fake: Fake,
    dir: TempDir,
}

impl Lab {
    pub(crate) fn new() -> Self {
        Self {
            fake: Fake::start(),
            dir: tempfile::tempdir().unwrap(),
        }
    }

    /// A file in the lab's folder.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.file(name)).unwrap_or_default()
    }

    /// `ferrolho` with these arguments, in the lab's folder, facing the lab's server.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(FERROLHO);
        command.args(args);
        self.prepare(&mut command);
        command
    }

    pub(crate) fn prepare(&self, command: &mut Command) {
        for name in [
            "FERROLHO_OWNER",
            "FERROLHO_TOKEN",
            "FERROLHO_FENCING_TOKEN",
            "NO_COLOR",
        ] {
            command.env_remove(name);
        }
        command
            .env("FERROLHO_URL", self.fake.url())
            .current_dir(self.dir.path());
    }

    /// Starts `ferrolho run r ARGS`, with its output to be read.
    pub(crate) fn start(&self, args: &[&str]) -> Running {
        let mut command = self.command(&["run", "r"]);
        command
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Running {
            child: command.spawn().unwrap(),
        }
    }

    /// `ferrolho run r ARGS` to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.start(args).end()
    }

    /// Waits for the number of a process that a command writes to this file.
    pub(crate) fn pid(&self, name: &str) -> Pid {
        until(name, || self.read(name).ends_with('\n'));
        Pid::from_raw(self.read(name).trim().parse().unwrap()).unwrap()
    }
}

/// A process that is killed with the test.
pub(crate) struct Running {
    child: Child,
}

impl Running {
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub(crate) fn send(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Waits for its end: how it ended, and what it said.
    pub(crate) fn end(mut self) -> Output {
        let mut output = Output {
            status: self.wait(),
            stdout: Vec::new(),
            stderr: Vec::new(),
        };
        if let Some(mut pipe) = self.child.stdout.take() {
            std::io::Read::read_to_end(&mut pipe, &mut output.stdout).unwrap();
        }
        if let Some(mut pipe) = self.child.stderr.take() {
            std::io::Read::read_to_end(&mut pipe, &mut output.stderr).unwrap();
        }
        output
    }

    /// Waits for its end, leaving what it said unread.
    pub(crate) fn wait(&mut self) -> std::process::ExitStatus {
        let mut status = None;
        until("it ended", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has usually ended long ago.
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

/// Whether a process is alive; one that is dead and waits for its parent is not.
pub(crate) fn is_alive(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    test_kill_process(pid).is_ok() && !matches!(state, None | Some('Z'))
}

/// Waits until this is so. It fails when it is not so after a time that no healthy run needs.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(30), "it never came: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
