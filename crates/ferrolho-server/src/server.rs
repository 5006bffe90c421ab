//! The listening server: it takes connections, up to its limit, and stops without losing a request.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tracing::warn;

use crate::connection::Attendant;
use crate::http::Http;
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

/// How long open connections may go on after the stop began.
const STOP_WITHIN: Duration = Duration::from_secs(8);

/// How long no connection is taken after the system could not give one, mostly for want of descriptors.
const PAUSE: Duration = Duration::from_millis(200);

/// Serves until `stop` resolves and the open requests are answered, or their time is up.
pub async fn serve(
    listener: TcpListener,
    tls: Option<Tls>,
    http: Http,
    limits: ConnectionLimits,
    stop: impl Future<Output = ()> + Send,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let room = Room::new(limits.connections);
    let attendant = Arc::new(Attendant::new(http, tls, limits.head_timeout));
    let (stopping, is_stopping) = watch::channel(false);
    let mut open = JoinSet::new();
    tokio::pin!(stop);
    loop {
        let taken = tokio::select! {
            () = &mut stop => break,
            Some(_) = open.join_next() => continue,
            taken = listener.accept() => taken,
        };
        match taken {
            Ok((stream, peer)) => match room.take() {
                Seat::None => drop(stream),
                seat => {
                    let attendant = Arc::clone(&attendant);
                    open.spawn(attendant.attend(stream, peer, seat, is_stopping.clone()));
                }
            },
            Err(error) if is_of_the_caller(&error) => {}
            Err(error) => {
                warn!(%error, "no connection can be taken at the moment");
                sleep(PAUSE).await;
            }
        }
    }
    drop(listener);
    stopping.send_replace(true);
    let all_ended = async { while open.join_next().await.is_some() {} };
    // Whoever is still open after that is cut.
    let _ = timeout(STOP_WITHIN, all_ended).await;
    open.shutdown().await;
    Ok(())
}

/// Whether a connection could not be taken because its caller has gone already.
fn is_of_the_caller(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset
    )
}
