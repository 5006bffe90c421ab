//! The service over the memory engine, in paused time: what waits, who is next, what is left behind.

#![expect(clippy::unwrap_used, reason = "a test may fail")]

mod audit;
mod faults;
mod line;
mod principals;
mod sets;
mod support;
