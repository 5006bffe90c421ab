//! The PostgreSQL engine on real servers. Needs PostgreSQL; without it each test says that it did not run, or fails
//! when `FERROLHO_REQUIRE_ENGINES` is 1.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "tests: what does not hold is a panic"
)]

mod clock;
mod conformance;
mod faults;
mod kit;
mod pooler;
mod retries;
mod standby;
mod start;
mod tls;
