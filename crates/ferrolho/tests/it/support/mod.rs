//! What the tests are made of: servers, HTTP over bare sockets, and engines to run the same cases on.

mod answer;
mod clocks;
mod engine;
mod http;
pub(crate) mod metrics;
mod server;
mod shared_engine;
mod stream;

use std::thread;
use std::time::{Duration, Instant};

pub(crate) use answer::{Answer, Lock, micros};
pub(crate) use clocks::{drowsy, elsewhere};
pub(crate) use engine::on_every_engine;
pub(crate) use http::{Connection, Request, lock_path};
pub(crate) use server::{Server, acquire, acquire_waiting, ferrolho};
#[cfg(feature = "etcd")]
pub(crate) use shared_engine::on_etcd;
pub(crate) use shared_engine::{Case, OnStore, Pair, on_every_shared_engine, on_postgres};
pub(crate) use stream::{Block, Event, Stream};

/// How long anything may take that has no bound of its own in the contract. No healthy run needs so much.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// Waits until this is so.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "it never came: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}
