//! The interface: driver, speed, rings, channels, offloads, SR-IOV, and hardware drops.

mod far_node;
pub(crate) mod feature_names;
mod gro;
mod loss_names;
mod loss_rules;
mod losses;
mod observe;
mod queues;
mod virtual_functions;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{StageInfo, StageName};
use crate::Known;
use crate::finding::Rule;

pub use observe::observe;

pub(super) const STAGE: StageInfo = StageInfo {
    name: StageName::Link,
    explain: "The NIC puts each frame into a ring of buffers, one ring per receive queue. If rings are \
              short, queues few, or the NIC far from the CPUs, packets are lost here, and only the NIC's own \
              counters show it.",
    rules: RULES,
    counters: losses::counters,
};

const RULES: &[Rule] = &[
    queues::SINGLE,
    queues::BELOW_CPUS,
    loss_rules::HARDWARE_DROPS,
    loss_rules::RING_SMALL,
    loss_rules::ALLOWANCE_EXCEEDED,
    gro::RULE,
    far_node::RULE,
    virtual_functions::RULE,
];

#[derive(Debug, Clone, Serialize)]
pub struct LinkState {
    pub interface: String,
    /// Unknown in trees without it.
    pub index: Known<u32>,
    /// `operstate` is not `down`.
    pub up: Known<bool>,
    /// `None` without a driver, as for the loopback.
    pub driver: Known<Option<LinkDriver>>,
    pub device: Known<DeviceKind>,
    /// Nominal rate; `None` for a veth, or an interface that is down.
    pub speed_bits_per_second: Known<Option<u64>>,
    pub mtu_bytes: Known<u32>,
    /// `None` if it belongs to no node.
    pub node: Known<Option<u32>>,
    pub receive_queues: Known<u32>,
    pub transmit_queues: Known<u32>,
    /// `ethtool -l`; `None` if the driver has none.
    pub channels: Known<Option<ChannelCounts>>,
    /// `ethtool -g`; `None` if the driver has none.
    pub rings: Known<Option<RingLengths>>,
    /// `ethtool -c`; `None` if the driver has none.
    pub coalesce: Known<Option<CoalesceSettings>>,
    /// By `ethtool -k` name.
    pub features: Known<BTreeMap<String, bool>>,
    /// `None` if the device supports none and is none.
    pub sriov: Known<Option<SriovState>>,
    /// The bridge it is a port of.
    pub bridge: Known<Option<BridgePort>>,
    /// The driver's statistics (`ethtool -S`); `None` without any.
    pub statistics: Known<Option<BTreeMap<String, u64>>>,
    /// `/sys/class/net/IF/statistics`.
    pub totals: Known<BTreeMap<String, u64>>,
}

/// `ethtool -i`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkDriver {
    pub name: String,
    /// In-tree drivers report the kernel's version.
    #[serde(default)]
    pub version: String,
    #[serde(default)]
    pub firmware: String,
    /// Such as `0000:01:00.0`.
    #[serde(default)]
    pub bus: String,
}

/// The device of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceKind {
    /// On PCI or another hardware bus.
    Hardware,
    Virtio,
    /// Without a device: veth, tun, bridge.
    Software,
}

/// Interrupts with their queues, by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ChannelCounts {
    pub rx: u32,
    pub tx: u32,
    /// Receive and transmit.
    pub combined: u32,
    /// The limits of the device.
    pub rx_max: u32,
    pub tx_max: u32,
    pub combined_max: u32,
}

/// In descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RingLengths {
    pub rx: u32,
    pub tx: u32,
    /// The limits of the device.
    pub rx_max: u32,
    pub tx_max: u32,
}

/// `None` if the driver does not report a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CoalesceSettings {
    /// Microseconds until an interrupt after a received packet.
    pub rx_usecs: Option<u32>,
    /// Packets until an interrupt.
    pub rx_frames: Option<u32>,
    /// Microseconds until an interrupt after a sent packet.
    pub tx_usecs: Option<u32>,
    /// Packets until an interrupt.
    pub tx_frames: Option<u32>,
    /// Whether the driver adapts the receive side to load.
    pub adaptive_rx: Option<bool>,
    pub adaptive_tx: Option<bool>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct BridgePort {
    /// Its other ports that are tap interfaces, usually of virtual machines.
    pub taps: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SriovState {
    /// Whether this is a virtual function itself (it has a `physfn`).
    pub is_virtual_function: bool,
    /// `None` for a virtual function.
    pub total: Option<u32>,
    pub active: Option<u32>,
    /// Interfaces on this host that are its virtual functions.
    pub interfaces: Vec<String>,
}

impl LinkState {
    pub fn is_up(&self) -> bool {
        self.up == Known::Value(true)
    }
}

#[cfg(test)]
mod rule_tests;
#[cfg(test)]
mod tests;
