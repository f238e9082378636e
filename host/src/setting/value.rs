//! Values of settings.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A value in the kernel's notation, without the trailing newline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SettingValue(String);

impl SettingValue {
    /// Trims white space.
    pub fn new(value: impl fmt::Display) -> Self {
        Self(value.to_string().trim().to_owned())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SettingValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
