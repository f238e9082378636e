//! Values that may be unknown.

use std::fmt;
use std::io;
use std::str::FromStr;

use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize};

use crate::{Host, HostError};

/// A value that was read, or the reason why it could not be read.
///
/// Serialized as the bare value or as `{"unknown": "why"}`: never as zero, never silently absent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Known<T> {
    Value(T),
    Unknown {
        /// The reason, in one line.
        #[serde(rename = "unknown")]
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

    /// The value, for `?`.
    pub(crate) fn known(&self) -> Result<&T, UnknownReason> {
        match self {
            Known::Value(value) => Ok(value),
            Known::Unknown { why } => Err(UnknownReason(why.clone())),
        }
    }

    /// The value, for `?`.
    pub(crate) fn into_known(self) -> Result<T, UnknownReason> {
        match self {
            Known::Value(value) => Ok(value),
            Known::Unknown { why } => Err(UnknownReason(why)),
        }
    }

    pub fn why(&self) -> Option<&str> {
        match self {
            Known::Value(_) => None,
            Known::Unknown { why } => Some(why),
        }
    }

    #[cfg(test)]
    pub(crate) fn why_contains(&self, part: &str) -> bool {
        self.why().is_some_and(|why| why.contains(part))
    }

    /// Panics with the reason if it is unknown.
    #[cfg(test)]
    pub(crate) fn expect_mut(&mut self) -> &mut T {
        match self {
            Known::Value(value) => value,
            Known::Unknown { why } => panic!("{why}"),
        }
    }

    pub fn as_ref(&self) -> Known<&T> {
        match self {
            Known::Value(value) => Known::Value(value),
            Known::Unknown { why } => Known::unknown(why),
        }
    }

    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Known<U> {
        self.and_then(|value| Known::Value(change(value)))
    }

    pub fn and_then<U>(self, next: impl FnOnce(T) -> Known<U>) -> Known<U> {
        match self {
            Known::Value(value) => next(value),
            Known::Unknown { why } => Known::Unknown { why },
        }
    }

    /// Both values, or the reason of the first that is unknown.
    pub fn zip<U>(self, other: Known<U>) -> Known<(T, U)> {
        self.and_then(|value| other.map(|other| (value, other)))
    }
}

impl<T> Known<Option<T>> {
    /// `None` if the value is known to be none.
    pub(crate) fn transpose(self) -> Option<Known<T>> {
        match self {
            Known::Value(value) => value.map(Known::Value),
            Known::Unknown { why } => Some(Known::Unknown { why }),
        }
    }

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

impl<T, E: fmt::Display> From<Result<T, E>> for Known<T> {
    fn from(result: Result<T, E>) -> Self {
        match result {
            Ok(value) => Known::Value(value),
            Err(error) => Known::unknown(error.to_string()),
        }
    }
}

/// Why a value is unknown. `?` makes one from every error.
#[derive(Debug)]
pub(crate) struct UnknownReason(String);

impl<E: fmt::Display> From<E> for UnknownReason {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

impl From<UnknownReason> for io::Error {
    fn from(UnknownReason(why): UnknownReason) -> Self {
        io::Error::other(why)
    }
}

impl<T> From<Result<T, UnknownReason>> for Known<T> {
    fn from(result: Result<T, UnknownReason>) -> Self {
        match result {
            Ok(value) => Known::Value(value),
            Err(UnknownReason(why)) => Known::Unknown { why },
        }
    }
}

impl Host {
    /// The value that `parse` finds in a file.
    pub fn read_parsed<T, E: fmt::Display>(
        &self,
        path: &str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<T, HostError> {
        let garbled = |error: E| HostError::Garbled { path: path.to_owned(), reason: error.to_string() };
        parse(&self.read(path)?).map_err(garbled)
    }

    /// The value that `parse` finds in a file.
    pub(crate) fn read_known<T, E: fmt::Display>(
        &self,
        path: &str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Known<T> {
        self.read_parsed(path, parse).into()
    }

    /// `None` if the file does not exist.
    pub(crate) fn read_optional<T, E: fmt::Display>(
        &self,
        path: &str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Known<Option<T>> {
        match self.read_parsed(path, parse) {
            Err(error) if error.is_missing() => Known::Value(None),
            value => Known::from(value).map(Some),
        }
    }
}

/// The number in a file.
pub(crate) fn number<T: FromStr>(text: &str) -> Result<T, String> {
    let text = text.trim();
    text.parse().map_err(|_| {
        let start: String = text.chars().take(40).collect();
        format!("'{start}' is not a valid number")
    })
}

/// The text in a file.
pub(crate) fn nonempty_text(text: &str) -> Result<String, &'static str> {
    match text.trim() {
        "" => Err("empty"),
        text => Ok(text.to_owned()),
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Known<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // An untagged enum would not accept maps with numbers as keys.
        let json = serde_json::Value::deserialize(deserializer)?;
        let why = json.as_object().filter(|map| map.len() == 1).and_then(|map| map.get("unknown")?.as_str());
        match why {
            Some(why) => Ok(Known::unknown(why)),
            None => serde_json::from_value(json).map(Known::Value).map_err(D::Error::custom),
        }
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
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn unknown_is_serialized_with_its_reason() {
        let unknown: Known<u64> = Known::unknown("no counters");
        for (known, json) in [(Known::Value(3), "3"), (unknown, r#"{"unknown":"no counters"}"#)] {
            assert_eq!(serde_json::to_string(&known).unwrap(), json);
            assert_eq!(serde_json::from_str::<Known<u64>>(json).unwrap(), known);
        }
        assert!(serde_json::from_str::<Known<u64>>(r#"{"other":"no counters"}"#).is_err());
    }

    #[test]
    fn known_collections_can_be_read_again() {
        fn check<T: Serialize + DeserializeOwned + PartialEq + fmt::Debug>(value: T) {
            let known = Known::Value(value);
            let json = serde_json::to_string(&known).unwrap();
            assert_eq!(serde_json::from_str::<Known<T>>(&json).unwrap(), known);
        }
        check(BTreeMap::from([(3, "powersave".to_owned())]));
        check(vec!["net_rx_action".to_owned()]);
    }
}
