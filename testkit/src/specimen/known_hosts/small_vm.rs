//! A small virtual machine as a cloud hands it out: nothing is wrong with it.

use std::collections::BTreeMap;

use super::{Specimen, sysctls};
use crate::specimen::{
    Cpu, CpuTimes, Cpus, EPOLL_WAIT, Ethtool, Hashed, Interrupt, Kernel, Listener, Machine, Netfilter, Nic,
    Process, ReceiveQueue, Softnet, Thread, TransmitQueue, Tree, UdpCounts, UdpSocket,
};

const NIC: &str = "ens3";
const KERNEL: Kernel = Kernel { major: 6, minor: 1, release: "6.1.0-40-cloud-amd64" };
const SECONDS: u64 = 10;

pub(super) fn small_vm() -> Specimen {
    let first = machine();
    let mut later = first.clone();
    later.uptime_centiseconds += 100 * SECONDS;
    for times in &mut later.times {
        times.user += 2;
        times.system += 1;
        times.idle += 100 * SECONDS - 3;
    }
    for softnet in &mut later.softnet {
        softnet.processed += 31;
        softnet.net_rx += 30;
    }
    later.udp_counts.in_datagrams += 1;
    *later.nics[0].totals.entry("rx_packets").or_default() += 62;
    Specimen { name: "small-vm", about: "2 CPUs, virtio with 2 queues, quiet", first, later: Some(later) }
}

/// As it was at the first reading.
pub(super) fn machine() -> Machine {
    Machine {
        kernel: KERNEL,
        uptime_centiseconds: 100 * 432_000,
        cpus: Cpus {
            all: (0..2).map(|cpu| Cpu { cpu, node: 0, core: cpu }).collect(),
            model: "Intel Xeon Processor (Cascadelake)",
            hypervisor: true,
            governor: None,
        },
        times: vec![
            CpuTimes { user: 90_000, system: 60_000, idle: 43_040_000, softirq: 9_000, steal: 1_000 };
            2
        ],
        softnet: vec![
            Softnet { processed: 2_210_000, net_rx: 2_100_000, net_tx: 900, ..Softnet::default() },
            Softnet { processed: 1_990_000, net_rx: 1_900_000, net_tx: 800, ..Softnet::default() },
        ],
        interrupts: interrupts(),
        nics: vec![nic()],
        sysctls: sysctls::stock(KERNEL, &[NIC], 2),
        udp: vec![
            UdpSocket {
                local: ([127, 0, 0, 1], 323).into(),
                inode: 15_001,
                cookie: 3,
                queued_bytes: 0,
                receive_buffer: 212_992,
                drops: 0,
                reuseport: false,
            },
            UdpSocket {
                local: ([0, 0, 0, 0], 68).into(),
                inode: 15_002,
                cookie: 4,
                queued_bytes: 0,
                receive_buffer: 212_992,
                drops: 0,
                reuseport: false,
            },
        ],
        tcp: vec![
            Listener { local: ([0, 0, 0, 0], 22).into(), inode: 15_003, cookie: 5 },
            Listener { local: ([0; 8], 22).into(), inode: 15_004, cookie: 6 },
        ],
        udp_counts: UdpCounts {
            in_datagrams: 60_000,
            out_datagrams: 60_100,
            no_ports: 12,
            ..UdpCounts::default()
        },
        netfilter: Netfilter {
            modules: vec![("virtio_net", 0), ("net_failover", 1)],
            ..Netfilter::default()
        },
        processes: vec![
            daemon(412, "dhclient", vec!["dhclient", "-4", NIC], vec![15_002]),
            daemon(455, "sshd", vec!["sshd: /usr/sbin/sshd -D [listener]"], vec![15_003, 15_004]),
            daemon(478, "chronyd", vec!["/usr/sbin/chronyd", "-F", "1"], vec![15_001]),
        ],
        product: ("QEMU", "Standard PC (Q35 + ICH9, 2009)"),
        audit: 0,
        also: Tree::default(),
    }
}

fn daemon(pid: u32, name: &'static str, arguments: Vec<&'static str>, sockets: Vec<u64>) -> Process {
    let thread = Thread {
        tid: pid,
        allowed: vec![0, 1],
        last_cpu: pid % 2,
        user: 100,
        system: 80,
        call: Some((EPOLL_WAIT, 9)),
    };
    Process { pid, name, arguments, threads: vec![thread], sockets }
}

/// `virtio0` is the NIC; its vectors are those of its PCI device.
fn interrupts() -> Vec<Interrupt> {
    let vector = |number: u32, name: &str, cpu: u32, handled: u64| Interrupt {
        irq: 24 + number,
        chip: "PCI-MSI".into(),
        hardware: 49_152 + number,
        name: format!("virtio0-{name}"),
        affinity: if name == "config" { vec![0, 1] } else { vec![cpu] },
        effective: cpu,
        // virtio_net hints the CPU of each queue pair (virtnet_set_affinity).
        hint: if name == "config" { vec![] } else { vec![cpu] },
        node: -1,
        handled: if cpu == 0 { vec![handled, 0] } else { vec![0, handled] },
    };
    vec![
        vector(0, "config", 0, 0),
        vector(1, "input.0", 0, 1_000_000),
        vector(2, "output.0", 0, 400_000),
        vector(3, "input.1", 1, 900_000),
        vector(4, "output.1", 1, 390_000),
    ]
}

fn nic() -> Nic {
    Nic {
        name: NIC,
        index: 2,
        pci: "pci0000:00/0000:00:03.0",
        virtio: Some("virtio0"),
        speed: None,
        node: -1,
        irqs: (24..29).collect(),
        receive: vec![ReceiveQueue::default(); 2],
        transmit: (0..2).map(|cpu| TransmitQueue { xps: vec![cpu], limit: 0 }).collect(),
        totals: BTreeMap::from([
            ("rx_packets", 4_200_000),
            ("tx_packets", 3_100_000),
            ("rx_bytes", 2_900_000_000),
        ]),
        virtual_functions: None,
        ethtool: Ethtool {
            driver: ["virtio_net", "1.0.0", "", "0000:00:03.0"],
            channels: Some([0, 0, 2, 0, 0, 2]),
            rings: Some([256, 256, 256, 256]),
            interrupt_after: Some(0),
            gro: true,
            table: Some(Vec::new()),
            udp_hash: Some(Hashed::Nothing),
            table_queues: Some(2),
            statistics: [
                ("rx_queue_0_packets", 2_210_000),
                ("rx_queue_1_packets", 1_990_000),
                ("rx_queue_0_drops", 0),
            ]
            .map(|(name, count)| (name.to_owned(), count))
            .into(),
            queue_packets: None,
            discipline: "fq_codel",
        },
    }
}
