//! Fencing tokens.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

use crate::Invalid;

/// The number of a grant. It rises strictly with every grant of a resource, for ever, so that a resource that
/// remembers the largest number it has seen can refuse a holder that woke too late. Renewing keeps it.
///
/// Always from 1 to 2^53 - 1, which every JSON reader keeps exactly. (Source: Kleppmann, "How to do distributed
/// locking", 2016; the seed's `id` column.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct FencingToken(u64);

impl FencingToken {
    /// The largest token there is.
    pub const MAX: FencingToken = FencingToken((1 << 53) - 1);

    /// The token with this number, from 1 to 2^53 - 1.
    pub fn new(number: i128) -> Result<Self, Invalid> {
        match u64::try_from(number) {
            Ok(n) if (1..=Self::MAX.0).contains(&n) => Ok(Self(n)),
            _ => Err(Invalid::new(
                "out-of-range",
                format!("fencing_token must be from 1 to {}", Self::MAX),
            )),
        }
    }

    /// The number.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'de> Deserialize<'de> for FencingToken {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(u64::deserialize(deserializer)?.into()).map_err(serde::de::Error::custom)
    }
}
