//! Interfaces: `/sys/class/net`, and the answers to ethtool.

use std::collections::BTreeMap;

use crate::specimen::cpus::mask;
use crate::specimen::{Ethtool, Kernel, Tree};

/// An interface with a device behind it.
#[derive(Debug, Clone)]
pub struct Nic {
    pub name: &'static str,
    pub index: u32,
    /// Its place on the PCI bus, below `/sys/devices`: `pci0000:00/0000:00:03.0/0000:04:00.0`.
    pub pci: &'static str,
    /// Its virtio device, below the PCI device; none for hardware.
    pub virtio: Option<&'static str>,
    /// Megabits a second; none where it tells none.
    pub speed: Option<u32>,
    /// The NUMA node of its device, -1 for none.
    pub node: i32,
    pub irqs: Vec<u32>,
    /// Receive queues in use.
    pub receive: Vec<ReceiveQueue>,
    /// Transmit queues in use.
    pub transmit: Vec<TransmitQueue>,
    /// Packets and bytes, by name in `/sys/class/net/IF/statistics`; what is not named is zero.
    pub totals: BTreeMap<&'static str, u64>,
    /// Virtual functions there can be and are; none where the device has none.
    pub virtual_functions: Option<(u32, u32)>,
    /// What its driver tells.
    pub ethtool: Ethtool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReceiveQueue {
    /// The CPUs of RPS.
    pub rps: Vec<u32>,
    /// Entries of its flow table.
    pub flows: u32,
}

/// A transmit queue.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TransmitQueue {
    /// The CPUs of XPS.
    pub xps: Vec<u32>,
    /// Bytes that byte queue limits let it hold.
    pub limit: u64,
}

const TOTALS: [&str; 13] = [
    "rx_bytes",
    "rx_packets",
    "rx_errors",
    "rx_dropped",
    "rx_fifo_errors",
    "rx_missed_errors",
    "rx_over_errors",
    "tx_bytes",
    "tx_packets",
    "tx_errors",
    "tx_dropped",
    "tx_fifo_errors",
    "collisions",
];

impl Nic {
    pub(crate) fn write(&self, tree: &mut Tree, kernel: Kernel, cpus: usize) {
        let path = format!("/sys/class/net/{}", self.name);
        tree.line(format!("{path}/address"), format!("02:00:00:00:00:{:02x}", self.index));
        tree.line(format!("{path}/flags"), "0x1003");
        tree.line(format!("{path}/ifindex"), self.index);
        tree.line(format!("{path}/iflink"), self.index);
        tree.line(format!("{path}/mtu"), 1500);
        tree.line(format!("{path}/operstate"), "up");
        tree.line(format!("{path}/carrier"), 1);
        tree.line(format!("{path}/tx_queue_len"), 1000);
        tree.line(format!("{path}/type"), 1);
        match self.speed {
            Some(speed) => tree.line(format!("{path}/speed"), speed),
            // virtio_net tells -1 for SPEED_UNKNOWN.
            None => tree.line(format!("{path}/speed"), -1),
        }
        if kernel.at_least(3, 19) {
            tree.line(format!("{path}/gro_flush_timeout"), 0);
        }
        if kernel.at_least(5, 8) {
            tree.line(format!("{path}/napi_defer_hard_irqs"), 0);
        }
        if kernel.at_least(5, 12) {
            tree.line(format!("{path}/threaded"), 0);
        }
        for name in TOTALS {
            tree.line(format!("{path}/statistics/{name}"), self.totals.get(name).copied().unwrap_or(0));
        }
        self.write_queues(tree, kernel, cpus, &path);
        self.write_device(tree, &path);
        let sent = self.totals.get("tx_packets").copied().unwrap_or(0);
        for (key, answer) in self.ethtool.answers(self.name, self.transmit.len(), sent) {
            tree.call(&key, &answer);
        }
    }

    fn write_queues(&self, tree: &mut Tree, kernel: Kernel, cpus: usize, path: &str) {
        for (number, queue) in self.receive.iter().enumerate() {
            let path = format!("{path}/queues/rx-{number}");
            tree.line(format!("{path}/rps_cpus"), mask(&queue.rps, cpus));
            tree.line(format!("{path}/rps_flow_cnt"), queue.flows);
        }
        for (number, queue) in self.transmit.iter().enumerate() {
            let place = format!("{path}/queues/tx-{number}");
            // Reading it fails with ENOENT where there is one queue (xps_cpus_show in net/core/net-sysfs.c).
            if self.transmit.len() > 1 {
                tree.line(format!("{place}/xps_cpus"), mask(&queue.xps, cpus));
                if kernel.at_least(4, 18) {
                    tree.line(format!("{place}/xps_rxqs"), mask(&[], self.receive.len()));
                }
            }
            tree.line(format!("{place}/tx_timeout"), 0);
            tree.line(format!("{place}/tx_maxrate"), 0);
            tree.line(format!("{place}/byte_queue_limits/limit"), queue.limit);
            tree.line(format!("{place}/byte_queue_limits/limit_max"), 1_879_048_192_u64);
            tree.line(format!("{place}/byte_queue_limits/inflight"), 0);
        }
    }

    fn write_device(&self, tree: &mut Tree, path: &str) {
        let [driver, _, _, slot] = self.ethtool.driver;
        let bus_driver = if self.virtio.is_some() { "virtio-pci" } else { driver };
        let pci = format!("/sys/devices/{}", self.pci);
        let depth = self.pci.split('/').count();
        let up = "../".repeat(depth + 1);
        tree.link(format!("/sys/bus/pci/devices/{slot}"), format!("../../../devices/{}", self.pci));
        tree.file(format!("{pci}/uevent"), format!("DRIVER={bus_driver}\nPCI_SLOT_NAME={slot}\n"));
        tree.line(format!("{pci}/numa_node"), self.node);
        for irq in &self.irqs {
            tree.line(format!("{pci}/msi_irqs/{irq}"), "msix");
        }
        if let Some((total, active)) = self.virtual_functions {
            tree.line(format!("{pci}/sriov_totalvfs"), total);
            tree.line(format!("{pci}/sriov_numvfs"), active);
        }
        tree.link(format!("{pci}/driver"), format!("{up}bus/pci/drivers/{bus_driver}"));
        tree.link(format!("{pci}/subsystem"), format!("{up}bus/pci"));
        match self.virtio {
            None => tree.link(format!("{path}/device"), format!("../../../devices/{}", self.pci)),
            Some(virtio) => {
                tree.link(format!("{path}/device"), format!("../../../devices/{}/{virtio}", self.pci));
                tree.link(format!("{pci}/{virtio}/driver"), format!("{up}../bus/virtio/drivers/{driver}"));
                tree.link(format!("{pci}/{virtio}/subsystem"), format!("{up}../bus/virtio"));
            }
        }
    }
}
