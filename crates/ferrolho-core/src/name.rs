//! Names: of resources, owners and principals.
//!
//! One rule for all of them: 1 to 255 bytes of UTF-8, no control characters, no white space at either end,
//! neither `.` nor `..` (which HTTP clients fold away). Names are compared byte by byte: `Job`, `job` and the
//! two Unicode forms of `café` are different names. (Source: the seed's ATK-07 and ATK-12, design.md.)

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Invalid;

/// The most bytes a name may have.
pub const MAX_NAME_BYTES: usize = 255;

fn check(what: &str, name: &str) -> Result<(), Invalid> {
    if name.is_empty() {
        return Err(Invalid::new("empty", format!("{what} must not be empty")));
    }
    if name.len() > MAX_NAME_BYTES {
        return Err(Invalid::new(
            "too-long",
            format!(
                "{what} has {} bytes; at most {MAX_NAME_BYTES} are allowed",
                name.len()
            ),
        ));
    }
    if name.chars().any(char::is_control) {
        return Err(Invalid::new(
            "control-character",
            format!("{what} must not contain control characters"),
        ));
    }
    if name.trim().len() != name.len() {
        return Err(Invalid::new(
            "surrounding-space",
            format!("{what} must not begin or end with white space"),
        ));
    }
    if name == "." || name == ".." {
        return Err(Invalid::new("dot", format!("{what} must not be \".\" or \"..\"")));
    }
    Ok(())
}

macro_rules! name_type {
    ($(#[$doc:meta])* $type:ident, $what:literal, $prepare:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $type(Arc<str>);

        impl $type {
            /// The name, or why it is refused.
            pub fn new(name: &str) -> Result<Self, Invalid> {
                let prepare: fn(&str) -> &str = $prepare;
                let name = prepare(name);
                check($what, name)?;
                Ok(Self(name.into()))
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }

        impl std::borrow::Borrow<str> for $type {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl std::str::FromStr for $type {
            type Err = Invalid;
            fn from_str(name: &str) -> Result<Self, Invalid> {
                Self::new(name)
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let name = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                Self::new(&name).map_err(serde::de::Error::custom)
            }
        }
    };
}

name_type!(
    /// What is locked: a payment, a file, a job. Compared byte by byte.
    Resource,
    "resource",
    |name| name
);
name_type!(
    /// Who holds a lock, in the caller's words. White space around it is trimmed, as the seed does.
    Owner,
    "owner",
    str::trim
);
name_type!(
    /// Who a caller has proven to be, when authentication is on.
    Principal,
    "principal",
    |name| name
);
name_type!(
    /// Why an operator took a lock away, in the operator's words.
    Reason,
    "reason",
    str::trim
);

#[cfg(test)]
mod tests {
    use super::*;

    fn code(name: &str) -> &'static str {
        Resource::new(name).map_or_else(|e| e.code, |_| "")
    }

    #[test]
    fn names_at_every_edge() {
        assert_eq!(code(""), "empty");
        assert_eq!(code(&"x".repeat(255)), "");
        assert_eq!(code(&"x".repeat(256)), "too-long");
        assert_eq!(code(&"語".repeat(85)), "");
        assert_eq!(code(&"語".repeat(86)), "too-long");
        assert_eq!(code("a\0b"), "control-character");
        assert_eq!(code("a\u{85}b"), "control-character");
        assert_eq!(code(" a"), "surrounding-space");
        assert_eq!(code("a\u{3000}"), "surrounding-space");
        assert_eq!(code("."), "dot");
        assert_eq!(code(".."), "dot");
        assert_eq!(code("..."), "");
        assert_eq!(code("team/job"), "");
        assert_eq!(code("resource'; DROP TABLE distributed_locks; --"), "");
    }

    #[test]
    fn owners_are_trimmed_and_resources_are_not() {
        assert_eq!(Owner::new("  worker 7 ").unwrap().as_str(), "worker 7");
        assert_eq!(Owner::new(" \t ").unwrap_err().code, "empty");
    }

    #[test]
    fn bytes_decide() {
        assert_ne!(
            Resource::new("caf\u{e9}").unwrap(),
            Resource::new("cafe\u{301}").unwrap()
        );
        assert_ne!(Resource::new("Job").unwrap(), Resource::new("job").unwrap());
    }
}
