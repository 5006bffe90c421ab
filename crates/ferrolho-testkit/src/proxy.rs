//! A TCP proxy that fails as networks do.
//!
//! It stands between a client and a server and passes bytes on until told otherwise: it can go silent in either
//! direction, lose bytes for good, cut every connection, or refuse new ones. Each fault lasts until the next
//! order, so a test says what the network does and never has to guess when.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

/// How many bytes are carried at a time.
const BUFFER_BYTES: usize = 16 * 1024;

/// What happens to bytes on their way in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flow {
    /// They pass.
    #[default]
    Pass,
    /// They wait, and pass when the flow does again, late but whole. New connections wait too.
    Hold,
    /// They are lost, and so is all that comes later on every connection that there is now, even when the flow
    /// passes again: a network that dropped packets for so long that they died. New connections wait.
    Lose,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    to_server: Direction,
    to_client: Direction,
    refuses: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Direction {
    flow: Flow,
    /// How often bytes began to be lost: a connection that has seen this number change is dead.
    losses: u64,
}

impl Direction {
    fn set(&mut self, flow: Flow) {
        self.flow = flow;
        self.losses += u64::from(flow == Flow::Lose);
    }
}

/// A proxy on a free loopback port in front of one address. It ends when this is dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    state: Arc<watch::Sender<State>>,
    cut: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// Starts a proxy in front of `target`.
    pub async fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .expect("a free loopback port");
        let address = listener.local_addr().expect("its address");
        let state = Arc::new(watch::Sender::new(State::default()));
        let cut = Arc::new(Notify::new());
        let task = tokio::spawn(accept(listener, target, Arc::clone(&state), Arc::clone(&cut)));
        Self {
            address,
            state,
            cut,
            task,
        }
    }

    /// Starts a proxy in front of a port of 127.0.0.1.
    pub async fn start_local(port: u16) -> Self {
        Self::start((Ipv4Addr::LOCALHOST, port).into()).await
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The port where it listens, on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Everything passes, and new connections are taken.
    pub fn heal(&self) {
        self.set(Flow::Pass);
        self.state.send_modify(|state| state.refuses = false);
    }

    /// Sets the flow of both directions.
    pub fn set(&self, flow: Flow) {
        self.state.send_modify(|state| {
            state.to_server.set(flow);
            state.to_client.set(flow);
        });
    }

    /// Sets the flow towards the server: requests.
    pub fn set_to_server(&self, flow: Flow) {
        self.state.send_modify(|state| state.to_server.set(flow));
    }

    /// Sets the flow towards the client: answers.
    pub fn set_to_client(&self, flow: Flow) {
        self.state.send_modify(|state| state.to_client.set(flow));
    }

    /// Resets every connection there is, towards both sides.
    pub fn cut(&self) {
        self.cut.notify_waiters();
    }

    /// Resets every connection and takes no new one until [`Proxy::heal`].
    pub fn refuse(&self) {
        self.state.send_modify(|state| state.refuses = true);
        self.cut();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
        self.cut();
    }
}

async fn accept(
    listener: TcpListener,
    target: SocketAddr,
    state: Arc<watch::Sender<State>>,
    cut: Arc<Notify>,
) {
    loop {
        let Ok((client, _)) = listener.accept().await else {
            continue;
        };
        let _ = client.set_nodelay(true);
        reset_when_dropped(&client);
        if state.borrow().refuses {
            continue;
        }
        let (state, cut) = (state.subscribe(), Arc::clone(&cut));
        tokio::spawn(async move {
            let end = cut.notified();
            tokio::pin!(end);
            end.as_mut().enable();
            tokio::select! {
                () = end => {}
                _ = carry(client, target, state) => {}
            }
        });
    }
}

/// Carries one connection until either side ends it. Dropping this resets both sides.
async fn carry(client: TcpStream, target: SocketAddr, mut state: watch::Receiver<State>) -> io::Result<()> {
    let passes = |state: &State| state.to_server.flow == Flow::Pass && state.to_client.flow == Flow::Pass;
    state.wait_for(passes).await.map_err(io::Error::other)?;
    let server = TcpStream::connect(target).await?;
    server.set_nodelay(true)?;
    reset_when_dropped(&server);
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::try_join!(
        copy(from_client, to_server, state.clone(), |state| state.to_server),
        copy(from_server, to_client, state, |state| state.to_client),
    )?;
    Ok(())
}

async fn copy(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut state: watch::Receiver<State>,
    direction: impl Fn(&State) -> Direction,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    let losses = direction(&state.borrow()).losses;
    loop {
        let count = from.read(&mut buffer).await?;
        let now = *state
            .wait_for(|state| direction(state).flow != Flow::Hold)
            .await
            .map_err(io::Error::other)?;
        let lost = direction(&now).losses != losses;
        match (count, lost) {
            // Nobody hears of the end of a connection whose packets are lost.
            (0, true) => std::future::pending().await,
            (_, true) => {}
            (0, false) => return to.shutdown().await,
            (count, false) => to.write_all(&buffer[..count]).await?,
        }
    }
}

fn reset_when_dropped(stream: &TcpStream) {
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that sends back what it gets.
    async fn echo() -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut from, mut to) = stream.into_split();
                    tokio::io::copy(&mut from, &mut to).await
                });
            }
        });
        address
    }

    async fn exchange(stream: &mut TcpStream, byte: u8) -> io::Result<u8> {
        stream.write_u8(byte).await?;
        stream.read_u8().await
    }

    #[tokio::test]
    async fn held_bytes_come_late_and_whole() {
        let proxy = Proxy::start(echo().await).await;
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        assert_eq!(exchange(&mut stream, 1).await.unwrap(), 1);
        proxy.set_to_client(Flow::Hold);
        stream.write_u8(2).await.unwrap();
        let read = stream.read_u8();
        tokio::pin!(read);
        let early = tokio::time::timeout(Duration::from_millis(50), read.as_mut()).await;
        assert!(early.is_err());
        proxy.heal();
        assert_eq!(read.await.unwrap(), 2);
    }

    #[tokio::test]
    async fn lost_bytes_never_come_and_their_connection_stays_dead() {
        let proxy = Proxy::start(echo().await).await;
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        assert_eq!(exchange(&mut stream, 1).await.unwrap(), 1);
        proxy.set(Flow::Lose);
        stream.write_u8(2).await.unwrap();
        proxy.heal();
        let mut second = TcpStream::connect(proxy.address()).await.unwrap();
        assert_eq!(exchange(&mut second, 3).await.unwrap(), 3);
        let silent = tokio::time::timeout(Duration::from_millis(50), exchange(&mut stream, 4)).await;
        assert!(silent.is_err());
    }

    #[tokio::test]
    async fn a_cut_is_seen_at_once() {
        let proxy = Proxy::start(echo().await).await;
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        assert_eq!(exchange(&mut stream, 1).await.unwrap(), 1);
        proxy.refuse();
        assert!(exchange(&mut stream, 2).await.is_err());
        let mut refused = TcpStream::connect(proxy.address()).await.unwrap();
        assert!(exchange(&mut refused, 3).await.is_err());
        proxy.heal();
        let mut again = TcpStream::connect(proxy.address()).await.unwrap();
        assert_eq!(exchange(&mut again, 4).await.unwrap(), 4);
    }
}
