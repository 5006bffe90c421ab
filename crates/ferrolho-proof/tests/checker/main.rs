//! The checker on histories written by hand: what it must explain, and what it must not.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod kit;
mod lives;
mod one;
mod sets;
mod unknown;
