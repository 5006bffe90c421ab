//! `ferrolho run` and the small commands: real processes against a server that misbehaves on command.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod commands;
#[expect(dead_code, reason = "the client's tests use the rest of it")]
#[path = "../../../ferrolho-client/tests/it/fake/mod.rs"]
mod fake;
mod lab;
mod loss;
mod processes;
mod run;
mod terminal;
