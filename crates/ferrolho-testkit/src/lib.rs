//! What ferrolho's tests start and break.
//!
//! Private engines on free loopback ports, which end with the test that started them, and a TCP proxy that fails
//! on request as networks do. Only tests depend on this crate, so whatever goes wrong here is a panic with a
//! sentence: there is nobody to hand an error to.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "test support: a fault here is a failed test, and the sentence says why"
)]

/// The seed's table, as it stands there.
pub const SEED_TABLE: &str = "CREATE TABLE distributed_locks (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    resource    TEXT    NOT NULL UNIQUE,
    owner       TEXT    NOT NULL,
    expires_at  TEXT    NOT NULL,
    acquired_at TEXT    NOT NULL
)";

mod certificates;
mod engine;
mod etcd;
pub mod fuzz;
mod pgbouncer;
mod postgres;
mod proxy;

pub use certificates::{Authority, Certificate};
pub use engine::{REQUIRE_ENGINES, faketime_library, missing};
pub use etcd::{Etcd, EtcdOptions, EtcdTls};
pub use pgbouncer::PgBouncer;
pub use postgres::{Postgres, PostgresOptions};
pub use proxy::{Flow, Proxy};
