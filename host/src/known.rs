//! Values that may be unknown.

use serde::{Deserialize, Deserializer, Serialize, Serializer, ser::SerializeMap};

/// A value that was read, or the reason why it could not be read.
///
/// Serialized as the bare value or as `{"unknown": "why"}`: never as zero, never silently absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Known<T> {
    Value(T),
    Unknown {
        /// The reason, in one line.
        why: String,
    },
}

impl<T> Known<T> {
    pub fn unknown(why: impl Into<String>) -> Self {
        Known::Unknown { why: why.into() }
    }

    pub fn value(&self) -> Option<&T> {
        match self {
            Known::Value(value) => Some(value),
            Known::Unknown { .. } => None,
        }
    }

    pub fn into_value(self) -> Option<T> {
        match self {
            Known::Value(value) => Some(value),
            Known::Unknown { .. } => None,
        }
    }

    pub fn why(&self) -> Option<&str> {
        match self {
            Known::Value(_) => None,
            Known::Unknown { why } => Some(why),
        }
    }

    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Known<U> {
        match self {
            Known::Value(value) => Known::Value(change(value)),
            Known::Unknown { why } => Known::Unknown { why },
        }
    }
}

impl<T> Known<Option<T>> {
    /// `None` if the host reports that it does not support the value (`EOPNOTSUPP`), unknown after
    /// another error.
    pub fn if_supported(result: Result<T, crate::HostError>) -> Self {
        match result {
            Ok(value) => Known::Value(Some(value)),
            Err(error) if error.is_unsupported() => Known::Value(None),
            Err(error) => Known::unknown(error.to_string()),
        }
    }
}

impl<T, E: std::fmt::Display> From<Result<T, E>> for Known<T> {
    fn from(result: Result<T, E>) -> Self {
        match result {
            Ok(value) => Known::Value(value),
            Err(error) => Known::unknown(error.to_string()),
        }
    }
}

impl<T: Serialize> Serialize for Known<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Known::Value(value) => value.serialize(serializer),
            Known::Unknown { why } => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry("unknown", why)?;
                map.end()
            }
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Known<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum KnownJson<T> {
            Unknown { unknown: String },
            Value(T),
        }
        Ok(match KnownJson::deserialize(deserializer)? {
            KnownJson::Unknown { unknown: why } => Known::Unknown { why },
            KnownJson::Value(value) => Known::Value(value),
        })
    }
}

/// For values that are not yet read.
impl<T> Default for Known<T> {
    fn default() -> Self {
        Known::unknown("nobody looked")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_is_serialized_with_its_reason() {
        let known: Known<u64> = Known::Value(3);
        let unknown: Known<u64> = Known::unknown("no counters");
        assert_eq!(serde_json::to_string(&known).unwrap(), "3");
        assert_eq!(serde_json::to_string(&unknown).unwrap(), r#"{"unknown":"no counters"}"#);
        assert_eq!(unknown.map(|n| n + 1).why(), Some("no counters"));
    }

    #[test]
    fn known_and_unknown_values_round_trip_through_json() {
        for known in [Known::Value(3_u64), Known::unknown("no counters")] {
            let text = serde_json::to_string(&known).unwrap();
            assert_eq!(serde_json::from_str::<Known<u64>>(&text).unwrap(), known);
        }
        assert!(serde_json::from_str::<Known<u64>>(r#"{"other":"no counters"}"#).is_err());
    }
}
