//! What a lock is.
//!
//! This crate holds the vocabulary of ferrolho and its rules: names, lifetimes, fencing tokens, the lock
//! itself, the changes that a store carries out, the pure functions that decide on them, events, and the
//! bodies that travel over HTTP. It does no I/O, awaits nothing and knows no clock: whoever calls it says what
//! is alive. Values of these types cannot be wrong, so nothing behind the edge checks them again.

mod change;
mod event;
mod lock;
mod metadata;
mod name;
pub mod rules;
mod span;
mod time;
mod token;
pub mod wire;

pub use change::{Cause, Change, Claim, Expected, Grant, MAX_KEY_BYTES, Mark, MarkError, Write};
pub use event::{Event, EventKind, Position, PositionError};
pub use lock::{Holder, Live, Lock};
pub use metadata::{MAX_METADATA_BYTES, Metadata};
pub use name::{MAX_NAME_BYTES, Owner, Principal, Reason, Resource};
pub use span::{MAX_WAIT_SECONDS, TEN_YEARS_SECONDS, Ttl, Wait};
pub use time::{Timestamp, TimestampError};
pub use token::FencingToken;

/// Why a value is refused: a stable code for programs and a sentence for people that says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Invalid {
    /// A stable code, such as `too-long`.
    pub code: &'static str,
    /// What is wrong and what would be right, without the value itself.
    pub message: String,
}

impl Invalid {
    /// An error with this code and message.
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }
}
