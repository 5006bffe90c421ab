//! The real binary under `strace`.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::trace::CALLS;

/// Longer than anything here takes on a slow machine.
const PATIENCE: Duration = Duration::from_mins(1);

pub(crate) struct Traced {
    strace: Child,
    server: Pid,
    pub(crate) address: SocketAddr,
    pub(crate) trace: PathBuf,
}

/// Waits until something is so.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl Traced {
    /// Starts a server on the file `ferrolho.db` in this directory. Its trace and its output go to `beside`.
    pub(crate) fn start(directory: &Path, beside: &Path, number: u16) -> Self {
        let trace = beside.join(format!("trace-{number}"));
        let output = beside.join(format!("output-{number}"));
        let errors = beside.join(format!("errors-{number}"));
        let mut command = Command::new("setpriv");
        // Both end with this test, however it ends.
        command
            .args([
                "--pdeathsig",
                "KILL",
                "--",
                "strace",
                "-f",
                "--seccomp-bpf",
                "-yy",
                "-xx",
            ])
            .args(["-s", "100000000", "-e", &format!("trace={CALLS}"), "-o"])
            .arg(&trace)
            .args(["--", "setpriv", "--pdeathsig", "KILL", "--"])
            .arg(env!("CARGO_BIN_EXE_ferrolho"))
            .args(["serve", "--listen", "127.0.0.1:0", "--store"])
            .arg(format!("sqlite:{}", directory.join("ferrolho.db").display()))
            .current_dir(beside)
            .stdin(Stdio::null())
            .stdout(fs::File::create(&output).unwrap())
            .stderr(fs::File::create(&errors).unwrap());
        let mut strace = command.spawn().unwrap();
        let address = until("the server is ready", || {
            assert!(
                strace.try_wait().unwrap().is_none(),
                "it has ended: {}",
                fs::read_to_string(&errors).unwrap()
            );
            let ready = fs::read_to_string(&output).unwrap();
            ready.split_once("http://")?.1.split(' ').next()?.parse().ok()
        });
        let children = format!("/proc/{pid}/task/{pid}/children", pid = strace.id());
        let server = until("strace has a child", || {
            Pid::from_raw(
                fs::read_to_string(&children)
                    .ok()?
                    .split_whitespace()
                    .next()?
                    .parse()
                    .ok()?,
            )
        });
        Self {
            strace,
            server,
            address,
            trace,
        }
    }

    /// `kill -9`.
    pub(crate) fn kill(&self) {
        kill_process(self.server, Signal::KILL).unwrap();
    }

    /// Asks it to stop.
    pub(crate) fn stop(&self) {
        kill_process(self.server, Signal::TERM).unwrap();
    }

    /// Waits until it has ended and its trace is whole.
    pub(crate) fn wait(&mut self) {
        until("strace ends", || self.strace.try_wait().unwrap());
    }
}
