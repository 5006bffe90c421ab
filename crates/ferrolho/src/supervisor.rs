//! Telling a supervisor such as systemd that the server is ready, alive, and stopping.
//!
//! The protocol is one datagram with lines of `NAME=VALUE` to the socket that `NOTIFY_SOCKET` names (sd_notify(3),
//! sd_watchdog_enabled(3)). Without that variable nobody wants to know, and nothing is sent. The watchdog is told from
//! a task of the runtime that serves requests: when that stands still, so does the task, and the supervisor restarts
//! the server. A store that is away is no reason to: restarting would not bring it back.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::Duration;

use tracing::warn;

/// Who wants to know how the server is, if anybody does.
#[derive(Clone, Debug)]
pub(crate) struct Supervisor(Option<Arc<Line>>);

/// The way to the supervisor.
#[derive(Debug)]
struct Line {
    socket: UnixDatagram,
    address: SocketAddr,
}

impl Supervisor {
    /// The supervisor that the environment names.
    pub(crate) fn from_env() -> Self {
        let name = std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty());
        let line = name.and_then(|name| match Line::to(&name) {
            Ok(line) => Some(Arc::new(line)),
            Err(error) => {
                warn!(%error, "NOTIFY_SOCKET names no socket that can be used");
                None
            }
        });
        Self(line)
    }

    /// The server takes requests. From now on the watchdog, if there is one, hears of it.
    ///
    /// Must be called within the runtime that serves requests.
    pub(crate) fn ready(&self, status: &str) {
        self.tell(&format!("READY=1\nSTATUS={}", one_line(status)));
        if let (Some(span), Some(_)) = (watchdog_span(), &self.0) {
            let supervisor = self.clone();
            tokio::spawn(async move {
                // Twice in each span, as sd_watchdog_enabled(3) has it.
                let mut beats = tokio::time::interval(span / 2);
                loop {
                    beats.tick().await;
                    supervisor.tell("WATCHDOG=1");
                }
            });
        }
    }

    /// The server takes no new locks any more.
    pub(crate) fn stopping(&self) {
        self.tell("STOPPING=1\nSTATUS=stopping");
    }

    fn tell(&self, message: &str) {
        if let Some(line) = &self.0
            && let Err(error) = line.socket.send_to_addr(message.as_bytes(), &line.address)
        {
            warn!(%error, message, "the supervisor could not be told");
        }
    }
}

impl Line {
    fn to(name: &OsStr) -> io::Result<Self> {
        let address = match name.as_bytes() {
            [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest)?,
            [b'/', ..] => SocketAddr::from_pathname(name)?,
            _ => {
                let message = "it begins neither with / nor with @";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
            }
        };
        let socket = UnixDatagram::unbound()?;
        // A supervisor that does not read must not stop the server.
        socket.set_nonblocking(true)?;
        Ok(Self { socket, address })
    }
}

/// After how long without a word the supervisor takes this process for dead.
fn watchdog_span() -> Option<Duration> {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    let is_ours = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
    let micros = number("WATCHDOG_USEC").filter(|micros| *micros > 1 && is_ours)?;
    Some(Duration::from_micros(micros))
}

fn one_line(text: &str) -> String {
    text.replace(char::is_control, " ")
}
