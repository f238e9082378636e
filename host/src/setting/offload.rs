//! Offloads: work that an interface does for the network stack.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An offload that can be on or off, by the name `ethtool -k` gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Offload {
    /// Received packets of a flow are merged before the stack sees them (Linux 2.6.29).
    GenericReceive,
    /// TCP is cut into packets by the interface.
    TcpSegmentation,
}

impl fmt::Display for Offload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Offload::GenericReceive => "generic-receive-offload",
            Offload::TcpSegmentation => "tcp-segmentation-offload",
        })
    }
}
