//! The part of a host that a command is about.

use serde::{Deserialize, Serialize};

/// The part of a host to read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Scope {
    /// If empty: interfaces with a device, or without any, all that are up except the loopback.
    pub interfaces: Vec<String>,
    /// Only services on this port.
    pub port: Option<u16>,
    /// Only services of this process.
    pub pid: Option<u32>,
}
