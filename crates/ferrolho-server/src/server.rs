//! The listening server: connections, their limits in time, and a stop that loses nothing.

use std::convert::Infallible;
use std::future::ready;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use axum_server::Handle;
use axum_server::accept::{TcpConfigAcceptor, TcpKeepaliveConfig, TcpSocketConfig};
use hyper::Request;
use hyper::body::Incoming;
use hyper_util::rt::TokioTimer;
use tower::service_fn;

use crate::http::Http;

/// Limits in time on connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// How long a request's head may take to arrive; also the longest that a kept connection may be idle.
    pub head_timeout: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            head_timeout: Duration::from_secs(30),
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
    http: Http,
    limits: ConnectionLimits,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let handle = Handle::new();
    let stopping = handle.clone();
    tokio::spawn(async move {
        stop.await;
        stopping.graceful_shutdown(Some(STOP_WITHIN));
    });
    let keepalive = TcpKeepaliveConfig::new()
        .time(PROBE_AFTER)
        .interval(PROBE_EVERY)
        .retries(PROBES);
    let sockets = TcpSocketConfig::new().nodelay(true).keepalive(keepalive);
    let mut server = axum_server::from_tcp(listener)?
        .acceptor(TcpConfigAcceptor::new(sockets))
        .handle(handle)
        .first_request_timeout(limits.head_timeout);
    let builder = server.http_builder();
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_timeout);
    builder.http2().timer(TokioTimer::new());
    let make_service = service_fn(move |peer: SocketAddr| {
        let http = http.clone();
        let connected = Arc::new(http.connected());
        ready(Ok::<_, Infallible>(service_fn(
            move |request: Request<Incoming>| {
                let until_closed = Arc::clone(&connected);
                let http = http.clone();
                async move {
                    let _open = until_closed;
                    Ok::<_, Infallible>(http.answer(peer, request).await)
                }
            },
        )))
    });
    server.serve(make_service).await
}
