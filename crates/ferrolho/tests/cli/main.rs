//! `ferrolho run` and the small commands: real processes against a server that misbehaves on command.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod cable;
mod commands;
#[expect(dead_code, reason = "the client's tests use the rest of it")]
#[path = "../../../ferrolho-client/tests/it/fake/mod.rs"]
mod fake;
mod lab;
mod loss;
mod processes;
mod real;
mod recipes;
mod run;
mod terminal;
