//! A private PostgreSQL server from the installed binaries.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::Certificate;
use crate::engine::{User, command_as, end, faketime_library, find_program, free_port, missing};

/// How long a server may take to answer after its start.
const START_TIMEOUT: Duration = Duration::from_mins(1);

/// How a private server differs from the default one.
#[derive(Clone, Debug, Default)]
pub struct PostgresOptions {
    /// More lines for `postgresql.conf`, such as `timezone = 'Europe/Lisbon'`.
    pub settings: Vec<String>,
    /// Its clock can be stepped ([`Postgres::set_clock`]); needs Debian's `faketime`.
    pub false_clock: bool,
    /// It offers TLS, and shows this.
    pub tls: Option<Certificate>,
}

/// A private server on a free loopback port, which ends when this is dropped. Its only user is `postgres`, who
/// needs no password.
#[derive(Debug)]
pub struct Postgres {
    dir: TempDir,
    user: User,
    binaries: PathBuf,
    port: u16,
    false_clock: Option<PathBuf>,
    child: Option<Child>,
}

impl Postgres {
    /// Starts a server; nothing when PostgreSQL is not installed (see [`missing`]).
    pub fn start() -> Option<Self> {
        Self::start_with(&PostgresOptions::default())
    }

    /// Starts a server with these options.
    pub fn start_with(options: &PostgresOptions) -> Option<Self> {
        let Some(initdb) = find_program("initdb", &debian_directories()) else {
            missing("PostgreSQL", "initdb (Debian's package postgresql)");
            return None;
        };
        let false_clock = if options.false_clock {
            let library = faketime_library();
            if library.is_none() {
                missing("PostgreSQL with a false clock", "Debian's package faketime");
                return None;
            }
            library
        } else {
            None
        };
        let binaries = initdb.parent().map(Path::to_path_buf).unwrap_or_default();
        let mut server = Self::without_data(binaries, false_clock);
        server.initialize(options);
        server.set_clock(0.0);
        server.boot();
        Some(server)
    }

    fn without_data(binaries: PathBuf, false_clock: Option<PathBuf>) -> Self {
        let user = User::unless_root("postgres");
        let dir = tempfile::Builder::new()
            .prefix("ferrolho-pg-")
            .tempdir()
            .expect("a temporary directory");
        user.give(dir.path());
        Self {
            dir,
            user,
            binaries,
            port: free_port(),
            false_clock,
            child: None,
        }
    }

    /// Starts a standby that follows this server.
    pub fn standby(&self) -> Self {
        let mut standby = Self::without_data(self.binaries.clone(), None);
        let output = command_as(&standby.user, &self.binaries.join("pg_basebackup"))
            .arg("--pgdata")
            .arg(standby.data())
            .args(["--host", "127.0.0.1", "--port", &self.port.to_string()])
            .args(["--username", "postgres", "--write-recovery-conf"])
            .args(["--checkpoint", "fast", "--no-sync"])
            .output()
            .expect("pg_basebackup runs");
        assert!(
            output.status.success(),
            "pg_basebackup failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        // Of a setting that is there twice the later one counts.
        standby.add_settings(&standby.place());
        standby.boot();
        standby
    }

    /// Makes a standby of the server: it starts again as one that follows nobody yet.
    pub fn demote(&mut self) {
        self.stop();
        let signal = self.data().join("standby.signal");
        fs::write(&signal, "").expect("the standby's file");
        self.user.give(&signal);
        self.boot();
    }

    /// Makes a primary of a standby.
    pub fn promote(&self) {
        assert_eq!(self.sql("postgres", "SELECT pg_promote()"), "t");
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// A URL for this database.
    pub fn url(&self, database: &str) -> String {
        self.url_at(self.port, database)
    }

    /// A URL for this database through another port, such as a proxy's.
    pub fn url_at(&self, port: u16, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{port}/{database}")
    }

    /// Makes an empty database of this name.
    pub fn create_database(&self, name: &str) {
        self.sql("postgres", &format!("CREATE DATABASE {name}"));
    }

    /// Runs SQL as the superuser and gives back what it printed: one line a row, columns separated by `|`.
    /// Each statement commits on its own.
    pub fn sql(&self, database: &str, sql: &str) -> String {
        let output = Command::new(self.binaries.join("psql"))
            .args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align"])
            .args(["--set", "ON_ERROR_STOP=1", "--username", "postgres"])
            .args(["--host", "127.0.0.1", "--port", &self.port.to_string()])
            .args(["--dbname", database, "--command", sql])
            .output()
            .expect("psql runs");
        assert!(
            output.status.success(),
            "psql failed on {sql}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    /// Ends all sessions on this database whose application's name is like `pattern`; how many those were.
    pub fn terminate_sessions(&self, database: &str, pattern: &str) -> usize {
        self.sql(
            "postgres",
            &format!(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                 WHERE datname = '{database}' AND application_name LIKE '{pattern}'"
            ),
        )
        .lines()
        .count()
    }

    /// What the server has logged since it was made.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).expect("the server's log")
    }

    /// Steps the clock of a server with a false clock to so many seconds from the real time.
    pub fn set_clock(&self, seconds: f64) {
        if self.false_clock.is_some() {
            // Renamed into place: the server reads the file at every look at its clock.
            let next = self.dir.path().join("clock.next");
            fs::write(&next, format!("{seconds:+.3}\n")).expect("the clock file");
            self.user.give(&next);
            fs::rename(&next, self.clock_file()).expect("the clock file");
        }
    }

    /// Ends the server as an operator would: sessions are ended, what is committed is kept.
    pub fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            end(&mut child, Signal::INT);
        }
    }

    /// Ends the server as a power cut would.
    pub fn crash(&mut self) {
        if let Some(mut child) = self.child.take() {
            end(&mut child, Signal::QUIT);
        }
    }

    /// Starts the server again after a stop.
    pub fn boot(&mut self) {
        let program = self.binaries.join("postgres");
        let mut command = match &self.false_clock {
            None => command_as(&self.user, &program),
            // The library must be loaded by the server alone: what runs before it runs as somebody else.
            Some(library) => {
                let mut command = command_as(&self.user, Path::new("/usr/bin/env"));
                command
                    .arg(format!("LD_PRELOAD={}", library.display()))
                    .arg(format!("FAKETIME_TIMESTAMP_FILE={}", self.clock_file().display()))
                    .args(["FAKETIME_NO_CACHE=1", "FAKETIME_DONT_FAKE_MONOTONIC=1"])
                    .arg(program);
                command
            }
        };
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.dir.path().join("log"))
            .expect("the server's log");
        let child = command
            .arg("-D")
            .arg(self.data())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a second handle"))
            .stderr(log)
            .spawn()
            .expect("postgres starts");
        self.child = Some(child);
        self.wait_until_ready();
    }

