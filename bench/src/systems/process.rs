//! Servers as child processes: started in a directory of their own, awaited, and ended with the bench.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

/// How long a server may take until it answers.
const START_TIMEOUT: Duration = Duration::from_mins(1);
/// How often it is looked whether a server answers or has ended.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// A running server.
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
}

/// How a server is started.
pub(crate) struct Start<'a> {
    pub(crate) program: &'a Path,
    /// The directory that is the server's own, and holds its log.
    pub(crate) directory: &'a Path,
    /// As whom it runs, if not as the caller.
    pub(crate) user: Option<&'a str>,
    pub(crate) arguments: Vec<String>,
    pub(crate) variables: Vec<(&'static str, String)>,
}

impl Start<'_> {
    /// The command. The kernel ends the server when the bench ends in any way.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]);
        if let Some(user) = self.user {
            command.args([
                format!("--reuid={user}"),
                format!("--regid={user}"),
                "--clear-groups".into(),
            ]);
        }
        command.arg("--").arg(self.program).args(&self.arguments);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.current_dir(self.directory);
        command
    }

    /// Starts it and waits until something listens at `address`.
    pub(crate) fn listening_at(&self, address: SocketAddr) -> Result<Process> {
        let mut process = self.spawn(false)?;
        process.wait_until(|_| TcpStream::connect(address).is_ok())?;
        Ok(process)
    }

    /// Starts it and waits for the line on its standard output that says at which `http://` address it listens.
    pub(crate) fn announcing(&self) -> Result<(Process, SocketAddr)> {
        let mut process = self.spawn(true)?;
        let output = process.child.stdout.as_mut().context("no standard output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        let address = line
            .split_once("http://")
            .and_then(|(_, rest)| rest.split_whitespace().next()?.parse().ok());
        match address {
            Some(address) => Ok((process, address)),
            None => bail!("it did not start: {line}{}", process.last_words()),
        }
    }

    fn spawn(&self, output: bool) -> Result<Process> {
        let log = self.directory.join("log");
        let file = File::options().create(true).append(true).open(&log)?;
        let mut command = self.command();
        command.stdin(Stdio::null()).stderr(file.try_clone()?);
        command.stdout(if output { Stdio::piped() } else { Stdio::from(file) });
        let child = command
            .spawn()
            .with_context(|| format!("cannot start {}", self.program.display()))?;
        Ok(Process { child, log })
    }
}

impl Process {
    /// Its number.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    fn wait_until(&mut self, ready: impl Fn(&Self) -> bool) -> Result<()> {
        let give_up = Instant::now() + START_TIMEOUT;
        while !ready(self) {
            if self.child.try_wait()?.is_some() || Instant::now() > give_up {
                bail!("it did not start: {}", self.last_words());
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// Sends a signal and waits for its end.
    pub(crate) fn end(&mut self, signal: Signal) -> Result<()> {
        if self.child.try_wait()?.is_none()
            && let Some(id) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
        {
            kill_process(id, signal)?;
        }
        self.child.wait()?;
        Ok(())
    }

    fn last_words(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = log.lines().rev().take(3).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join(" / ")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A server that cannot be ended now ends with the bench.
        let _ = self.end(Signal::KILL);
    }
}

/// An address of this machine at which nobody listened a moment ago.
pub(crate) fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

/// A program on the path or in one of these directories.
pub(crate) fn find(name: &str, directories: &[PathBuf]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    directories
        .iter()
        .cloned()
        .chain(std::env::split_paths(&path))
        .map(|directory| directory.join(name))
        .find(|program| program.is_file())
}

/// Runs a command to its end. What it said last when it failed.
pub(crate) fn complete(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("cannot run {}", command.get_program().display()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<_> = said.trim().lines().rev().take(3).collect();
    bail!("{}", lines.into_iter().rev().collect::<Vec<_>>().join(" / "))
}
