//! The client against a server that misbehaves on command.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[expect(dead_code, reason = "the tests of the program use the rest of it")]
mod fake;
mod leaks;
mod renewal;
mod shared;
mod tls;
mod uncertain;
mod waiting;

use std::time::{Duration, Instant};

use fake::Fake;
use ferrolho_client::{Client, Guard, LockRequest, Owner};

/// A client of this server with short time-outs.
fn client(fake: &Fake) -> Client {
    Client::builder()
        .url(&fake.url())
        .unwrap()
        .request_timeout(Duration::from_millis(500))
        .build()
        .unwrap()
}

/// The same with a given owner.
fn client_of(fake: &Fake, owner: &str) -> Client {
    Client::builder()
        .url(&fake.url())
        .unwrap()
        .owner(Owner::new(owner).unwrap())
        .build()
        .unwrap()
}

/// A request for `r` that lives this many seconds.
fn request(client: &Client, ttl_seconds: u64) -> LockRequest<Guard> {
    client
        .lock("r")
        .unwrap()
        .ttl(Duration::from_secs(ttl_seconds))
        .unwrap()
}

/// Waits until this is so. It fails when it is not so after a time that no healthy run needs.
async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(20), "it never came: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
