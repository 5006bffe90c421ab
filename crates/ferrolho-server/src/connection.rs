//! One connection, from its first byte to its last: HTTP/1.1 or HTTP/2, plain or within TLS.
//!
//! The first bytes tell which HTTP it is, so that a connection carries the state of one of them only. Ten thousand
//! callers may wait here at a time: what a connection keeps is what their memory is made of.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use http_body_util::{Either, StreamBody};
use hyper::body::Incoming;
use hyper::header::{self, HeaderValue};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tracing::debug;

use crate::auth::Subject;
use crate::http::{Body, Connected, Http};
use crate::pipeline::{Piped, Pipeline};
use crate::room::Seat;
use crate::tls::Tls;

/// A connection that is silent for so long is probed...
const PROBE_AFTER: Duration = Duration::from_secs(5);
/// ...so often...
const PROBE_EVERY: Duration = Duration::from_secs(2);
/// ...and given up when so many probes stay unanswered: a silent loss is seen within about 11 seconds. A connection
/// whose caller takes nothing of its answer for so long is given up as well.
const PROBES: u32 = 3;

/// How long the caller of an idle connection of HTTP/2 may take to agree to its end.
const LAST_WORD: Duration = Duration::from_secs(1);

/// How every connection of HTTP/2 begins (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// How many bytes are read, at most, before it is known which HTTP it is. Most requests fit.
const FIRST_BYTES: usize = 2048;

/// Attends to all connections of a listener.
pub(crate) struct Attendant {
    http: Http,
    tls: Option<Tls>,
    head_timeout: Duration,
    http1: http1::Builder,
    http2: http2::Builder<TokioExecutor>,
}

impl Attendant {
    /// Serves this, within TLS if there is a certificate. A handshake and each request's head have so much time.
    pub(crate) fn new(http: Http, tls: Option<Tls>, head_timeout: Duration) -> Self {
        let mut http1 = http1::Builder::new();
        http1.timer(TokioTimer::new()).header_read_timeout(head_timeout);
        // Nearly all answers are small: one piece costs the kernel less than two.
        http1.writev(false);
        let mut http2 = http2::Builder::new(TokioExecutor::new());
        http2.timer(TokioTimer::new());
        Self {
            http,
            tls,
            head_timeout,
            http1,
            http2,
        }
    }

    /// Attends to one connection, until it ends or it is told to stop and its requests are answered.
    pub(crate) async fn attend(
        self: Arc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
        seat: Seat,
        is_stopping: watch::Receiver<bool>,
    ) {
        let caller = Caller::new(&self.http, peer, seat);
        let ended = match (prepare(&stream), &self.tls) {
            (Err(error), _) => Err(error),
            (Ok(()), None) => self.speak(stream, caller, is_stopping).await,
            // Such a connection is larger by far; the task of a plain one need not have room for it.
            (Ok(()), Some(tls)) => Box::pin(self.secure(tls, stream, caller, is_stopping)).await,
        };
        if let Err(error) = ended {
            debug!(%peer, %error, "the connection broke");
        }
    }

    async fn secure(
        &self,
        tls: &Tls,
        stream: TcpStream,
        mut caller: Caller,
        is_stopping: watch::Receiver<bool>,
    ) -> io::Result<()> {
        let handshake = TlsAcceptor::from(tls.config()).accept(stream);
        let stream = timeout(self.head_timeout, handshake).await??;
        let chain = stream.get_ref().1.peer_certificates();
        caller.certificate = chain.and_then(<[_]>::first).and_then(Subject::of);
        self.speak(stream, caller, is_stopping).await
    }

