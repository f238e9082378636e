//! The machine that QEMU emulates.

use std::fmt;

use clap::ValueEnum;
use clap::builder::PossibleValue;

/// CPUs of every variant.
pub(super) const CPUS: u32 = 20;

const MEMORY_MIB: u32 = 2048;

/// The tap interface on the host's side of the guest's physical NIC, such as `igb0`.
pub(super) const TO_NIC: TapWire =
    TapWire { name: "tap0", address: [198, 18, 81, 1], guest: [198, 18, 81, 2], is_virtio: false };

/// The tap interface on the host's side of the guest's `vnet0`.
pub(super) const TO_VIRTIO: TapWire =
    TapWire { name: "tap1", address: [198, 18, 82, 1], guest: [198, 18, 82, 2], is_virtio: true };

/// All wires to the guest.
pub(super) const TAPS: [TapWire; 2] = [TO_NIC, TO_VIRTIO];

/// An Ethernet wire to the guest.
pub(super) struct TapWire {
    pub(super) name: &'static str,
    pub(super) address: [u8; 4],
    /// The address of the guest's end of the wire (guest/init).
    pub(super) guest: [u8; 4],
    /// virtio-net has one tap queue for each of its queues. The emulated NICs distribute the packets
    /// of one tap queue by their own indirection table.
    is_virtio: bool,
}

impl TapWire {
    pub(super) fn queues(&self, variant: GuestVariant) -> u32 {
        if self.is_virtio { variant.virtio_queues() } else { 1 }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum GuestVariant {
    /// 2 NUMA nodes of 10 CPUs; igb on node 1, virtio-net with 20 queues on node 0
    #[default]
    TwoNodes,
    /// 20 CPUs in one node
    OneNode,
    /// 2 NUMA nodes of 5 cores with 2 threads each
    Smt,
    /// 2 NUMA nodes, and a virtio-net of one queue
    OneQueue,
    /// 4 NUMA nodes of 5 CPUs
    FourNodes,
    /// 2 NUMA nodes; the scheduler does not use CPUs 10-19 (isolcpus)
    IsolatedCpus,
    /// 20 CPUs in one node, and a virtio-net of 4 queue pairs, as in cloud instances
    FourQueues,
    /// 20 CPUs in one node, and a vmxnet3 instead of the igb
    Vmxnet3,
    /// 20 CPUs in one node, and an e1000e instead of the igb
    E1000e,
    /// 2 NUMA nodes, and 2 virtual functions of the igb
    VirtualFunctions,
}

/// The emulated physical NIC of a guest.
pub(super) struct GuestNic {
    /// The driver's name, which is also QEMU's name of the device.
    pub(super) driver: &'static str,
    /// The interface name that guest/init sets.
    pub(super) interface: &'static str,
    /// Number of receive queues after the driver has loaded.
    pub(super) queues: u32,
}

impl fmt::Display for GuestVariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.to_possible_value();
        f.write_str(name.as_ref().map_or("a variant", PossibleValue::get_name))
    }
}

impl GuestVariant {
    pub(super) fn nodes(self) -> u32 {
        match self {
            Self::OneNode | Self::FourQueues | Self::Vmxnet3 | Self::E1000e => 1,
            Self::TwoNodes | Self::Smt | Self::OneQueue | Self::IsolatedCpus | Self::VirtualFunctions => 2,
            Self::FourNodes => 4,
        }
    }

    pub(super) fn threads(self) -> u32 {
        if self == Self::Smt { 2 } else { 1 }
    }

    pub(super) fn virtio_queues(self) -> u32 {
        match self {
            Self::OneQueue => 1,
            Self::FourQueues => 4,
            _ => CPUS,
        }
    }

    pub(super) fn nic(self) -> GuestNic {
        match self {
            Self::Vmxnet3 => GuestNic { driver: "vmxnet3", interface: "vmx0", queues: 8 },
            Self::E1000e => GuestNic { driver: "e1000e", interface: "e1000e0", queues: 1 },
            _ => GuestNic { driver: "igb", interface: "igb0", queues: 8 },
        }
    }

