//! The contract over HTTP: the real program, real sockets, one module for each family of cases.
//!
//! A test asks a [`support::Server`] and looks at [`support::Answer`]s; five lines add one. What every engine must
//! do alike is a function from a server, listed in [`support::on_every_engine`].

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod anti_patterns;
mod attacks;
mod audit;
mod auth;
mod away;
mod bodies;
mod client_certificates;
mod config;
mod costs;
mod dashboard;
mod docs;
mod events;
mod expiry;
mod fairness;
mod force;
mod fuzz;
mod guard;
mod hang_ups;
mod history;
mod idempotency;
mod kill;
mod limits;
mod looks;
mod many;
mod metrics;
mod names;
mod numbers;
mod openapi;
mod ownership;
mod packaging;
mod pipelining;
mod protocol;
mod queries;
mod queue;
mod race;
mod restore;
mod security;
mod seed;
mod sets;
mod shared;
mod shutdown;
mod soak;
mod streams;
mod supervisor;
mod support;
mod suspended;
mod three;
mod time;
mod tls;
mod token_file;
mod tokens;
mod waiting;
mod wakeups;
