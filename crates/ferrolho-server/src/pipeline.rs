//! Who sends a second request behind a first one hides its own hang-up: the library keeps what it has read ahead and
//! looks no further. So a request that another one is pipelined behind does not wait.
//!
//! [`Piped`] stands around a connection's stream and follows, in what is read from it, where one request of HTTP/1.1
//! ends and the next begins ([`Framing`]). It decides nothing about the requests themselves: a stream that it cannot
//! follow (HTTP/2, or what the library will refuse) is passed on unseen.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;

/// What a connection has sent, against what of it was taken up.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pipeline(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    begun: AtomicU64,
    taken: AtomicU64,
    begins: Notify,
}

impl Pipeline {
    /// The next request is in the hands of its handler.
    pub(crate) fn take(&self) {
        self.0.taken.fetch_add(1, Ordering::Relaxed);
    }

    /// Resolves once another request has begun to arrive behind the one that was taken last.
    pub(crate) async fn is_pressing(&self) {
        loop {
            let begins = self.0.begins.notified();
            if self.0.begun.load(Ordering::Acquire) > self.0.taken.load(Ordering::Relaxed) {
                return;
            }
            begins.await;
        }
    }

    fn begin(&self, requests: u64) {
        self.0.begun.fetch_add(requests, Ordering::Release);
        self.0.begins.notify_waiters();
    }
}

/// A stream that tells its [`Pipeline`] of the requests that are read from it.
pub(crate) struct Piped<S> {
    /// What was read from the stream before, and is to be read again. Empty soon, and for good.
    first: Vec<u8>,
    stream: S,
    framing: Framing,
    pipeline: Pipeline,
}

