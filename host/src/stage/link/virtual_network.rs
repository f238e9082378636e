//! The network of virtual machines and containers: bridges, taps, veth pairs, vhost threads,
//! virtual functions.

mod functions;
mod observe;
mod owners;
pub(in crate::stage) mod rules;
#[cfg(test)]
pub(crate) mod tests;
mod vhost;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use strum::Display;

use crate::{CpuSet, Known};

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct VirtualNetwork {
    /// Interfaces without a device that belong to a virtual machine, a container or a bridge.
    pub ports: Vec<VirtualPort>,
    /// Kernel threads that copy the packets of virtual machines (`vhost-PID`).
    pub vhost: Vec<VhostThread>,
    /// Virtual functions of the interfaces in scope.
    pub functions: Vec<VirtualFunction>,
    /// How many virtual functions each physical function describes, by interface.
    pub described_functions: BTreeMap<String, Known<usize>>,
    /// Whether an IOMMU is in use (`/sys/class/iommu`); `None` if the kernel has no support.
    pub iommu: Option<bool>,
    /// `net.bridge.bridge-nf-call-iptables`; `None` without br_netfilter.
    pub bridge_netfilter: Option<bool>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct VirtualPort {
    pub interface: String,
    pub kind: PortKind,
    pub index: Option<u32>,
    /// Of a veth: the index of its other end, in that end's network namespace.
    pub peer: Option<u32>,
    pub up: bool,
    /// The bridge, bond or Open vSwitch datapath (`ovs-system`) that it is a port of.
    pub master: Option<String>,
    /// Whether a tap was created with `IFF_MULTI_QUEUE`, so that it can have several queues.
    pub multi_queue: bool,
    pub receive_queues: u32,
    /// The virtual machine or container on its other side; `None` if it is not found.
    pub owner: Option<PortOwner>,
    /// `rx_packets`, `tx_packets`, `rx_dropped`, `tx_dropped`, seen from this host.
    pub totals: BTreeMap<String, u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Display)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum PortKind {
    Bridge,
    Tap,
    Macvtap,
    Veth,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortOwner {
    pub pid: u32,
    /// The virtual machine's name (`-name` of QEMU), or that of the process.
    pub name: String,
    /// In cgroup v2, such as `/system.slice/docker-3f2a.scope`.
    pub cgroup: Option<String>,
    /// Its network namespace (`net:[4026532281]`).
    pub network: Option<String>,
    /// Threads `CPU N/KVM` of QEMU; `None` if threads have no such names.
    pub virtual_cpus: Option<u32>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct VhostThread {
    pub tid: u32,
    /// The process of the virtual machine.
    pub pid: u32,
    /// In ticks of `USER_HZ`.
    pub system_ticks: u64,
    pub allowed: Known<CpuSet>,
    pub last_cpu: Option<u32>,
    /// The node of that CPU; `None` if it is unknown.
    pub node: Option<u32>,
}

/// A virtual function of SR-IOV, by what its physical function reports.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct VirtualFunction {
    /// Of the physical function.
    pub interface: String,
    pub number: u32,
    /// On the PCI bus.
    pub device: Option<String>,
    /// `vfio-pci` for one in a virtual machine; `None` without a driver.
    pub driver: Option<String>,
    /// Its interface on this host.
    pub interface_here: Option<String>,
    pub address: Option<String>,
    pub vlan: Option<u32>,
    /// The remaining values are `None` if the driver does not report them.
    pub trusted: Option<bool>,
    pub spoof_check: Option<bool>,
    pub minimum_megabits_per_second: Option<u32>,
    /// 0 for no limit.
    pub maximum_megabits_per_second: Option<u32>,
}

/// `web1 (6001), machine-qemu-web1.scope`.
impl fmt::Display for PortOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.pid)?;
        let group = self.cgroup.as_deref().and_then(|path| path.rsplit('/').next());
        group.filter(|name| !name.is_empty()).map_or(Ok(()), |name| write!(f, ", {name}"))
    }
}

impl VirtualNetwork {
    pub fn port(&self, interface: &str) -> Option<&VirtualPort> {
        self.ports.iter().find(|port| port.interface == interface)
    }
}

impl VirtualPort {
    pub fn total(&self, name: &str) -> Option<u64> {
        self.totals.get(name).copied()
    }
}
