//! HTTP/1.1 over bare sockets: a test decides what goes over the wire, byte by byte if it must, and how the
//! connection ends.

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use rustix::net::sockopt;
use serde_json::Value;

use super::{Answer, PATIENCE};

/// A request, as it goes over the wire.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    method: String,
    target: String,
    headers: Vec<(String, String)>,
    body: Option<Vec<u8>>,
}

impl Request {
    pub(crate) fn new(method: &str, target: &str) -> Self {
        Self {
            method: method.to_owned(),
            target: target.to_owned(),
            headers: Vec::new(),
            body: None,
        }
    }

    pub(crate) fn get(target: &str) -> Self {
        Self::new("GET", target)
    }

    pub(crate) fn post(target: &str) -> Self {
        Self::new("POST", target)
    }

    pub(crate) fn delete(target: &str) -> Self {
        Self::new("DELETE", target)
    }

    /// With this JSON as the body.
    pub(crate) fn json(self, body: &Value) -> Self {
        self.header("content-type", "application/json")
            .body(body.to_string())
    }

    /// With these bytes as the body, and no word on what they are.
    pub(crate) fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = Some(body.into());
        self
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// With this token.
    pub(crate) fn token(self, token: &str) -> Self {
        self.header("authorization", &format!("Bearer {token}"))
    }

    fn has(&self, name: &str) -> bool {
        self.headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(name))
    }

    /// The whole request. A `Host` and a `Content-Length` are added where the test named none.
    pub(crate) fn bytes(&self, host: SocketAddr) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.target);
        if !self.has("host") {
            let _ = write!(head, "host: {host}\r\n");
        }
        for (name, value) in &self.headers {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        if let Some(body) = &self.body
            && !self.has("content-length")
            && !self.has("transfer-encoding")
        {
            let _ = write!(head, "content-length: {}\r\n", body.len());
        }
        head.push_str("\r\n");
        let mut bytes = head.into_bytes();
        bytes.extend(self.body.iter().flatten());
        bytes
    }
}

/// The path of a lock. All of a name that might mean something in a path is escaped.
pub(crate) fn lock_path(resource: &str) -> String {
    let mut path = "/locks/".to_owned();
    for byte in resource.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_".contains(&byte) {
            path.push(char::from(byte));
        } else {
            let _ = write!(path, "%{byte:02X}");
        }
    }
    path
}

/// A connection to a server. Dropping it closes it; see also [`Connection::reset`].
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    addr: SocketAddr,
    /// What its requests show, unless they show something themselves.
    token: Option<String>,
    /// What has been read and not yet looked at.
    ahead: Vec<u8>,
    /// Whether the answer to come has no body.
    is_head: bool,
}

impl Connection {
    pub(crate) fn to(addr: SocketAddr) -> Self {
        Self::try_to(addr).unwrap()
    }

    /// A connection to a server that may be gone.
    pub(crate) fn try_to(addr: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(addr)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self {
            stream,
            addr,
            token: None,
            ahead: Vec::new(),
            is_head: false,
        })
    }

    /// With this token in every request that shows none.
    pub(crate) fn showing(mut self, token: Option<String>) -> Self {
        self.token = token;
        self
    }

    /// Sends a request and does not wait for its answer.
    pub(crate) fn send(&mut self, request: &Request) {
        self.try_send(request).unwrap();
    }

    /// Sends a request that the server may not care to read to its end.
    pub(crate) fn try_send(&mut self, request: &Request) -> io::Result<()> {
        self.is_head = request.method == "HEAD";
        match &self.token {
            Some(token) if !request.has("authorization") => {
                let request = request.clone().token(token);
                self.write(&request.bytes(self.addr))
            }
            _ => self.write(&request.bytes(self.addr)),
        }
    }

    /// Sends bytes as they are.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Sends a request and waits for its answer.
    pub(crate) fn call(&mut self, request: &Request) -> Answer {
        self.send(request);
        self.answer()
    }

    /// Waits for the answer to what was sent.
    pub(crate) fn answer(&mut self) -> Answer {
        self.try_answer().unwrap()
    }

    /// The answer to what was sent; an error when the connection ends without one.
    pub(crate) fn try_answer(&mut self) -> io::Result<Answer> {
        let mut answer = self.head()?;
        let length = answer.header("content-length").map(|n| n.parse().unwrap());
        if self.is_head || answer.status == 204 {
            return Ok(answer);
        }
        if answer.header("transfer-encoding") == Some("chunked") {
            while let Some(chunk) = self.chunk()? {
                answer.body.extend(chunk);
            }
        } else {
            answer.body = self.take(length.unwrap_or(0))?;
        }
        Ok(answer)
    }

    /// The head of the answer, without its body.
    pub(crate) fn head(&mut self) -> io::Result<Answer> {
        let mut answer = Answer::from_status_line(&self.line()?);
        loop {
            match self.line()? {
                line if !line.is_empty() => answer.add_header(&line),
                // "Go on" is not yet the answer.
                _ if answer.status == 100 => answer = Answer::from_status_line(&self.line()?),
                _ => return Ok(answer),
            }
        }
    }

    /// The next chunk of a chunked body; nothing after the last.
    pub(crate) fn chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        let size = usize::from_str_radix(&self.line()?, 16).map_err(io::Error::other)?;
        let chunk = self.take(size)?;
        assert_eq!(self.line()?, "", "a chunk ends with its line");
        Ok((size > 0).then_some(chunk))
    }

    /// Whether something has come, or the connection has ended, without waiting for either.
    pub(crate) fn has_news(&self) -> bool {
        self.stream.set_nonblocking(true).unwrap();
        let peeked = self.stream.peek(&mut [0]);
        self.stream.set_nonblocking(false).unwrap();
        !self.ahead.is_empty() || !peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    pub(crate) fn local_port(&self) -> u16 {
        self.stream.local_addr().unwrap().port()
    }

    /// Ends the connection as a machine does that has forgotten it: with a reset.
    pub(crate) fn reset(self) {
        sockopt::set_socket_linger(&self.stream, Some(std::time::Duration::ZERO)).unwrap();
    }

    /// Says that nothing more will be sent, and goes on listening.
    pub(crate) fn half_close(&self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    fn line(&mut self) -> io::Result<String> {
        loop {
            if let Some(end) = self.ahead.windows(2).position(|pair| pair == b"\r\n") {
                let line: Vec<u8> = self.ahead.drain(..end + 2).take(end).collect();
                return String::from_utf8(line).map_err(io::Error::other);
            }
            self.read_more()?;
        }
    }

    fn take(&mut self, count: usize) -> io::Result<Vec<u8>> {
        while self.ahead.len() < count {
            self.read_more()?;
        }
        Ok(self.ahead.drain(..count).collect())
    }

    fn read_more(&mut self) -> io::Result<()> {
        let mut buffer = [0; 8192];
        match self.stream.read(&mut buffer)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            count => {
                self.ahead.extend(&buffer[..count]);
                Ok(())
            }
        }
    }
}