impl<S> Piped<S> {
    /// A stream of which these first bytes have been taken already.
    pub(crate) fn new(first: Vec<u8>, stream: S, pipeline: Pipeline) -> Self {
        Self {
            first,
            stream,
            framing: Framing::default(),
            pipeline,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Piped<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = if self.first.is_empty() {
            Pin::new(&mut self.stream).poll_read(context, buffer)
        } else {
            let (now, later) = self.first.split_at(self.first.len().min(buffer.remaining()));
            buffer.put_slice(now);
            self.first = later.to_vec();
            Poll::Ready(Ok(()))
        };
        let read = buffer.filled().get(before..).unwrap_or_default();
        let begun = self.framing.follow(read);
        if begun > 0 {
            self.pipeline.begin(begun);
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Piped<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// The most bytes of a line that are looked at: the headers that say where a body ends are shorter.
const MAX_LINE_BYTES: usize = 128;

/// Where in a stream of requests the next byte stands (RFC 9112, sections 2, 6 and 7).
#[derive(Debug, Default)]
struct Framing {
    place: Place,
    /// The line that is being read, as far as it is looked at, without its end.
    line: Vec<u8>,
    body: Length,
}

#[derive(Debug, Default)]
enum Place {
    /// Between requests: empty lines may stand here.
    #[default]
    Between,
    Head,
    /// In a body, or in a chunk of one with the end of its line: so many bytes are left.
    Bytes {
        left: u64,
        then: After,
    },
    ChunkSize,
    Trailers,
    /// This cannot be followed any further.
    Lost,
}

#[derive(Clone, Copy, Debug)]
enum After {
    Request,
    Chunk,
}

#[derive(Clone, Copy, Debug, Default)]
enum Length {
    #[default]
    None,
    Bytes(u64),
    Chunked,
}

impl Framing {
    /// Follows these bytes; tells how many requests begin in them.
    fn follow(&mut self, mut bytes: &[u8]) -> u64 {
        let mut begun = 0;
        while let Some(&first) = bytes.first() {
            match self.place {
                Place::Between if matches!(first, b'\r' | b'\n') => {
                    bytes = bytes.get(1..).unwrap_or_default();
                }
                Place::Between => {
                    begun += 1;
                    self.place = Place::Head;
                    self.body = Length::None;
                }
                Place::Bytes { left, then } => {
                    let step = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    bytes = bytes.get(step..).unwrap_or_default();
                    self.place = match (left - step as u64, then) {
                        (0, After::Request) => Place::Between,
                        (0, After::Chunk) => Place::ChunkSize,
                        (left, then) => Place::Bytes { left, then },
                    };
                }
                Place::Head | Place::ChunkSize | Place::Trailers => {
                    bytes = self.read_line(bytes);
                }
                Place::Lost => return begun,
            }
        }
        begun
    }

    /// Takes bytes up to the end of the line, and acts on the line if it is whole.
    fn read_line<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let (part, rest) = bytes.split_at(end.map_or(bytes.len(), |at| at + 1));
        let room = MAX_LINE_BYTES.saturating_sub(self.line.len());
        self.line.extend(part.iter().take(room));
        if end.is_some() {
            let mut line = std::mem::take(&mut self.line);
            self.place = self.after_line(line.trim_ascii());
            line.clear();
            self.line = line;
        }
        rest
    }

    fn after_line(&mut self, line: &[u8]) -> Place {
        match self.place {
            Place::Head if line.is_empty() => match self.body {
                Length::None | Length::Bytes(0) => Place::Between,
                Length::Bytes(left) => Place::Bytes {
                    left,
                    then: After::Request,
                },
                Length::Chunked => Place::ChunkSize,
            },
            Place::Head if line.starts_with(b"PRI * HTTP/2") => Place::Lost,
            Place::Head => {
                self.note_header(line);
                Place::Head
            }
            Place::ChunkSize => match chunk_size(line) {
                None => Place::Lost,
                Some(0) => Place::Trailers,
                // The chunk's bytes are followed by an end of line.
                Some(size) => Place::Bytes {
                    left: size.saturating_add(2),
                    then: After::Chunk,
                },
            },
            Place::Trailers if line.is_empty() => Place::Between,
            Place::Trailers => Place::Trailers,
            Place::Between | Place::Bytes { .. } | Place::Lost => Place::Lost,
        }
    }

    fn note_header(&mut self, line: &[u8]) {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else {
            return;
        };
        let (name, value) = line.split_at(colon);
        let value = value.get(1..).unwrap_or_default().trim_ascii();
        if name.eq_ignore_ascii_case(b"transfer-encoding") {
            self.body = Length::Chunked;
        } else if name.eq_ignore_ascii_case(b"content-length") && matches!(self.body, Length::None) {
            let length = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
            self.body = Length::Bytes(length.unwrap_or(0));
        }
    }
}

/// The size that a chunk's line gives, before its extensions.
fn chunk_size(line: &[u8]) -> Option<u64> {
    let digits = line.split(|byte| *byte == b';').next()?.trim_ascii();
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::Framing;

    const PLAIN: &str = "GET /a HTTP/1.1\r\nHost: x\r\n\r\n";
    const LENGTH: &str = "POST /b HTTP/1.1\r\nContent-Length: 16\r\nX: y\r\n\r\nGET / HTTP/1.1\r\n";
    const EMPTY: &str = "POST /b HTTP/1.1\r\ncontent-length:0\r\n\r\n";
    const CHUNKED: &str = "POST /c HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5;x=1\r\nGET /\r\nA\r\n0123\r\n\r\n67\r\n0\r\nT: 1\r\n\r\n";
    const BARE: &str = "GET /d HTTP/1.1\nHost: x\n\n";

    /// How many requests have begun after each byte.
    fn steps(text: &str) -> Vec<u64> {
        let mut framing = Framing::default();
        let mut sum = 0;
        let count = |byte: &u8| {
            sum += framing.follow(std::slice::from_ref(byte));
            sum
        };
        text.as_bytes().iter().map(count).collect()
    }

    #[test]
    fn a_request_begins_with_its_first_byte_and_none_within_another() {
        for request in [PLAIN, LENGTH, EMPTY, CHUNKED, BARE] {
            for next in [PLAIN, LENGTH, EMPTY, CHUNKED, BARE] {
                let both = format!("{request}\r\n{next}");
                let begun = steps(&both);
                let second = request.len() + 2;
                assert!(begun[..second].iter().all(|count| *count == 1), "{both}");
                assert!(begun[second..].iter().all(|count| *count == 2), "{both}");
                assert_eq!(Framing::default().follow(both.as_bytes()), 2, "{both}");
            }
        }
    }

    #[test]
    fn a_stream_that_cannot_be_followed_is_passed_on() {
        let h2 = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nGET / HTTP/1.1\r\n\r\n";
        let bad_chunk = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nGET / HTTP/1.1\r\n\r\n";
        for text in [h2, bad_chunk] {
            assert_eq!(steps(text).last(), Some(&1), "{text}");
        }
        let huge = format!("POST / HTTP/1.1\r\nContent-Length: {}\r\n\r\n{PLAIN}", u64::MAX);
        assert_eq!(steps(&huge).last(), Some(&1));
        let long = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n{PLAIN}", "y".repeat(100_000));
        assert_eq!(steps(&long).last(), Some(&2));
    }
}