    async fn speak<S>(
        &self,
        mut stream: S,
        caller: Caller,
        mut is_stopping: watch::Receiver<bool>,
    ) -> io::Result<()>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let first = timeout(self.head_timeout, first_bytes(&mut stream)).await??;
        let is_http2 = first.starts_with(PREFACE);
        let caller = Arc::new(caller);
        let stream = TokioIo::new(Piped::new(first, stream, caller.pipeline.clone()));
        let answering = Arc::clone(&caller);
        let service = service_fn(move |request| answer(Arc::clone(&answering), request));
        let ended = if is_http2 {
            let mut connection = Box::pin(self.http2.serve_connection(stream, service));
            tokio::select! {
                ended = connection.as_mut() => return ended.map_err(io::Error::other),
                () = until_told(&mut is_stopping) => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
                () = caller.is_idle_for(self.head_timeout) => {
                    connection.as_mut().graceful_shutdown();
                    timeout(LAST_WORD, connection).await?
                }
            }
        } else {
            let mut connection = pin!(self.http1.serve_connection(stream, service));
            tokio::select! {
                ended = connection.as_mut() => return ended.map_err(io::Error::other),
                () = until_told(&mut is_stopping) => {}
            }
            connection.as_mut().graceful_shutdown();
            connection.await
        };
        ended.map_err(io::Error::other)
    }
}

/// Resolves when the server stops.
async fn until_told(is_stopping: &mut watch::Receiver<bool>) {
    // An error would mean that the server is gone, which also is its stop.
    let _ = is_stopping.wait_for(|is_stopping| *is_stopping).await;
}

/// Answers leave at once, and a peer that is silently gone, or takes nothing of what it is sent, is noticed.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(PROBE_AFTER)
        .with_interval(PROBE_EVERY)
        .with_retries(PROBES);
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&keepalive)?;
    socket.set_tcp_user_timeout(Some(PROBE_AFTER + PROBE_EVERY * PROBES))
}

/// What the caller sends first: as much as tells whether it is HTTP/2, and maybe more.
async fn first_bytes(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let mut first = Vec::with_capacity(FIRST_BYTES);
    while first.len() < PREFACE.len() && PREFACE.starts_with(&first) {
        if stream.read_buf(&mut first).await? == 0 {
            break;
        }
    }
    Ok(first)
}

/// Who is at the other end of a connection. Kept by every request, so that a connection counts as open until its
/// last one has ended.
struct Caller {
    http: Http,
    peer: SocketAddr,
    /// Whom the caller's certificate is about, if it showed one.
    certificate: Option<Subject>,
    pipeline: Pipeline,
    seat: Seat,
    requests: Requests,
    _connected: Connected,
}

/// The requests of a connection that are not answered to the end.
#[derive(Debug, Default)]
struct Requests {
    open: AtomicUsize,
    /// Rung when the last of them has ended.
    ended: Notify,
}

impl Caller {
    fn new(http: &Http, peer: SocketAddr, seat: Seat) -> Self {
        Self {
            http: http.clone(),
            peer,
            certificate: None,
            pipeline: Pipeline::default(),
            seat,
            requests: Requests::default(),
            _connected: http.connected(),
        }
    }

    /// Resolves when there has been no request for so long. The library sees to that on connections of HTTP/1.1.
    async fn is_idle_for(&self, span: Duration) {
        loop {
            let ended = self.requests.ended.notified();
            if self.requests.open.load(Ordering::Acquire) > 0 {
                ended.await;
            } else if timeout(span, ended).await.is_err() && self.requests.open.load(Ordering::Acquire) == 0 {
                return;
            }
        }
    }
}

/// A request that is not answered to the end.
struct Open(Arc<Caller>);

impl Open {
    fn new(caller: &Arc<Caller>) -> Self {
        caller.requests.open.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(caller))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.requests.open.fetch_sub(1, Ordering::AcqRel);
        self.0.requests.ended.notify_waiters();
    }
}

async fn answer(caller: Arc<Caller>, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    caller.pipeline.take();
    let open = Open::new(&caller);
    let answer = caller.http.answer(
        caller.peer,
        caller.certificate.as_ref(),
        &caller.pipeline,
        &caller.seat,
        request,
    );
    let mut response = answer.await;
    if matches!(caller.seat, Seat::Spare(_)) {
        let headers = response.headers_mut();
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    // A stream of events is a request for as long as it lasts.
    Ok(response.map(|body| match body {
        Either::Left(whole) => Either::Left(whole),
        Either::Right(frames) => {
            let kept = move |_: &_| {
                let _ = &open;
            };
            Either::Right(StreamBody::new(frames.inspect(kept).boxed()))
        }
    }))
}
