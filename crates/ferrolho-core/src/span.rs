//! How long: the lifetime of a lock and the time that a caller will wait for it, both in whole seconds.

use std::fmt;
use std::time::Duration;

use crate::Invalid;

/// The longest lifetime that any configuration may allow, in seconds (3650 days).
pub const TEN_YEARS_SECONDS: u32 = 3650 * 86_400;

/// The longest wait that a request may ask for, in seconds.
pub const MAX_WAIT_SECONDS: u32 = 300;

/// How long a grant or a renewal lasts: 1 second to ten years, in whole seconds.
///
/// There is no default and no "for ever": a lock always ends by itself. (Source: the seed, ATK-05 and ATK-08.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ttl(u32);

impl Ttl {
    /// The lifetime of `seconds`, which must be from 1 to `max`.
    pub fn new(seconds: i128, max: Ttl) -> Result<Self, Invalid> {
        if seconds < 1 {
            return Err(Invalid::new("too-small", "ttl_seconds must be at least 1"));
        }
        match u32::try_from(seconds) {
            Ok(seconds) if seconds <= max.0 => Ok(Self(seconds)),
            _ => Err(Invalid::new(
                "too-large",
                format!("ttl_seconds must be at most {max}"),
            )),
        }
    }

    /// The largest lifetime there is: ten years.
    pub const MAX: Ttl = Ttl(TEN_YEARS_SECONDS);

    /// The lifetime in seconds.
    pub fn seconds(self) -> u32 {
        self.0
    }

    /// The lifetime as a duration.
    pub fn duration(self) -> Duration {
        Duration::from_secs(self.0.into())
    }
}

impl fmt::Display for Ttl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How long a caller waits for a lock: 0 (answer at once) to 300 seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wait(u32);

impl Wait {
    /// Do not wait.
    pub const NONE: Wait = Wait(0);

    /// A wait of `seconds`, which must be from 0 to 300.
    pub fn new(seconds: i128) -> Result<Self, Invalid> {
        if seconds < 0 {
            return Err(Invalid::new("too-small", "wait_seconds must be at least 0"));
        }
        match u32::try_from(seconds) {
            Ok(seconds) if seconds <= MAX_WAIT_SECONDS => Ok(Self(seconds)),
            _ => Err(Invalid::new(
                "too-large",
                format!("wait_seconds must be at most {MAX_WAIT_SECONDS}"),
            )),
        }
    }

    /// The wait in seconds.
    pub fn seconds(self) -> u32 {
        self.0
    }

    /// The wait as a duration.
    pub fn duration(self) -> Duration {
        Duration::from_secs(self.0.into())
    }

    /// Whether the caller wants its answer at once.
    pub fn is_none(self) -> bool {
        self.0 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ttl_at_every_edge() {
        let max = Ttl::new(86_400, Ttl::MAX).unwrap();
        let code = |s| Ttl::new(s, max).map_or_else(|e| e.code, |_| "");
        assert_eq!(code(0), "too-small");
        assert_eq!(code(-100), "too-small");
        assert_eq!(code(1), "");
        assert_eq!(code(86_400), "");
        assert_eq!(code(86_401), "too-large");
        for huge in [1i128 << 31, 1 << 32, 1 << 53, i64::MAX.into(), i128::MAX] {
            assert_eq!(code(huge), "too-large");
        }
        assert_eq!(Ttl::new((1 << 32) + 1, Ttl::MAX).unwrap_err().code, "too-large");
    }

    #[test]
    fn wait_at_every_edge() {
        assert!(Wait::new(0).unwrap().is_none());
        assert_eq!(Wait::new(-1).unwrap_err().code, "too-small");
        assert_eq!(Wait::new(300).unwrap().seconds(), 300);
        assert_eq!(Wait::new(301).unwrap_err().code, "too-large");
    }
}
