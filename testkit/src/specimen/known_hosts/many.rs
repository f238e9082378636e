//! A big machine, for the time it takes to read and judge one.

use std::collections::BTreeMap;

use super::{Specimen, sysctls};
use crate::specimen::{
    Cpu, CpuTimes, Cpus, Ethtool, Hashed, Interrupt, Kernel, Machine, Netfilter, Nic, Process, RECVFROM,
    ReceiveQueue, Softnet, Thread, TransmitQueue, Tree, UdpCounts, UdpSocket,
};

const KERNEL: Kernel = Kernel { major: 6, minor: 12, release: "6.12.48" };
const NAMES: [&str; 8] = ["ens1f0", "ens1f1", "ens2f0", "ens2f1", "ens3f0", "ens3f1", "ens4f0", "ens4f1"];
const PCI: [&str; 8] = [
    "pci0000:00/0000:00:01.0/0000:01:00.0",
    "pci0000:00/0000:00:01.0/0000:01:00.1",
    "pci0000:20/0000:20:01.0/0000:21:00.0",
    "pci0000:20/0000:20:01.0/0000:21:00.1",
    "pci0000:40/0000:40:01.0/0000:41:00.0",
    "pci0000:40/0000:40:01.0/0000:41:00.1",
    "pci0000:60/0000:60:01.0/0000:61:00.0",
    "pci0000:60/0000:60:01.0/0000:61:00.1",
];

pub(super) fn specimen() -> Specimen {
    many(128, 4, 64)
}

/// A machine with this many CPUs, up to 8 interfaces and queues on each, its interrupts one a CPU in turn, and a server
/// with a steered socket and a pinned thread a CPU.
///
/// # Panics
/// With more interfaces than 8.
#[must_use]
pub fn many(cpus: u32, nics: usize, queues: u32) -> Specimen {
    assert!(nics <= NAMES.len(), "no more than {} interfaces", NAMES.len());
    let first = machine(cpus, nics, queues);
    let mut later = first.clone();
    later.uptime_centiseconds += 1000;
    for (times, softnet) in later.times.iter_mut().zip(&mut later.softnet) {
        times.softirq += 300;
        times.idle += 700;
        softnet.processed += 100_000;
        softnet.net_rx += 20_000;
    }
    Specimen { name: "many", about: "128 CPUs, 4 interfaces of 64 queues", first, later: Some(later) }
}

fn machine(cpus: u32, nics: usize, queues: u32) -> Machine {
    let half = cpus.div_ceil(2);
    let count = usize::try_from(cpus).unwrap_or(usize::MAX);
    let vectors = (0..nics).flat_map(|nic| (0..queues).map(move |queue| interrupt(nic, queue, queues, cpus)));
    Machine {
        kernel: KERNEL,
        uptime_centiseconds: 8_640_000,
        cpus: Cpus {
            all: (0..cpus).map(|cpu| Cpu { cpu, node: u32::from(cpu >= half), core: cpu % half }).collect(),
            model: "AMD EPYC 7763 64-Core Processor",
            hypervisor: false,
            governor: Some("performance"),
        },
        times: vec![CpuTimes { idle: 8_000_000, softirq: 640_000, ..CpuTimes::default() }; count],
        softnet: vec![Softnet { processed: 4_000_000, net_rx: 900_000, ..Softnet::default() }; count],
        interrupts: vectors.collect(),
        nics: (0..nics).map(|number| nic(number, queues, cpus)).collect(),
        sysctls: sysctls::stock(KERNEL, &NAMES[..nics], 0),
        udp: (0..cpus).map(socket).collect(),
        tcp: Vec::new(),
        udp_counts: UdpCounts {
            in_datagrams: 512_000_000,
            out_datagrams: 512_000_000,
            ..UdpCounts::default()
        },
        netfilter: Netfilter { modules: vec![("mlx5_core", 0)], ..Netfilter::default() },
        processes: vec![server(cpus)],
        product: ("Example", "Server"),
        audit: 0,
        also: Tree::default(),
    }
}

fn first_irq(nic: usize, queues: u32) -> u32 {
    200 + u32::try_from(nic).unwrap_or(0) * queues
}