    // Additional arguments for the guest's kernel.
    pub(super) fn kernel_arguments(self) -> &'static str {
        if self == Self::IsolatedCpus { "isolcpus=10-19" } else { "" }
    }

    /// QEMU's arguments for processors, memory and devices.
    pub(super) fn arguments(self) -> Vec<String> {
        let mut arguments = Vec::new();
        let mut option = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
        let (nodes, threads) = (self.nodes(), self.threads());
        option("-machine", "q35".into());
        // KVM is not available on hosts that are guests themselves.
        option("-accel", "tcg,thread=multi,tb-size=512".into());
        // An AMD CPU would require another feature for threads.
        option("-cpu", "max,vendor=GenuineIntel".into());
        option("-smp", format!("{CPUS},sockets={nodes},cores={},threads={threads}", CPUS / nodes / threads));
        option("-m", format!("{MEMORY_MIB}M"));
        for node in 0..nodes {
            option("-object", format!("memory-backend-ram,id=memory{node},size={}M", MEMORY_MIB / nodes));
            option("-numa", format!("node,nodeid={node},memdev=memory{node}"));
            option("-numa", format!("cpu,node-id={node},socket-id={node}"));
            // Each node has its own root, so that a device is local to a node.
            option(
                "-device",
                format!("pxb-pcie,id=root{node},bus=pcie.0,bus_nr={},numa_node={node}", 32 * (node + 1)),
            );
        }
        for (node, other_node) in
            (0..nodes).flat_map(|node| (node + 1..nodes).map(move |other_node| (node, other_node)))
        {
            option("-numa", format!("dist,src={node},dst={other_node},val=21"));
        }
        self.interfaces(&mut option);
        arguments
    }

    fn interfaces(self, option: &mut impl FnMut(&str, String)) {
        let [nic, virtio] = TAPS;
        let last_node = self.nodes() - 1;
        option("-netdev", format!("tap,id=net0,ifname={},script=no,downscript=no,vhost=off", nic.name));
        option("-device", format!("pcie-root-port,id=port0,bus=root{last_node},chassis=1,slot=1"));
        let driver = self.nic().driver;
        option("-device", format!("{driver},netdev=net0,bus=port0,mac=52:54:00:00:00:81"));
        let queues = self.virtio_queues();
        let backend = format!("tap,id=net1,ifname={},script=no,downscript=no,vhost=off", virtio.name);
        option("-netdev", if queues == 1 { backend } else { format!("{backend},queues={queues}") });
        option("-device", "pcie-root-port,id=port1,bus=root0,chassis=2,slot=2".into());
        let device = "virtio-net-pci,netdev=net1,bus=port1,mac=52:54:00:00:00:82";
        // One interrupt per pair of queues, and the two for settings and control.
        let multi_queue_device = format!("{device},mq=on,vectors={}", 2 * queues + 2);
        option("-device", if queues == 1 { device.to_owned() } else { multi_queue_device });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variant_has_all_cpus() {
        for variant in GuestVariant::value_variants() {
            let arguments = variant.arguments();
            let smp = arguments.iter().position(|word| word == "-smp").expect("an -smp argument");
            let numbers: Vec<u32> = arguments[smp + 1]
                .split(',')
                .map(|part| part.rsplit('=').next().unwrap_or(part).parse().expect("a number"))
                .collect();
            assert_eq!(numbers[0], CPUS);
            assert_eq!(numbers[1..].iter().product::<u32>(), CPUS, "{variant:?}");
        }
    }

    #[test]
    fn one_queue_variant_has_no_multiqueue_arguments() {
        let arguments = GuestVariant::OneQueue.arguments().join(" ");
        assert!(!arguments.contains("mq=on") && !arguments.contains("queues="), "{arguments}");
    }
}
