//! The interface: driver, speed, rings, channels, offloads, SR-IOV, and what the hardware drops.

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

/// The stage.
pub(super) const STAGE: StageInfo = StageInfo {
    name: StageName::Link,
    explain: "The NIC puts each frame into a ring of buffers that its driver gave it, a ring a receive queue. Where \
              rings are short, queues few, or the NIC far from the CPUs, packets end here, and only its own counters \
              show it.",
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

/// An interface.
#[derive(Debug, Clone, Serialize)]
pub struct LinkState {
    /// Its name.
    pub interface: String,
    /// Its index; unknown in trees that do not say.
    pub index: Known<u32>,
    /// Whether it is up (`operstate` is not `down`).
    pub up: Known<bool>,
    /// Its driver; none where there is none, as for the loopback.
    pub driver: Known<Option<LinkDriver>>,
    /// What is behind it.
    pub device: Known<DeviceKind>,
    /// Nominal rate; none where the interface has none, as a veth or an interface that is down.
    pub speed_bits_per_second: Known<Option<u64>>,
    /// Largest packet in bytes.
    pub mtu_bytes: Known<u32>,
    /// NUMA node of its device; none where it belongs to none.
    pub node: Known<Option<u32>>,
    /// Receive queues in use.
    pub receive_queues: Known<u32>,
    /// Transmit queues in use.
    pub transmit_queues: Known<u32>,
    /// Channels (`ethtool -l`); none where the driver has none.
    pub channels: Known<Option<ChannelCounts>>,
    /// Rings (`ethtool -g`); none where the driver has none.
    pub rings: Known<Option<RingLengths>>,
    /// Interrupt moderation (`ethtool -c`); none where the driver has none.
    pub coalesce: Known<Option<CoalesceSettings>>,
    /// Features by the name `ethtool -k` gives them, and whether they are on.
    pub features: Known<BTreeMap<String, bool>>,
    /// Virtual functions; none where the device can have none and is none.
    pub sriov: Known<Option<SriovState>>,
    /// The bridge it is a port of; none where it is a port of none.
    pub bridge: Known<Option<BridgePort>>,
    /// The driver's own statistics (`ethtool -S`); none where it has none.
    pub statistics: Known<Option<BTreeMap<String, u64>>>,
    /// The counters of `/sys/class/net/IF/statistics`.
    pub totals: Known<BTreeMap<String, u64>>,
}

/// A driver (`ethtool -i`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkDriver {
    /// Its name.
    pub name: String,
    /// Its version; in-tree drivers give the kernel's.
    #[serde(default)]
    pub version: String,
    /// Version of the NIC's firmware.
    #[serde(default)]
    pub firmware: String,
    /// Where the device is, such as `0000:01:00.0`.
    #[serde(default)]
    pub bus: String,
}

/// What is behind an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceKind {
    /// A device on PCI or another bus of hardware.
    Hardware,
    /// A virtio device.
    Virtio,
    /// Nothing but software: veth, tun, bridge.
    Software,
}

/// Channels: interrupts with their queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ChannelCounts {
    /// Receive-only channels in use.
    pub rx: u32,
    /// Transmit-only channels in use.
    pub tx: u32,
    /// Channels for both in use.
    pub combined: u32,
    /// How many of each the device can have.
    pub rx_max: u32,
    /// See `rx_max`.
    pub tx_max: u32,
    /// See `rx_max`.
    pub combined_max: u32,
}

/// Lengths of rings, in descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RingLengths {
    /// Receive.
    pub rx: u32,
    /// Transmit.
    pub tx: u32,
    /// How long they can be.
    pub rx_max: u32,
    /// See `rx_max`.
    pub tx_max: u32,
}

/// Interrupt moderation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CoalesceSettings {
    /// Microseconds until an interrupt after a packet was received; none where the driver does not say.
    pub rx_usecs: Option<u32>,
    /// Packets until an interrupt.
    pub rx_frames: Option<u32>,
    /// Microseconds until an interrupt after a packet was sent.
    pub tx_usecs: Option<u32>,
    /// Packets until an interrupt.
    pub tx_frames: Option<u32>,
    /// Whether the driver adapts the receive side to load.
    pub adaptive_rx: Option<bool>,
    /// Whether it adapts the transmit side.
    pub adaptive_tx: Option<bool>,
}

/// A bridge that an interface is a port of.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct BridgePort {
    /// Its other ports that are tap interfaces, as virtual machines have them.
    pub taps: Vec<String>,
}

/// Virtual functions of a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SriovState {
    /// Whether this is a virtual function itself (it has a `physfn`).
    pub is_virtual_function: bool,
    /// How many it can have; none for a virtual function.
    pub total: Option<u32>,
    /// How many it has.
    pub active: Option<u32>,
    /// Interfaces on this host that are its virtual functions.
    pub interfaces: Vec<String>,
}

impl LinkState {
    /// Whether it is known to be up.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.up == Known::Value(true)
    }
}

#[cfg(test)]
mod rule_tests;
#[cfg(test)]
mod tests;