fn interrupt(nic: usize, queue: u32, queues: u32, cpus: u32) -> Interrupt {
    let irq = first_irq(nic, queues) + queue;
    let cpu = (irq - 200) % cpus;
    let bus = bus(nic);
    Interrupt {
        irq,
        chip: format!("IR-PCI-MSIX-{bus}"),
        hardware: queue + 1,
        name: format!("mlx5_comp{queue}@pci:{bus}"),
        affinity: vec![cpu],
        effective: cpu,
        hint: vec![cpu],
        node: home(nic),
        handled: (0..cpus).map(|other| if other == cpu { 7_000_000 } else { 3 }).collect(),
    }
}

fn nic(number: usize, queues: u32, cpus: u32) -> Nic {
    let first = first_irq(number, queues);
    let share = |queue: u32| (0..cpus).filter(|cpu| cpu % queues == queue).collect();
    Nic {
        name: NAMES[number],
        index: 2 + u32::try_from(number).unwrap_or(0),
        pci: PCI[number],
        virtio: None,
        speed: Some(100_000),
        node: home(number),
        irqs: (first..first + queues).collect(),
        receive: vec![ReceiveQueue::default(); queues as usize],
        transmit: (0..queues).map(|queue| TransmitQueue { xps: share(queue), limit: 0 }).collect(),
        totals: BTreeMap::from([("rx_packets", 512_000_000), ("tx_packets", 512_000_000)]),
        virtual_functions: Some((16, 0)),
        ethtool: Ethtool {
            driver: ["mlx5_core", "6.12.48", "22.31.1014", bus(number)],
            channels: Some([0, 0, queues, 0, 0, queues]),
            rings: Some([1024, 1024, 8192, 8192]),
            interrupt_after: Some(8),
            gro: true,
            table: Some((0..2 * queues).map(|entry| entry % queues).collect()),
            udp_hash: Some(Hashed::Ports),
            table_queues: Some(queues),
            statistics: (0..queues)
                .flat_map(queue_statistics)
                .chain([("rx_out_of_buffer".to_owned(), 0)])
                .collect(),
            queue_packets: Some((vec![8_000_000; queues as usize], vec![8_000_000; queues as usize])),
            discipline: "fq_codel",
        },
    }
}

/// mlx5 counts some twenty things a queue.
fn queue_statistics(queue: u32) -> impl Iterator<Item = (String, u64)> {
    const RX: [&str; 12] = [
        "packets",
        "bytes",
        "csum_complete",
        "csum_none",
        "lro_packets",
        "gro_packets",
        "wqe_err",
        "buff_alloc_err",
        "cache_reuse",
        "xdp_drop",
        "congst_umr",
        "arfs_err",
    ];
    const TX: [&str; 8] =
        ["packets", "bytes", "tso_packets", "csum_partial", "stopped", "dropped", "wake", "cqe_err"];
    let count = |name: &str| if name == "packets" { 8_000_000 } else { 0 };
    let receive = RX.iter().map(move |name| (format!("rx{queue}_{name}"), count(name)));
    receive.chain(TX.iter().map(move |name| (format!("tx{queue}_{name}"), count(name))))
}

/// The node of an interface: with as many queues as half the CPUs, that to whose CPUs its interrupts go.
fn home(nic: usize) -> i32 {
    i32::from(nic % 2 == 1)
}

fn bus(nic: usize) -> &'static str {
    PCI[nic].rsplit('/').next().unwrap_or_default()
}

fn socket(number: u32) -> UdpSocket {
    UdpSocket {
        local: ([0, 0, 0, 0], 53).into(),
        inode: 40_000 + u64::from(number),
        cookie: 0x4000 + u64::from(number),
        queued_bytes: 0,
        receive_buffer: 212_992,
        drops: 0,
        reuseport: true,
    }
}

fn server(cpus: u32) -> Process {
    let thread = |number: u32| Thread {
        tid: 5000 + number,
        allowed: vec![number],
        last_cpu: number,
        user: 9_000,
        system: 70_000,
        call: Some((RECVFROM, 3 + number)),
    };
    Process {
        pid: 5000,
        name: "server",
        arguments: vec!["/usr/sbin/server"],
        threads: (0..cpus).map(thread).collect(),
        sockets: (0..cpus).map(|number| 40_000 + u64::from(number)).collect(),
    }
}
