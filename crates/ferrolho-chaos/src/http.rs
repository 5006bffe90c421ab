//! HTTP/1.1 over a bare socket, so that a client knows what was certainly not sent and can hang up when it wants.

use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// After so many requests a client takes a new connection, since one that was touched by a fault may stay dead.
const REQUESTS_PER_CONNECTION: u32 = 20;

/// The largest answer that is read.
const ANSWER_MAX_BYTES: usize = 1 << 20;

/// What is asked.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    /// An `Idempotency-Key`.
    pub(crate) key: Option<String>,
    pub(crate) body: Option<Value>,
}

impl Request {
    pub(crate) fn get(path: String) -> Self {
        Self {
            method: "GET",
            path,
            key: None,
            body: None,
        }
    }

    pub(crate) fn post(path: String, body: Value) -> Self {
        Self {
            method: "POST",
            path,
            key: None,
            body: Some(body),
        }
    }

    pub(crate) fn delete(path: String, body: Value) -> Self {
        Self {
            method: "DELETE",
            path,
            key: None,
            body: Some(body),
        }
    }

    fn bytes(&self, host: SocketAddr) -> Vec<u8> {
        let body = self.body.as_ref().map(Value::to_string).unwrap_or_default();
        let mut head = format!("{} {} HTTP/1.1\r\nhost: {host}\r\n", self.method, self.path);
        // Writing to a string cannot fail.
        if let Some(key) = &self.key {
            let _ = write!(head, "idempotency-key: {key}\r\n");
        }
        if self.body.is_some() {
            let _ = write!(head, "content-type: application/json\r\n");
        }
        let _ = write!(head, "content-length: {}\r\n\r\n{body}", body.len());
        head.into_bytes()
    }
}

/// An answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Null when there is none.
    pub(crate) body: Value,
}

/// Why there is none.
#[derive(Debug)]
pub(crate) enum Silence {
    /// Nobody took the connection, so that nothing was sent.
    NotSent,
    /// The connection ended first.
    Broken(io::Error),
    /// It did not come in time. The connection was closed.
    TooLong,
}

/// A caller of one server.
#[derive(Debug)]
pub(crate) struct Caller {
    address: SocketAddr,
    connection: Option<Connection>,
}

#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    opened: Instant,
    requests: u32,
}

impl Caller {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self {
            address,
            connection: None,
        }
    }

    /// When the connection was opened that the next request goes over; now, if it is to be opened.
    pub(crate) fn connected_since(&self) -> Instant {
        self.connection
            .as_ref()
            .map_or_else(Instant::now, |connection| connection.opened)
    }

    /// Ends the connection.
    pub(crate) fn hang_up(&mut self) {
        self.connection = None;
    }

    /// Sends a request and waits for its answer, at most so long. When this is dropped before its end, or there is
    /// no answer, the connection is closed.
    pub(crate) async fn call(&mut self, request: &Request, limit: Duration) -> Result<Answer, Silence> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.connect(limit).await?,
        };
        connection.requests += 1;
        let bytes = request.bytes(self.address);
        let exchange = async {
            connection.stream.write_all(&bytes).await?;
            read_answer(&mut connection.stream).await
        };
        let answer = match timeout(limit, exchange).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(cause)) => return Err(Silence::Broken(cause)),
            Err(_) => return Err(Silence::TooLong),
        };
        if connection.requests < REQUESTS_PER_CONNECTION {
            self.connection = Some(connection);
        }
        Ok(answer)
    }

    async fn connect(&self, limit: Duration) -> Result<Connection, Silence> {
        match timeout(limit, TcpStream::connect(self.address)).await {
            Ok(Ok(stream)) => Ok(Connection {
                stream,
                opened: Instant::now(),
                requests: 0,
            }),
            Ok(Err(_)) | Err(_) => Err(Silence::NotSent),
        }
    }
}

async fn read_answer(stream: &mut TcpStream) -> io::Result<Answer> {
    let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let mut read = Vec::new();
    let head_end = loop {
        if let Some(at) = read.windows(4).position(|four| four == b"\r\n\r\n") {
            break at;
        }
        read_more(stream, &mut read).await?;
    };
    let head = String::from_utf8_lossy(&read[..head_end]).to_ascii_lowercase();
    let mut lines = head.split("\r\n");
    let status = lines
        .next()
        .and_then(|line| line.split(' ').nth(1)?.parse().ok())
        .ok_or_else(|| wrong("a head without a status"))?;
    let length: usize = lines
        .find_map(|line| line.strip_prefix("content-length:"))
        .map_or(Ok(0), |length| length.trim().parse())
        .map_err(|_| wrong("a content-length that is no number"))?;
    let end = head_end + 4 + length;
    while read.len() < end {
        read_more(stream, &mut read).await?;
    }
    let body = match &read[head_end + 4..end] {
        [] => Value::Null,
        bytes => serde_json::from_slice(bytes).map_err(|_| wrong("a body that is not JSON"))?,
    };
    Ok(Answer { status, body })
}

async fn read_more(stream: &mut TcpStream, read: &mut Vec<u8>) -> io::Result<()> {
    if read.len() > ANSWER_MAX_BYTES {
        return Err(io::Error::other("an answer without end"));
    }
    match stream.read_buf(read).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}
