//! What happened to locks, for those who watch.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{Lock, Reason, Resource, Timestamp};

/// What happened to a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EventKind {
    /// It was granted, or granted again to the same owner.
    Acquired,
    /// Its end was moved.
    Renewed,
    /// Its holder gave it back.
    Released,
    /// It ended by itself.
    Expired,
    /// An operator took it away.
    Forced,
}

impl EventKind {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 5] = [
        Self::Acquired,
        Self::Renewed,
        Self::Released,
        Self::Expired,
        Self::Forced,
    ];

    /// Its name, as events carry it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Acquired => "acquired",
            Self::Renewed => "renewed",
            Self::Released => "released",
            Self::Expired => "expired",
            Self::Forced => "forced",
        }
    }
}

/// One thing that happened to one lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Its place in the order of everything that happened on this store.
    #[serde(skip)]
    pub position: Position,
    /// What happened.
    pub kind: EventKind,
    /// To which resource.
    pub resource: Resource,
    /// The lock: as it is now for `acquired` and `renewed`, as it was for the others.
    pub lock: Lock,
    /// When, by the store's clock.
    pub at: Timestamp,
    /// Why, where somebody gave a reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
}

/// The place of an event in its store's history. Opaque to callers; any server of the same store understands it.
///
/// Positions of one epoch are in commit order. A different epoch is another history: nothing can be said about
/// what lies between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// Which history: another one for another database, and for an engine that does not remember its numbers.
    pub epoch: u64,
    /// Which commit.
    pub commit: u64,
    /// Which event of that commit, from 0.
    pub index: u32,
}

/// The text is no position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an event id of this service")]
pub struct PositionError;

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{:x}-{:x}", self.epoch, self.commit, self.index)
    }
}

impl FromStr for Position {
    type Err = PositionError;

    fn from_str(text: &str) -> Result<Self, PositionError> {
        let mut parts = text.split('-');
        let mut part = || {
            let text = parts.next().ok_or(PositionError)?;
            u64::from_str_radix(text, 16).map_err(|_| PositionError)
        };
        let position = Self {
            epoch: part()?,
            commit: part()?,
            index: part()?.try_into().map_err(|_| PositionError)?,
        };
        if position.to_string() == text {
            Ok(position)
        } else {
            Err(PositionError)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_numbered_as_they_are_listed_and_named_as_they_are_written() {
        for (number, kind) in EventKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, number);
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.as_str());
        }
    }

    #[test]
    fn positions_round_trip_and_nothing_else_passes() {
        let position = Position {
            epoch: 0xfe,
            commit: 12,
            index: 3,
        };
        assert_eq!(position.to_string(), "fe-c-3");
        assert_eq!("fe-c-3".parse(), Ok(position));
        for wrong in [
            "",
            "1",
            "1-2",
            "1-2-3-4",
            "+1-2-3",
            "01-2-3",
            "1-2-100000000",
            "g-0-0",
        ] {
            assert_eq!(wrong.parse::<Position>(), Err(PositionError), "{wrong}");
        }
    }
}
