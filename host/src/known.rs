//! A value that may be unknown.

use serde::{Deserialize, Serialize};

/// A value, or why it could not be had. Never zero in place of unknown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Known<T> {
    /// It was read.
    Value(T),
    /// It could not be read.
    Unknown {
        /// The reason, one sentence.
        why: String,
    },
}

impl<T> Known<T> {
    /// Unknown, for a reason.
    pub fn unknown(why: impl Into<String>) -> Self {
        Known::Unknown { why: why.into() }
    }

    /// The value, if known.
    pub fn value(self) -> Option<T> {
        match self {
            Known::Value(value) => Some(value),
            Known::Unknown { .. } => None,
        }
    }

    /// A reference to the value, if known.
    pub fn as_value(&self) -> Option<&T> {
        match self {
            Known::Value(value) => Some(value),
            Known::Unknown { .. } => None,
        }
    }

    /// Why it is unknown, if it is.
    pub fn why(&self) -> Option<&str> {
        match self {
            Known::Value(_) => None,
            Known::Unknown { why } => Some(why),
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
