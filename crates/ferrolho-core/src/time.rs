//! Points in time, as ferrolho writes them.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A point in time with microseconds, UTC.
///
/// Written as RFC 3339 with exactly six fraction digits and `Z`, always 27 characters, so that text order is
/// time order: `2026-12-01T05:02:15.000000Z`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(jiff::Timestamp);

/// The text or number is no point in time of the years 0 to 9999.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a point in time in the form 2026-12-01T05:02:15.000000Z")]
pub struct TimestampError;

/// The last microsecond that is written here, 9999-12-30T21:59:59.999999Z: the end of what jiff knows.
const LAST_MICROS: i64 = 253_402_207_199_999_999;

impl Timestamp {
    /// The point `micros` microseconds after 1970-01-01T00:00:00Z, kept within the years 1970 to 9999.
    pub fn from_micros(micros: i64) -> Self {
        Self(jiff::Timestamp::from_microsecond(micros.clamp(0, LAST_MICROS)).unwrap_or_default())
    }

    /// Microseconds since 1970-01-01T00:00:00Z.
    pub fn as_micros(self) -> i64 {
        self.0.as_microsecond()
    }

    /// This point and `span`, whole microseconds, at most the last one there is.
    pub fn plus(self, span: Duration) -> Self {
        let micros = i64::try_from(span.as_micros()).unwrap_or(i64::MAX);
        Self::from_micros(self.as_micros().saturating_add(micros))
    }

    /// How long it is from `earlier` to this point; zero when this one is not later.
    pub fn since(self, earlier: Timestamp) -> Duration {
        let micros = self.as_micros().saturating_sub(earlier.as_micros());
        Duration::from_micros(u64::try_from(micros).unwrap_or(0))
    }

    /// The point that this text names: any RFC 3339 text with a zone.
    pub fn parse(text: &str) -> Result<Self, TimestampError> {
        let parsed: jiff::Timestamp = text.parse().map_err(|_| TimestampError)?;
        let micros = parsed.as_microsecond();
        if (0..=LAST_MICROS).contains(&micros) {
            Ok(Self::from_micros(micros))
        } else {
            Err(TimestampError)
        }
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6}", self.0)
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn whole_seconds_keep_six_digits() {
        assert_eq!(
            Timestamp::from_micros(0).to_string(),
            "1970-01-01T00:00:00.000000Z"
        );
        assert_eq!(
            Timestamp::from_micros(i64::MAX).to_string(),
            "9999-12-30T21:59:59.999999Z"
        );
    }

    proptest! {
        #[test]
        fn text_round_trips_and_sorts_like_time(a in 0..=LAST_MICROS, b in 0..=LAST_MICROS) {
            let (a, b) = (Timestamp::from_micros(a), Timestamp::from_micros(b));
            prop_assert_eq!(a.to_string().len(), 27);
            prop_assert_eq!(Timestamp::parse(&a.to_string()), Ok(a));
            prop_assert_eq!(a.cmp(&b), a.to_string().cmp(&b.to_string()));
        }
    }
}
