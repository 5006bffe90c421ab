//! The etcd engine on real clusters. Needs etcd and etcdctl; without them each test says that it did not run, or
//! fails when `FERROLHO_REQUIRE_ENGINES` is 1.
#![cfg(feature = "etcd")]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests: what does not hold is a panic"
)]

mod conformance;
mod faults;
mod history;
mod kit;
mod lives;
mod security;
mod shared;
mod space;
