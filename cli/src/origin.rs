//! The origin of a result: program, time and host.

pub(crate) use linerate_host::{HostSummary, unix_seconds};
use serde::{Deserialize, Serialize};

/// The program and command that made a result, the time, and the host.
#[derive(Debug, Clone, Default)]
pub(crate) struct Origin {
    pub(crate) schema: String,
    /// Version of the program.
    pub(crate) version: String,
    pub(crate) argv: Vec<String>,
    // Seconds since 1970; `None` if unknown.
    pub(crate) started_unix_seconds: Option<u64>,
    pub(crate) host: HostSummary,
}

/// A fact that limits the meaning of a result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Warning {
    /// A stable identifier such as `cpu-steal`; `None` for remarks without one.
    #[serde(default)]
    pub(crate) kind: Option<String>,
    /// A sentence or clause for people.
    pub(crate) detail: String,
}

impl Warning {
    pub(crate) fn new(kind: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { kind: Some(kind.into()), detail: detail.into() }
    }

    /// A remark without an identifier.
    pub(crate) fn remark(detail: impl Into<String>) -> Self {
        Self { kind: None, detail: detail.into() }
    }
}
