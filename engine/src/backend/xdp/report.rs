//! The report of AF_XDP on this host.

use serde::{Deserialize, Serialize};

use crate::sys::bpf::XdpMode;

/// The interfaces that AF_XDP serves, and warnings about them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct XdpReport {
    /// The interfaces.
    pub interfaces: Vec<XdpInterface>,
    /// Differences from sockets and known problems of the drivers, one sentence each.
    pub warnings: Vec<String>,
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
    /// Bytes of the largest IP packet when the server started. Longer replies go out by the worker's socket.
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

/// A known problem of a driver.
struct DriverFacts {
    driver: &'static str,
    zero_copy_only: bool,
    what: &'static str,
    source: &'static str,
}

const KNOWN: [DriverFacts; 4] = [
    DriverFacts {
        driver: "veth",
        zero_copy_only: false,
        what: "a sender on this machine leaves the checksum of its requests unfinished, so that verify_checksums \
               accepts such ones here",
        source: "drivers/net/veth.c of Linux 6.18, veth_xdp_rcv_skb",
    },
    DriverFacts {
        driver: "ena",
        zero_copy_only: true,
        what: "memory corruption and resets under load were reported of zero-copy with the vendor's driver 2.13.1 and \
               2.7.1; turn zero-copy off if either is seen",
        source: "https://github.com/amzn/amzn-drivers/issues/330 and 221",
    },
    DriverFacts {
        driver: "ena",
        zero_copy_only: false,
        what: "redirected packets may be left unflushed after an error in the same poll with the vendor's driver 2.9.1",
        source: "https://github.com/amzn/amzn-drivers/issues/279",
    },
    DriverFacts {
        driver: "ice",
        zero_copy_only: true,
        what: "with the kernel 4.18 of RHEL 8.5 the interface received nothing any more; later kernels are not known for it",
        source: "https://github.com/firedancer-io/firedancer/issues/273",
    },
];

pub(super) fn warnings(interfaces: &[XdpInterface], verify_checksums: bool) -> Vec<String> {
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
    for interface in interfaces {
        let zero_copy = interface.queues.iter().any(|queue| queue.zero_copy);
        for facts in &KNOWN {
            if interface.driver.as_deref() == Some(facts.driver) && (zero_copy || !facts.zero_copy_only) {
                warnings.push(format!(
                    "{} ({}): {} ({})",
                    interface.name, facts.driver, facts.what, facts.source
                ));
            }
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(driver: &str, zero_copy: bool) -> XdpInterface {
        XdpInterface {
            name: "eth0".to_owned(),
            index: 2,
            driver: Some(driver.to_owned()),
            mode: XdpMode::Driver,
            mtu_bytes: 1500,
            queues: vec![XdpQueue {
                queue: 0,
                worker: 0,
                zero_copy,
                need_wakeup: true,
                frames: 4096,
                frame_bytes: 2048,
                busy_poll_us: 0,
            }],
        }
    }

    #[test]
    fn warnings_depend_on_driver_zero_copy_and_checksum_verification() {
        assert_eq!(warnings(&[interface("i40e", true)], true).len(), 1);
        assert_eq!(warnings(&[interface("i40e", true)], false).len(), 2);
        assert_eq!(warnings(&[interface("ice", false)], true).len(), 1);
        assert_eq!(warnings(&[interface("ice", true)], true).len(), 2);
        assert_eq!(warnings(&[interface("ena", true)], true).len(), 3);
        assert!(warnings(&[interface("veth", false)], true)[1].contains("unfinished"));
    }
}
