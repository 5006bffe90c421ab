//! What a store is asked to do: one compare-and-swap on one resource.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::{EventKind, FencingToken, Holder, Invalid, Lock, Metadata, Reason, Resource, Ttl};

/// A compare-and-swap on one resource: if the lock is as `expected`, `write`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Which lock.
    pub resource: Resource,
    /// What must be so for the change to happen.
    pub expected: Expected,
    /// What then becomes of the lock.
    pub write: Write,
    /// Why, for those who watch.
    pub cause: Cause,
}

/// What a change needs to find.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// No live lock, by the store's own clock.
    Free,
    /// A live lock that this claim is about.
    HeldBy(Claim),
    /// A live lock with this token, whoever holds it: for what is done in nobody's name.
    Token(FencingToken),
}

/// The claim to hold a lock. The owner is always compared; a token that the caller names only narrows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Who says to hold the lock.
    pub holder: Holder,
    /// Which grant is meant; any when absent.
    pub token: Option<FencingToken>,
}

impl Claim {
    /// Whether the claim is true of this lock.
    pub fn is_true_of(&self, lock: &Lock) -> bool {
        lock.is_held_by(&self.holder) && self.token.is_none_or(|token| token == lock.fencing_token)
    }
}

/// What becomes of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// A new grant, with a new token, whatever was there before.
    Grant(Grant),
    /// A new end: now and `Ttl`. The grant and its token stay.
    Extend(Ttl),
    /// No lock.
    Remove,
}

/// A grant that is to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// To whom.
    pub holder: Holder,
    /// For how long, from the moment of the grant.
    pub ttl: Ttl,
    /// What the holder notes on it.
    pub metadata: Option<Metadata>,
    /// By which attempt.
    pub mark: Mark,
}

/// Why a change happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A caller acquires; over its own live lock, it acquires again.
    Acquire,
    /// The holder releases. With a grant this is a hand-over: the lock passes to one who waited.
    Release,
    /// The holder renews.
    Renew,
    /// A grant that nobody was told of is taken back.
    Undo,
    /// An operator takes the lock away.
    Force(Reason),
}

impl Change {
    /// The events that this change makes, in order. `released` and `forced` carry the lock that was there
    /// before, the others the lock that the change made.
    pub fn event_kinds(&self) -> &'static [EventKind] {
        use EventKind::{Acquired, Forced, Released, Renewed};
        match (&self.write, &self.cause) {
            (Write::Grant(_), Cause::Acquire | Cause::Renew) => &[Acquired],
            (Write::Grant(_), Cause::Release | Cause::Undo) => &[Released, Acquired],
            (Write::Grant(_), Cause::Force(_)) => &[Forced, Acquired],
            (Write::Extend(_), _) => &[Renewed],
            (Write::Remove, Cause::Force(_)) => &[Forced],
            (Write::Remove, _) => &[Released],
        }
    }

    /// The reason that the event of the lock's end carries, if any.
    pub fn reason(&self) -> Option<Reason> {
        self.cause.reason()
    }
}

impl Cause {
    /// The reason that those who watch are given, if there is any to give.
    pub fn reason(&self) -> Option<Reason> {
        match self {
            Self::Force(reason) => Some(reason.clone()),
            Self::Undo => Reason::new("its caller had left before the answer").ok(),
            Self::Acquire | Self::Release | Self::Renew => None,
        }
    }
}

/// What tells one attempt to acquire from another. It is stored with the lock that the attempt makes, so that an
/// attempt whose outcome is unknown can be recognised later.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Mark {
    /// A random number, for callers that named no key.
    Random(u64),
    /// The caller's `Idempotency-Key`.
    Key(Arc<str>),
}

/// The most bytes that an `Idempotency-Key` may have.
pub const MAX_KEY_BYTES: usize = 64;

/// The text is no stored mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the stored form of a mark")]
pub struct MarkError;

impl Mark {
    /// The mark of an `Idempotency-Key`: 1 to 64 visible ASCII characters.
    pub fn from_key(key: &str) -> Result<Self, Invalid> {
        if key.is_empty() || key.len() > MAX_KEY_BYTES || !key.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(Invalid::new(
                "invalid-key",
                format!("Idempotency-Key must be 1 to {MAX_KEY_BYTES} visible ASCII characters"),
            ));
        }
        Ok(Self::Key(key.into()))
    }
}

/// The stored form: `r` and 16 hexadecimal digits, or `k` and the key.
impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Random(number) => write!(f, "r{number:016x}"),
            Self::Key(key) => write!(f, "k{key}"),
        }
    }
}

impl fmt::Debug for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Reads the stored form. The empty text, which rows written by other programs have, is the mark of no attempt.
impl FromStr for Mark {
    type Err = MarkError;

    fn from_str(text: &str) -> Result<Self, MarkError> {
        match text.split_at_checked(1) {
            None => Ok(Self::Random(0)),
            Some(("r", hex)) => u64::from_str_radix(hex, 16)
                .map(Self::Random)
                .map_err(|_| MarkError),
            Some(("k", key)) => Self::from_key(key).map_err(|_| MarkError),
            Some(_) => Err(MarkError),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_round_trip() {
        for mark in [
            Mark::Random(7),
            Mark::Random(u64::MAX),
            Mark::from_key("k-1").unwrap(),
        ] {
            assert_eq!(mark.to_string().parse(), Ok(mark));
        }
        assert_eq!("".parse(), Ok(Mark::Random(0)));
        assert_eq!("x".parse::<Mark>(), Err(MarkError));
        for wrong in ["", "a b", "é", &"k".repeat(65)] {
            assert!(Mark::from_key(wrong).is_err(), "{wrong}");
        }
    }
}
