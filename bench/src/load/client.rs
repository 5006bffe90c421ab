//! One client: a connection, its dialect, and how far it has come. All I/O is non-blocking; buffers are kept.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use super::script::{Names, Step};
use crate::wire::{Answer, Dialect, Heard, Request};

/// How many bytes of answers a client can hold at first. It grows if one answer needs more.
const INPUT_BYTES: usize = 2_048;

/// A client.
pub(super) struct Client {
    stream: TcpStream,
    dialect: Box<dyn Dialect>,
    output: Vec<u8>,
    sent: usize,
    input: Vec<u8>,
    filled: usize,
    name: Name,
    owner: Vec<u8>,
    /// The next step of the list that it works through.
    pub(super) step: usize,
    /// When the cycle began, or should have begun.
    pub(super) started: Instant,
    /// The first answer that was an error or could not be understood.
    pub(super) complaint: Option<String>,
}

/// Who a client is among all clients of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Identity {
    /// The run's number: names are never used again, by whatever run.
    pub(super) run: u32,
    pub(super) client: u32,
    pub(super) names: Names,
}

/// The name of the lock, of which only the counter at its end changes.
struct Name {
    bytes: Vec<u8>,
    fresh: bool,
}

/// The name of the one lock of all clients of a run.
pub(super) fn shared_name(run: u32) -> String {
    format!("bench-{run:06}-all")
}

impl Name {
    fn new(identity: Identity) -> Self {
        let Identity { run, client, names } = identity;
        let bytes = match names {
            Names::Fresh | Names::Own => format!("bench-{run:06}-{client:05}-{:08}", 0),
            Names::Shared => shared_name(run),
        };
        Self {
            bytes: bytes.into_bytes(),
            fresh: names == Names::Fresh,
        }
    }

    fn advance(&mut self) {
        if !self.fresh {
            return;
        }
        for digit in self.bytes.iter_mut().rev().take(8) {
            if *digit == b'9' {
                *digit = b'0';
            } else {
                *digit += 1;
                return;
            }
        }
    }
}

impl Client {
    /// Connects.
    pub(super) fn connect(
        address: SocketAddr,
        dialect: Box<dyn Dialect>,
        identity: Identity,
    ) -> Result<Self> {
        let stream = TcpStream::connect(address).with_context(|| format!("cannot connect to {address}"))?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            dialect,
            output: Vec::with_capacity(512),
            sent: 0,
            input: vec![0; INPUT_BYTES],
            filled: 0,
            name: Name::new(identity),
            owner: format!("owner-{:05}", identity.client).into_bytes(),
            step: 0,
            started: Instant::now(),
            complaint: None,
        })
    }

    /// The connection, to be watched.
    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Begins a cycle.
    pub(super) fn begin(&mut self, started: Instant) {
        self.step = 0;
        self.started = started;
        self.name.advance();
    }

    /// Sends the request of a step.
    pub(super) fn send(&mut self, step: Step) -> Result<()> {
        let request = Request {
            ask: step.ask,
            name: &self.name.bytes,
            owner: &self.owner,
        };
        self.dialect.ask(request, &mut self.output);
        self.flush()
    }

    /// Takes what has come. The answer, if it is whole.
    pub(super) fn receive(&mut self) -> Result<Option<Answer>> {
        if self.filled == self.input.len() {
            self.input.resize(2 * self.input.len(), 0);
        }
        let free = self.input.get_mut(self.filled..).unwrap_or_default();
        match self.stream.read(free) {
            Ok(0) => bail!(
                "the server closed the connection: {:?}",
                for_people(self.input.get(..self.filled).unwrap_or_default())
            ),
            Ok(count) => self.filled += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        let mut used = 0;
        let mut answer = None;
        while answer.is_none() && used < self.filled {
            let waiting = self.input.get(used..self.filled).unwrap_or_default();
            match self.dialect.hear(waiting, &mut self.output) {
                Heard::More => break,
                Heard::Part(count) => used += count,
                Heard::Answer(count, heard) => {
                    if heard == Answer::Failed && self.complaint.is_none() {
                        self.complaint = Some(for_people(waiting));
                    }
                    used += count;
                    answer = Some(heard);
                }
            }
        }
        self.input.copy_within(used..self.filled, 0);
        self.filled -= used;
        self.flush()?;
        Ok(answer)
    }

    /// Requests are so small that a socket whose answers are read always takes them whole.
    fn flush(&mut self) -> Result<()> {
        while let Some(rest) = self.output.get(self.sent..).filter(|rest| !rest.is_empty()) {
            self.sent += self.stream.write(rest).context("cannot send")?;
        }
        self.output.clear();
        self.sent = 0;
        Ok(())
    }
}

/// The beginning of what a server said, to be shown.
fn for_people(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.get(..bytes.len().min(400)).unwrap_or_default()).into_owned()
}
