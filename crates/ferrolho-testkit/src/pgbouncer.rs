//! A private PgBouncer in front of a [`Postgres`].

use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::Postgres;
use crate::engine::{User, command_as, end, find_program, free_port, missing};

/// How long PgBouncer may take to listen.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// A pooler in transaction mode on a free loopback port, which ends when this is dropped.
#[derive(Debug)]
pub struct PgBouncer {
    _dir: TempDir,
    child: Child,
    port: u16,
}

impl PgBouncer {
    /// Starts a pooler with `pool_size` connections to each database of the server; nothing when PgBouncer is not
    /// installed (see [`missing`]).
    pub fn start(server: &Postgres, pool_size: usize) -> Option<Self> {
        let Some(program) = find_program("pgbouncer", &[PathBuf::from("/usr/sbin")]) else {
            missing("PgBouncer", "Debian's package pgbouncer");
            return None;
        };
        let user = User::unless_root("postgres");
        let dir = tempfile::Builder::new()
            .prefix("ferrolho-pgbouncer-")
            .tempdir()
            .expect("a temporary directory");
        user.give(dir.path());
        let port = free_port();
        let settings = dir.path().join("pgbouncer.ini");
        fs::write(
            &settings,
            format!(
                "[databases]\n* = host=127.0.0.1 port={} user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
                 listen_port = {port}\nunix_socket_dir =\nauth_type = any\npool_mode = transaction\n\
                 default_pool_size = {pool_size}\nlogfile = {}\n",
                server.port(),
                dir.path().join("log").display()
            ),
        )
        .expect("PgBouncer's settings");
        user.give(&settings);
        let child = command_as(&user, &program)
            .arg("--quiet")
            .arg(&settings)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("pgbouncer starts");
        let pooler = Self {
            _dir: dir,
            child,
            port,
        };
        pooler.wait_until_listening();
        Some(pooler)
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    fn wait_until_listening(&self) {
        let deadline = Instant::now() + START_TIMEOUT;
        while TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_err() {
            assert!(Instant::now() < deadline, "pgbouncer did not start");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        end(&mut self.child, Signal::KILL);
    }
}
