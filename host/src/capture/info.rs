//! `capture.json`.

use std::io;

use serde::{Deserialize, Serialize};

use crate::Scope;
use crate::recording::CaptureExtras;

pub const SCHEMA: &str = "linerate.capture/1";

const SCHEMA_NAME: &str = "linerate.capture/";

const SCHEMA_NUMBER: u32 = 1;

pub(super) const ABOUT: &str = "capture.json";

pub(super) const LATER: &str = "later";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CaptureInfo {
    pub schema: String,
    pub version: String,
    /// When the last reading began, in seconds since 1970; `null` if a directory without
    /// `capture.json` was read.
    #[serde(default)]
    pub unix_seconds: Option<u64>,
    #[serde(default)]
    pub kernel: Option<String>,
    /// `null` in an anonymous capture, and if it is unknown.
    #[serde(default)]
    pub host_name: Option<String>,
    /// Whether addresses and names were replaced.
    #[serde(default)]
    pub anonymous: bool,
    #[serde(default)]
    pub scope: Scope,
    /// One item per reading, in order.
    #[serde(default)]
    pub readings: Vec<CaptureExtras>,
}

// Reads `capture.json`. Checks the schema first, because the other fields of a later schema are
// unknown.
pub(super) fn parse_info(text: &[u8]) -> io::Result<CaptureInfo> {
    #[derive(Deserialize)]
    struct CaptureSchema {
        schema: String,
    }
    let garbled = |error: serde_json::Error| io::Error::other(format!("{ABOUT}: {error}"));
    let CaptureSchema { schema } = serde_json::from_slice(text).map_err(garbled)?;
    match schema.strip_prefix(SCHEMA_NAME).and_then(|number| number.parse::<u32>().ok()) {
        Some(SCHEMA_NUMBER) => serde_json::from_slice(text).map_err(garbled),
        Some(newer) if newer > SCHEMA_NUMBER => Err(io::Error::other(format!(
            "its schema is {schema}, and this program reads {SCHEMA}: a newer linerate can read it"
        ))),
        _ => Err(io::Error::other(format!("{ABOUT}: its schema is '{schema}', not {SCHEMA}"))),
    }
}
