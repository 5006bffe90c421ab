//! What the starters of engines share: programs that end with the test, free ports, and the rule for what is
//! not installed.

use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

/// When this variable is `1`, a test whose engine is not installed fails instead of saying that it did not run.
pub const REQUIRE_ENGINES: &str = "FERROLHO_REQUIRE_ENGINES";

/// Says on stderr that what needs `engine` was not run, because `what` is not there; or fails the test, when
/// engines are required. (`scripts/test` requires them.)
pub fn missing(engine: &str, what: &str) {
    assert!(
        std::env::var(REQUIRE_ENGINES).as_deref() != Ok("1"),
        "{engine} is required by {REQUIRE_ENGINES}=1, but {what} is not installed"
    );
    // Not by a macro: the test runner keeps what those print of tests that pass to itself.
    let _ = writeln!(
        std::io::stderr(),
        "NOT RUN: this test needs {engine}, and {what} is not installed"
    );
}

/// Where this program is: in one of `directories`, or on the path.
pub(crate) fn find_program(name: &str, directories: &[PathBuf]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    directories
        .iter()
        .cloned()
        .chain(std::env::split_paths(&path))
        .map(|directory| directory.join(name))
        .find(|program| program.is_file())
}

/// The library that gives a program a false clock, from Debian's package `faketime`.
pub fn faketime_library() -> Option<PathBuf> {
    std::fs::read_dir("/usr/lib")
        .ok()?
        .flatten()
        .map(|entry| entry.path().join("faketime/libfaketime.so.1"))
        .find(|library| library.is_file())
}

/// A port of the loopback address that nobody used a moment ago.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .expect("a free loopback port")
        .port()
}

/// A command that drops root's rights to those of `user`, since PostgreSQL and PgBouncer refuse to run as root,
/// and that the kernel ends when the test that started it ends in any way.
pub(crate) fn command_as(user: &User, program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.arg("--pdeathsig").arg("QUIT");
    if let User::Other { uid, gid } = user {
        command
            .arg(format!("--reuid={uid}"))
            .arg(format!("--regid={gid}"))
            .arg("--clear-groups");
    }
    command.arg("--").arg(program);
    // A process group of its own: a Ctrl-C at the terminal is for the test runner.
    command.process_group(0);
    command
}

/// As whom an engine runs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum User {
    /// As the test itself.
    Same,
    /// As somebody with fewer rights.
    Other { uid: u32, gid: u32 },
}

impl User {
    /// `name` when the test runs as root, else nobody other than the test's own user.
    pub(crate) fn unless_root(name: &str) -> Self {
        if !rustix::process::geteuid().is_root() {
            return Self::Same;
        }
        let id = |flag: &str| -> u32 {
            let output = Command::new("id").args([flag, name]).output().expect("id runs");
            String::from_utf8_lossy(&output.stdout)
                .trim()
                .parse()
                .unwrap_or_else(|_| panic!("there is no user {name} to run the engine as"))
        };
        Self::Other {
            uid: id("-u"),
            gid: id("-g"),
        }
    }

    /// Gives a file or directory to this user.
    pub(crate) fn give(&self, path: &Path) {
        if let Self::Other { uid, gid } = self {
            std::os::unix::fs::chown(path, Some(*uid), Some(*gid)).expect("chown of a test directory");
        }
    }
}

/// Sends a signal to a child and waits for its end.
pub(crate) fn end(child: &mut Child, signal: rustix::process::Signal) {
    if let Ok(None) = child.try_wait()
        && let Some(pid) = i32::try_from(child.id())
            .ok()
            .and_then(rustix::process::Pid::from_raw)
    {
        let _ = rustix::process::kill_process(pid, signal);
    }
    let _ = child.wait();
}
