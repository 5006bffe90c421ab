//! The program under test, running.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Answer, Connection, Lock, Request, lock_path, until};

/// How a server is started, and started again.
#[derive(Clone, Debug)]
struct Settings {
    store: String,
    args: Vec<String>,
    env: Vec<(String, String)>,
}

/// A running `ferrolho serve` on a free port. It is killed when this is dropped; after a failed test its log is
/// shown.
#[derive(Debug)]
pub(crate) struct Server {
    settings: Settings,
    dir: TempDir,
    child: Child,
    pub(crate) addr: SocketAddr,
    /// What requests show, unless they show something themselves.
    token: Option<String>,
}

impl Server {
    /// A server on SQLite, as it is by default.
    pub(crate) fn start() -> Self {
        Self::with(&[])
    }

    /// A server on SQLite with these arguments.
    pub(crate) fn with(args: &[&str]) -> Self {
        Self::start_on("sqlite:ferrolho.db", args, &[])
    }

    /// A server that keeps its locks in memory.
    pub(crate) fn memory() -> Self {
        Self::on("memory:")
    }

    /// A server on this store.
    pub(crate) fn on(store: &str) -> Self {
        Self::start_on(store, &[], &[])
    }

    /// A server on a SQLite file that was made before, by `make`.
    pub(crate) fn on_file(make: impl FnOnce(&Path)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        make(&dir.path().join("ferrolho.db"));
        Self::start_in(dir, "sqlite:ferrolho.db", &[], &[])
    }

    /// A server on SQLite that asks for tokens: those of these lines. Requests show this one.
    pub(crate) fn asking(lines: &str, token: &str) -> Self {
        Self::asking_with(lines, token, &[])
    }

    /// The same, with these arguments.
    pub(crate) fn asking_with(lines: &str, token: &str, args: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("tokens"), lines).unwrap();
        let args = [&["--tokens", "tokens"], args].concat();
        let mut server = Self::start_in(dir, "sqlite:ferrolho.db", &args, &[]);
        server.token = Some(token.to_owned());
        server
    }

    /// Its file of tokens.
    pub(crate) fn token_file(&self) -> PathBuf {
        self.path("tokens")
    }

    /// A file in the directory that it runs in.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A server on this store, with these arguments and this environment.
    pub(crate) fn start_on(store: &str, args: &[&str], env: &[(&str, &str)]) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), store, args, env)
    }

    fn start_in(dir: TempDir, store: &str, args: &[&str], env: &[(&str, &str)]) -> Self {
        let own = |text: &&str| (*text).to_owned();
        let settings = Settings {
            store: store.to_owned(),
            args: args.iter().map(own).collect(),
            env: env.iter().map(|(name, value)| (own(name), own(value))).collect(),
        };
        let (child, addr) = launch(&settings, &dir);
        Self {
            settings,
            dir,
            child,
            addr,
            token: None,
        }
    }

    /// Starts it anew, after it has ended, on the same store.
    pub(crate) fn start_again(&mut self) {
        assert!(self.child.try_wait().unwrap().is_some(), "it is still running");
        (self.child, self.addr) = launch(&self.settings, &self.dir);
    }

    /// Changes a variable of its environment, as from its next start.
    pub(crate) fn set_env(&mut self, name: &str, value: &str) {
        self.settings.env.retain(|(n, _)| n != name);
        self.settings.env.push((name.to_owned(), value.to_owned()));
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// `kill -9`, and its end.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        until("the server ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    /// Asks it to stop and waits until it has.
    pub(crate) fn stop(&mut self) {
        self.signal(Signal::TERM);
        assert!(self.wait().success());
    }

    /// What it has written to its log since its first start.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap()
    }

    /// Its SQLite file.
    pub(crate) fn file(&self) -> PathBuf {
        self.dir.path().join("ferrolho.db")
    }

    /// Opens its SQLite file, as an operator would.
    pub(crate) fn database(&self) -> rusqlite::Connection {
        let database = rusqlite::Connection::open(self.file()).unwrap();
        database.busy_timeout(super::PATIENCE).unwrap();
        database
    }

    /// How many descriptors it has open.
    pub(crate) fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.pid().as_raw_pid()))
            .unwrap()
            .count()
    }

    /// How much memory it has had in use at the most, in KiB.
    pub(crate) fn peak_memory_kib(&self) -> u64 {
        self.status_kib("VmHWM:")
    }

    /// How much memory it has in use, in KiB.
    pub(crate) fn memory_kib(&self) -> u64 {
        self.status_kib("VmRSS:")
    }

    fn status_kib(&self, name: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid().as_raw_pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended before.
        let _ended = self.child.kill();
        let _ended = self.child.wait();
        if thread::panicking() {
            eprintln!("the log of {}:\n{}", self.addr, self.log());
        }
    }
}

