//! XDP programs of an interface, and the XDP features of its driver.

use std::io;

use netlink_packet_route::link::{LinkAttribute, LinkMessage, LinkXdp, XdpAttached};
use serde::{Deserialize, Serialize};

use super::attribute::{RequestAttributes, attribute};
use super::generic::GenericFamily;
use super::link::link_message;
use crate::known::Known;
use crate::root::{Host, HostError};

// `NETDEV_CMD_DEV_GET`, `NETDEV_A_DEV_IFINDEX` and `NETDEV_A_DEV_XDP_FEATURES` of linux/netdev.h.
const GET_DEVICE: u8 = 1;
const DEVICE_INDEX: u16 = 1;
const DEVICE_FEATURES: u16 = 3;

// `NETDEV_XDP_ACT_BASIC`, `_REDIRECT` and `_NDO_XMIT` of linux/netdev.h.
const BASIC: u64 = 1;
const REDIRECT: u64 = 2;
const TRANSMIT: u64 = 4;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XdpState {
    pub attached: Option<AttachedXdp>,
    pub features: Known<XdpFeatures>,
    /// As `ethtool -i` prints it.
    pub driver: Known<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachedXdp {
    /// As `bpftool prog` lists it; `None` if there are several.
    #[serde(default)]
    pub id: Option<u32>,
    pub mode: XdpAttachKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum XdpAttachKind {
    /// In the driver, before a packet has a socket buffer.
    Native,
    /// After the driver, with every driver.
    Generic,
    /// On the NIC.
    Offloaded,
    Several,
}

/// `xdp-features` of the netdev family (Linux 6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct XdpFeatures {
    /// XDP_ABORTED, XDP_DROP, XDP_PASS and XDP_TX.
    pub basic: bool,
    /// XDP_REDIRECT from its programs.
    pub redirect: bool,
    /// Redirected frames are sent (ndo_xdp_xmit). A veth supports this while its peer has NAPI: GRO
    /// or a program of its own.
    pub transmit: bool,
}

impl XdpFeatures {
    fn of(bits: u64) -> Self {
        let has = |bit| bits & bit != 0;
        XdpFeatures { basic: has(BASIC), redirect: has(REDIRECT), transmit: has(TRANSMIT) }
    }
}

/// The XDP state of the interface with this name and index, in the calling thread's network
/// namespace. Values that the kernel is too old to report are unknown.
pub fn xdp_state(host: &Host, interface: &str, index: u32) -> Result<XdpState, HostError> {
    let attached = xdp_attached(host, interface, index)?;
    let features = xdp_features(host, interface, index);
    let driver = host.driver(interface).map(|driver| driver.name).into();
    Ok(XdpState { attached, features, driver })
}

/// `None` without a program.
pub fn xdp_attached(host: &Host, interface: &str, index: u32) -> Result<Option<AttachedXdp>, HostError> {
    let operation = format!("reading the XDP program of {interface}");
    host.call(&format!("xdp/{interface}/attached"), &operation, || {
        link_message(index, Vec::new()).map(|link| read_attached(&link))
    })
}

pub fn xdp_features(host: &Host, interface: &str, index: u32) -> Known<XdpFeatures> {
    let operation = format!("reading the XDP features of {interface} (Linux 6.3)");
    host.call(&format!("xdp/{interface}/features"), &operation, || features(index)).into()
}

fn read_attached(link: &LinkMessage) -> Option<AttachedXdp> {
    let xdp = link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::Xdp(xdp) => Some(xdp),
        _ => None,
    })?;
    let mode = xdp.iter().find_map(|item| match item {
        LinkXdp::Attached(XdpAttached::Driver) => Some(XdpAttachKind::Native),
        LinkXdp::Attached(XdpAttached::SocketBuffer) => Some(XdpAttachKind::Generic),
        LinkXdp::Attached(XdpAttached::Hardware) => Some(XdpAttachKind::Offloaded),
        LinkXdp::Attached(XdpAttached::Multiple) => Some(XdpAttachKind::Several),
        _ => None,
    })?;
    let id = xdp.iter().find_map(|item| match item {
        LinkXdp::ProgId(id) => Some(*id),
        _ => None,
    });
    Some(AttachedXdp { id, mode })
}

fn features(index: u32) -> io::Result<XdpFeatures> {
    let device = RequestAttributes::default().u32(DEVICE_INDEX, index);
    let body = GenericFamily::open("netdev")?.request(GET_DEVICE, &device)?;
    let value = attribute(&body, DEVICE_FEATURES).and_then(|value| value.first_chunk().copied());
    value
        .map(|bytes| XdpFeatures::of(u64::from_ne_bytes(bytes)))
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attached_xdp_program_is_read_with_id_and_mode() {
        let mut link = LinkMessage::default();
        assert_eq!(read_attached(&link), None);
        link.attributes = vec![LinkAttribute::Xdp(vec![LinkXdp::Attached(XdpAttached::None)])];
        assert_eq!(read_attached(&link), None);
        link.attributes =
            vec![LinkAttribute::Xdp(vec![LinkXdp::Attached(XdpAttached::Driver), LinkXdp::ProgId(17)])];
        assert_eq!(read_attached(&link), Some(AttachedXdp { id: Some(17), mode: XdpAttachKind::Native }));
    }

    #[test]
    fn loopback_has_no_native_xdp_and_missing_interfaces_are_errors() {
        let state = xdp_state(&Host::live(), "lo", 1).expect("every host has a loopback");
        if let Known::Value(features) = state.features {
            assert!(!features.transmit && !features.basic);
        }
        assert!(xdp_state(&Host::scripted::<String, String>([]), "lo", 1).is_err());
        assert!(xdp_state(&Host::live(), "none", u32::MAX).is_err());
    }
}
