//! The report of AF_XDP on this host.

use serde::{Deserialize, Serialize};

use crate::sys::bpf::XdpMode;

/// The interfaces that AF_XDP serves, and warnings about them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct XdpReport {
    /// The interfaces.
    pub interfaces: Vec<XdpInterface>,
    /// Differences from sockets, one sentence each.
    pub warnings: Vec<String>,
    /// Frames lost at the AF_XDP sockets until the server was stopped. Null if the kernel did not
    /// report them, or a worker failed.
    #[serde(default)]
    pub lost_frames: Option<u64>,
}

/// An interface that AF_XDP serves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct XdpInterface {
    /// Its name.
    pub name: String,
    /// Its index.
    pub index: u32,
    /// The name of its driver, if known.
    pub driver: Option<String>,
    /// Where the program runs.
    pub mode: XdpMode,
    /// Bytes of the largest IP packet when the server started. Replies that are longer, or longer than 1280 bytes and than
    /// their request, go out by the worker's socket.
    pub mtu_bytes: u32,
    /// Its receive queues.
    pub queues: Vec<XdpQueue>,
}

/// A queue that AF_XDP serves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct XdpQueue {
    /// Its number.
    pub queue: u32,
    /// The worker that serves it.
    pub worker: usize,
    /// Whether the device writes to our memory, or the kernel copies.
    pub zero_copy: bool,
    /// Whether the kernel reports that it needs a call (`XDP_USE_NEED_WAKEUP`).
    pub need_wakeup: bool,
    /// Frames for this queue.
    pub frames: u32,
    /// Bytes of a frame.
    pub frame_bytes: u32,
    /// Busy polling, microseconds; 0 is none.
    pub busy_poll_us: u32,
}

pub(super) fn warnings(verify_checksums: bool) -> Vec<String> {
    let mut warnings = vec![
        "requests served by AF_XDP pass below the network stack: tcpdump does not show them, nftables, iptables and tc \
         rules do not apply to them, and the stack's counters leave them out"
            .to_owned(),
    ];
    if !verify_checksums {
        let checksum_warning =
            "checksums of requests are not verified: a damaged one that the device lets pass is answered";
        warnings.push(checksum_warning.to_owned());
    }
    warnings
}
