//! The interface: driver, speed, rings, channels, offloads, SR-IOV, and hardware drops.

pub(super) mod far_node;
pub(super) mod gro;
mod loss_names;
pub(super) mod loss_rules;
mod losses;
mod observe;
pub(super) mod queues;
pub(super) mod virtual_functions;
pub mod virtual_network;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::counter::Counter;
use crate::{Host, Known};

pub use crate::ethtool::{ChannelCounts, CoalesceSettings, LinkDriver, RingLengths};
pub(in crate::stage) use loss_names::xdp_counter_within;
pub(crate) use observe::is_interface_name;
pub use observe::{observe, with_devices_below};

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
    /// The bridge or Open vSwitch that it is a port of, directly or through a bond or VLAN.
    pub bridge: Known<Option<BridgePort>>,
    /// The driver's statistics (`ethtool -S`); `None` without any.
    pub statistics: Known<Option<BTreeMap<String, u64>>>,
    /// `/sys/class/net/IF/statistics`.
    pub totals: Known<BTreeMap<String, u64>>,
    /// Whether a link directly below this one, such as the port of a bond, is observed, too.
    #[serde(skip)]
    pub has_links_below: bool,
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

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct BridgePort {
    /// Ports of the bridge that are tap interfaces, usually of virtual machines.
    pub taps: Vec<String>,
    /// The directory that lists the ports.
    pub read_from: String,
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

    /// A counter that the kernel has for every interface.
    pub fn total(&self, name: &str) -> Option<u64> {
        self.totals.value()?.get(name).copied()
    }

    /// Whether most of its packets come by a virtual function, an interface of its own whose packets
    /// Hyper-V's driver adds to its totals (`netvsc_get_stats64`, drivers/net/hyperv/netvsc_drv.c,
    /// Linux 6.18).
    pub(in crate::stage) fn receives_by_vf(&self) -> bool {
        let driver = self.driver.value().and_then(Option::as_ref);
        let statistics = self.statistics.value().and_then(Option::as_ref);
        let vf_packets = statistics.and_then(|statistics| statistics.get("vf_rx_packets"));
        driver.is_some_and(|driver| driver.name == "hv_netvsc")
            && vf_packets.zip(self.total("rx_packets")).is_some_and(|(by_vf, all)| *by_vf > all / 2)
    }

    /// Received, sent and lost packets.
    pub fn counters(&self) -> Vec<Counter> {
        losses::counters_of_link(self)
    }

    /// Reads only the counters again.
    pub fn update_counters(&mut self, host: &Host) {
        self.statistics = Known::if_supported(host.statistics(&self.interface));
        self.totals = observe::totals(host, &self.interface).into();
    }
}

#[cfg(test)]
mod rule_tests;
#[cfg(test)]
mod tests;
