//! A deterministic simulation: services, those who wait, the reaper of the memory engine and clients, over a network
//! that delays and loses, engines that fail, servers that are killed and clients that pause, in paused time.
//!
//! Everything that is left to chance comes from one seed, so a seed repeats exactly. What clients were told is judged
//! by `ferrolho-proof` (an order must explain it), by the witness outside (nobody is inside together), and at the end
//! by what is left behind (nothing). Then the same worlds are run with one fault each in a store or a client, and every
//! one of these faults must be found.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod client;
mod link;
mod mutant;
mod mutants;
mod seeds;
mod world;
