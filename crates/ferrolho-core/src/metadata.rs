//! What a caller notes on its lock.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::Invalid;

/// The most bytes that metadata may have, as JSON text.
pub const MAX_METADATA_BYTES: usize = 4096;

/// A JSON object of at most 4 KiB that the caller attached to a grant. ferrolho never looks inside: it gives
/// back the text as it came.
#[derive(Clone, Debug)]
pub struct Metadata(Arc<RawValue>);

impl Metadata {
    /// The metadata in this piece of JSON, which must be an object of at most 4 KiB.
    pub fn new(json: &RawValue) -> Result<Self, Invalid> {
        let text = json.get();
        if !text.starts_with('{') {
            return Err(Invalid::new("wrong-type", "metadata must be a JSON object"));
        }
        if text.len() > MAX_METADATA_BYTES {
            return Err(Invalid::new(
                "too-long",
                format!(
                    "metadata has {} bytes; at most {MAX_METADATA_BYTES} are allowed",
                    text.len()
                ),
            ));
        }
        Ok(Self(Arc::from(json.to_owned())))
    }

    /// The metadata in this JSON text.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let json: &RawValue = serde_json::from_str(text)
            .map_err(|_| Invalid::new("wrong-type", "metadata must be a JSON object"))?;
        Self::new(json)
    }

    /// The JSON text, as it came.
    pub fn as_str(&self) -> &str {
        self.0.get()
    }
}

impl PartialEq for Metadata {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Metadata {}

impl Serialize for Metadata {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Metadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Box::<RawValue>::deserialize(deserializer)?;
        Self::new(&json).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_objects_and_only_small_ones() {
        for wrong in ["null", "[]", "1", "\"x\"", "{", ""] {
            assert_eq!(Metadata::parse(wrong).unwrap_err().code, "wrong-type", "{wrong}");
        }
        let text = "{ \"b\": 1e2, \"a\": \"\\u0000\",\"a\":1 }";
        assert_eq!(Metadata::parse(text).unwrap().as_str(), text);
        let long = |n: usize| format!("{{\"k\":\"{}\"}}", "x".repeat(n - 8));
        assert!(Metadata::parse(&long(4096)).is_ok());
        assert_eq!(Metadata::parse(&long(4097)).unwrap_err().code, "too-long");
    }
}
