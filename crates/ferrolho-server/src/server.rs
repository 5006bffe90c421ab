//! The listening server: connections, their limits in time, and a stop that loses nothing.

use std::convert::Infallible;
use std::future::ready;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum_server::accept::{Accept, TcpConfigAcceptor, TcpKeepaliveConfig, TcpSocketConfig};
use axum_server::service::SendService;
use axum_server::tls_rustls::RustlsAcceptor;
use axum_server::{Handle, Server};
use hyper::body::Incoming;
use hyper::header::{self, HeaderValue};
use hyper::{Request, Response};
use hyper_util::rt::TokioTimer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tower::{Service, service_fn};

use crate::http::{Body, Connected, Http};
use crate::pipeline::{Piped, Pipeline};
use crate::room::{Room, Seat};
use crate::tls::Tls;

/// Limits on connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// How long a request's head may take to arrive; also the longest that a kept connection may be idle.
    pub head_timeout: Duration,
    /// How many connections are served at a time.
    pub connections: usize,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            head_timeout: Duration::from_secs(30),
            connections: 20_000,
        }
    }
}

/// A connection that is silent for so long is probed...
const PROBE_AFTER: Duration = Duration::from_secs(5);
/// ...so often...
const PROBE_EVERY: Duration = Duration::from_secs(2);
/// ...and given up when so many probes stay unanswered: a silent loss is seen within about 11 seconds.
const PROBES: u32 = 3;

/// How long open connections may go on after the stop began.
const STOP_WITHIN: Duration = Duration::from_secs(8);

/// Serves until `stop` resolves and the open requests are answered, or their time is up.
pub async fn serve(
    listener: TcpListener,
    tls: Option<Tls>,
    http: Http,
    limits: ConnectionLimits,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let handle = Handle::new();
    let stopping = handle.clone();
    tokio::spawn(async move {
        stop.await;
        stopping.graceful_shutdown(Some(STOP_WITHIN));
    });
    let server = axum_server::from_tcp(listener)?.handle(handle);
    match tls {
        None => run(server.acceptor(Acceptor(probed())), http, limits).await,
        Some(tls) => {
            let secured = RustlsAcceptor::new(tls.config()).handshake_timeout(limits.head_timeout);
            run(
                server.acceptor(Acceptor(secured.acceptor(probed()))),
                http,
                limits,
            )
            .await
        }
    }
}

/// Serves connections that are taken in this way.
async fn run<A>(
    server: Server<SocketAddr, Acceptor<A>>,
    http: Http,
    limits: ConnectionLimits,
) -> io::Result<()>
where
    A: Accept<TcpStream, Caller> + Clone + Send + Sync + 'static,
    A::Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    A::Service: SendService<Request<Incoming>> + Send + 'static,
    A::Future: Send + 'static,
{
    let mut server = server.first_request_timeout(limits.head_timeout);
    let builder = server.http_builder();
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_timeout);
    builder.http2().timer(TokioTimer::new());
    let room = Room::new(limits.connections);
    let make_service =
        service_fn(move |peer: SocketAddr| ready(Ok::<_, Infallible>(Caller::new(&http, peer, room.take()))));
    server.serve(make_service).await
}

/// Connections that are probed when they are silent.
fn probed() -> TcpConfigAcceptor {
    let keepalive = TcpKeepaliveConfig::new()
        .time(PROBE_AFTER)
        .interval(PROBE_EVERY)
        .retries(PROBES);
    TcpConfigAcceptor::new(TcpSocketConfig::new().nodelay(true).keepalive(keepalive))
}

/// What is done with a connection besides: its requests are told apart.
#[derive(Clone)]
struct Acceptor<A>(A);

impl<A> Accept<TcpStream, Caller> for Acceptor<A>
where
    A: Accept<TcpStream, Caller>,
    A::Future: Send + 'static,
{
    type Stream = Piped<A::Stream>;
    type Service = A::Service;
    type Future = Pin<Box<dyn Future<Output = io::Result<(Self::Stream, Self::Service)>> + Send>>;

    fn accept(&self, stream: TcpStream, caller: Caller) -> Self::Future {
        let pipeline = caller.pipeline.clone();
        let has_seat = !matches!(*caller.seat, Seat::None);
        let accepting = has_seat.then(|| self.0.accept(stream, caller));
        Box::pin(async move {
            let no_seat = || io::Error::other("there is no seat for the connection");
            let (stream, service) = accepting.ok_or_else(no_seat)?.await?;
            Ok((Piped::new(stream, pipeline), service))
        })
    }
}

/// Who is at the other end of a connection. Kept by every request, so that a connection counts as open until its
/// last one has ended.
#[derive(Clone)]
struct Caller {
    http: Http,
    peer: SocketAddr,
    pipeline: Pipeline,
    seat: Arc<Seat>,
    _connected: Arc<Connected>,
}

impl Caller {
    fn new(http: &Http, peer: SocketAddr, seat: Seat) -> Self {
        Self {
            http: http.clone(),
            peer,
            pipeline: Pipeline::default(),
            seat: Arc::new(seat),
            _connected: Arc::new(http.connected()),
        }
    }
}

impl Service<Request<Incoming>> for Caller {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        self.pipeline.take();
        let caller = self.clone();
        Box::pin(async move {
            let answer = caller
                .http
                .answer(caller.peer, &caller.pipeline, &caller.seat, request);
            let mut response = answer.await;
            if matches!(*caller.seat, Seat::Spare(_)) {
                let headers = response.headers_mut();
                headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            Ok(response)
        })
    }
}