    fn initialize(&self, options: &PostgresOptions) {
        let output = command_as(&self.user, &self.binaries.join("initdb"))
            .arg("-D")
            .arg(self.data())
            .args(["--auth=trust", "--username=postgres", "--encoding=UTF8"])
            .args(["--locale=C.UTF-8", "--no-sync"])
            .output()
            .expect("initdb runs");
        assert!(
            output.status.success(),
            "initdb failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let mut settings = self.place();
        if let Some(tls) = &options.tls {
            // The server wants a key that nobody else can read.
            let (certificate, key) = (self.copy(&tls.certificate), self.copy(&tls.key));
            let _ = writeln!(
                settings,
                "ssl = on\nssl_cert_file = '{}'\nssl_key_file = '{}'",
                certificate.display(),
                key.display()
            );
        }
        for line in &options.settings {
            let _ = writeln!(settings, "{line}");
        }
        self.add_settings(&settings);
    }

    /// The settings of where it is reached.
    fn place(&self) -> String {
        format!(
            "listen_addresses = '127.0.0.1'\nport = {}\nunix_socket_directories = '{}'\n",
            self.port,
            self.dir.path().display()
        )
    }

    fn add_settings(&self, settings: &str) {
        let path = self.data().join("postgresql.auto.conf");
        let mut file = fs::File::options()
            .create(true)
            .append(true)
            .open(&path)
            .expect("the server's settings");
        file.write_all(settings.as_bytes())
            .expect("the server's settings");
        self.user.give(&path);
    }

    /// Copies a file to where only the server can read it.
    fn copy(&self, file: &Path) -> PathBuf {
        let copy = self.dir.path().join(file.file_name().expect("a file's name"));
        fs::copy(file, &copy).expect("a copy");
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o600)).expect("its rights");
        self.user.give(&copy);
        copy
    }

    fn wait_until_ready(&mut self) {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            let ready = Command::new(self.binaries.join("pg_isready"))
                .args(["--quiet", "--host", "127.0.0.1", "--port", &self.port.to_string()])
                .status()
                .expect("pg_isready runs");
            if ready.success() {
                return;
            }
            let ended = self
                .child
                .as_mut()
                .is_none_or(|child| !matches!(child.try_wait(), Ok(None)));
            assert!(
                !ended && Instant::now() < deadline,
                "postgres did not start: {}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn clock_file(&self) -> PathBuf {
        self.dir.path().join("clock")
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.crash();
    }
}

/// Where Debian keeps the binaries of each installed version, the newest first.
fn debian_directories() -> Vec<PathBuf> {
    let mut versions: Vec<(u32, PathBuf)> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            Some((
                entry.file_name().to_str()?.parse().ok()?,
                entry.path().join("bin"),
            ))
        })
        .collect();
    versions.sort();
    versions.into_iter().rev().map(|(_, path)| path).collect()
}