/// The program with these arguments, and nothing of the environment that would change what it does.
pub(crate) fn ferrolho(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ferrolho"));
    command.args(args).stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("FERROLHO_") {
            command.env_remove(name);
        }
    }
    command
}

/// Starts the program and reads its ready line.
fn launch(settings: &Settings, dir: &TempDir) -> (Child, SocketAddr) {
    let log = File::options()
        .create(true)
        .append(true)
        .open(dir.path().join("log"))
        .unwrap();
    let mut command = ferrolho(&["serve", "--listen", "127.0.0.1:0", "--store", &settings.store]);
    command
        .args(&settings.args)
        .envs(settings.env.iter().cloned())
        .current_dir(dir.path())
        .stdout(Stdio::piped())
        .stderr(log);
    let mut child = command.spawn().unwrap();
    let mut ready = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut ready)
        .unwrap();
    let addr = ready
        .split_once("://")
        .and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
    let addr = addr.unwrap_or_else(|| {
        let log = fs::read_to_string(dir.path().join("log")).unwrap_or_default();
        panic!("it is not ready: {ready}{log}")
    });
    (child, addr)
}

/// Requests, each on a connection of its own.
impl Server {
    pub(crate) fn connect(&self) -> Connection {
        Connection::to(self.addr).showing(self.token.clone())
    }

    pub(crate) fn call(&self, request: &Request) -> Answer {
        self.connect().call(request)
    }

    /// Sends a request and leaves its answer to be read later.
    pub(crate) fn begin(&self, request: &Request) -> Connection {
        let mut connection = self.connect();
        connection.send(request);
        connection
    }

    pub(crate) fn get(&self, target: &str) -> Answer {
        self.call(&Request::get(target))
    }

    pub(crate) fn post(&self, target: &str, body: &Value) -> Answer {
        self.call(&Request::post(target).json(body))
    }

    pub(crate) fn delete(&self, target: &str, body: &Value) -> Answer {
        self.call(&Request::delete(target).json(body))
    }

    pub(crate) fn acquire(&self, resource: &str, owner: &str, ttl: u32) -> Answer {
        self.call(&acquire(resource, owner, ttl))
    }

    pub(crate) fn find(&self, resource: &str) -> Answer {
        self.get(&lock_path(resource))
    }

    pub(crate) fn release(&self, resource: &str, owner: &str) -> Answer {
        self.delete(&lock_path(resource), &json!({"owner": owner}))
    }

    pub(crate) fn renew(&self, resource: &str, owner: &str, ttl: u32) -> Answer {
        let path = format!("{}/renew", lock_path(resource));
        self.post(&path, &json!({"owner": owner, "ttl_seconds": ttl}))
    }

    /// Sends a request that waits for a lock.
    pub(crate) fn wait_for(&self, resource: &str, owner: &str, ttl: u32, wait: u32) -> Connection {
        self.begin(&acquire_waiting(resource, owner, ttl, wait))
    }

    /// Who waits for a lock, in order.
    pub(crate) fn waiters(&self, resource: &str) -> Vec<String> {
        let answer = self.get(&format!("{}/waiters", lock_path(resource)));
        assert_eq!(answer.status, 200, "{}", answer.text());
        let waiters = answer.json()["waiters"].as_array().unwrap().clone();
        waiters
            .iter()
            .map(|waiter| waiter["owner"].as_str().unwrap().to_owned())
            .collect()
    }

    /// Waits until so many wait for a lock.
    pub(crate) fn until_waiting(&self, resource: &str, count: usize) {
        until("they wait", || self.waiters(resource).len() == count);
    }

    /// Lets `owner` acquire a lock for a second and waits until it is over.
    pub(crate) fn expired(&self, resource: &str, owner: &str) -> Lock {
        let lock = self.acquire(resource, owner, 1).granted();
        until("it expires", || self.find(resource).status == 404);
        lock
    }
}

/// A request for a lock.
pub(crate) fn acquire(resource: &str, owner: &str, ttl: u32) -> Request {
    Request::post(&lock_path(resource)).json(&json!({"owner": owner, "ttl_seconds": ttl}))
}

/// A request that waits for a lock.
pub(crate) fn acquire_waiting(resource: &str, owner: &str, ttl: u32, wait: u32) -> Request {
    let body = json!({"owner": owner, "ttl_seconds": ttl, "wait_seconds": wait});
    Request::post(&lock_path(resource)).json(&body)
}
