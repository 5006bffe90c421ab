//! A lock server that can be told to misbehave.
//!
//! It keeps locks in memory by the contract's rules (`locks.rs`), on a thread of its own, and writes down every
//! request and every grant with its time: the outside witness of the tests. Faults are put between the network
//! and the rules (`network.rs`), at each point where a network can fail: before the act, after it, twice, never.
//! It can also stand in front of a real server (`forward.rs`) and bring the same faults there.

mod forward;
mod locks;
mod network;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};

pub(crate) use locks::problem_body;
use locks::{State, Wish};

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Acquire,
    Find,
    Renew,
    RenewOwner,
    Release,
    Other,
}

/// What the network does to one request.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// It never arrives; the connection breaks.
    DropRequest,
    /// It is carried out; the answer never arrives, the connection breaks.
    DropAnswer,
    /// It is never carried out and never answered, and the connection stays.
    Swallow,
    /// It arrives this late, and is carried out even if its sender has left.
    DelayRequest(Duration),
    /// It is carried out at once, and answered this late.
    DelayAnswer(Duration),
    /// It arrives twice; the second answer gets through.
    Double,
    /// It is answered with this instead.
    Answer(u16, String),
}

/// A request that arrived.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) act: Act,
    pub(crate) at: Instant,
    pub(crate) body: Value,
    pub(crate) key: Option<String>,
}

/// A grant or a release, as it happened.
#[derive(Clone, Debug)]
pub(crate) struct Happened {
    pub(crate) at: Instant,
    pub(crate) owner: String,
    pub(crate) token: u64,
}

struct Shared {
    state: Mutex<State>,
    changed: Notify,
    frozen: watch::Sender<bool>,
    /// The real server that this one stands in front of, if it does.
    upstream: Option<SocketAddr>,
}

/// The server; it ends with this.
pub(crate) struct Fake {
    addr: SocketAddr,
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
}

impl Fake {
    /// A server of its own.
    pub(crate) fn start() -> Self {
        Self::serve(None)
    }

    /// A network of its own in front of a real server.
    pub(crate) fn before(upstream: SocketAddr) -> Self {
        Self::serve(Some(upstream))
    }

    fn serve(upstream: Option<SocketAddr>) -> Self {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            changed: Notify::new(),
            frozen: watch::Sender::new(false),
            upstream,
        });
        let stop = watch::Sender::new(false);
        let (mut stopped, serving) = (stop.subscribe(), Arc::clone(&shared));
        let (tell, told) = std::sync::mpsc::channel();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async move {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                tell.send(listener.local_addr().unwrap()).unwrap();
                tokio::select! {
                    () = network::accept(listener, serving) => {}
                    _ = stopped.changed() => {}
                }
            });
        });
        let addr = told.recv().unwrap();
        Self { addr, shared, stop }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// The next `times` requests for this act meet this fault.
    pub(crate) fn fault(&self, act: Act, times: usize, fault: Fault) {
        self.state(|state| state.faults.push((act, times, fault)));
    }

    /// From now on nothing that this owner sends is carried out or answered.
    pub(crate) fn cut_off(&self, owner: &str) {
        self.state(|state| state.cut_off = Some(owner.to_owned()));
    }

    /// Stops doing anything, as SIGSTOP would: connections are made, nothing is read or answered.
    pub(crate) fn freeze(&self) {
        self.shared.frozen.send_replace(true);
    }

    pub(crate) fn thaw(&self) {
        self.shared.frozen.send_replace(false);
    }

    /// The requests for this act so far.
    pub(crate) fn seen(&self, act: Act) -> Vec<Seen> {
        self.state(|state| {
            state
                .seen
                .iter()
                .filter(|seen| seen.act == act)
                .cloned()
                .collect()
        })
    }

    pub(crate) fn happened(&self) -> Vec<Happened> {
        self.state(|state| state.happened.clone())
    }

    /// Forgets what it wrote down.
    pub(crate) fn forget(&self) {
        self.state(|state| {
            state.seen = Vec::new();
            state.happened = Vec::new();
        });
    }

    /// Owner and token of the live lock.
    pub(crate) fn holder(&self, resource: &str) -> Option<(String, u64)> {
        self.state(|state| {
            let held = state
                .locks
                .get(resource)
                .filter(|held| held.ends > Instant::now())?;
            Some((held.owner.clone(), held.token))
        })
    }

    pub(crate) fn waiting(&self, resource: &str) -> usize {
        self.state(|state| state.queues.get(resource).map_or(0, VecDeque::len))
    }

    pub(crate) fn connections(&self) -> usize {
        self.state(|state| state.connections)
    }

    /// Gives the lock to this owner, whoever had it.
    pub(crate) fn seize(&self, resource: &str, owner: &str, ttl: Duration) -> u64 {
        let wish = Wish {
            owner: owner.to_owned(),
            key: None,
            ttl,
            metadata: None,
        };
        self.state(|state| state.grant(resource, &wish).token)
    }

    /// Takes the lock away from whoever has it.
    pub(crate) fn take_away(&self, resource: &str) {
        self.state(|state| state.locks.remove(resource));
        self.shared.changed.notify_waiters();
    }

    fn state<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.shared.state.lock().unwrap())
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}
