//! The receiver of M. Majkowski, "How to receive a million packets per second" (Cloudflare, 2015), with two threads on
//! one socket and one sender: one flow, or on this NIC one pair of addresses, fills one receive queue.
//!
//! Published are CPUs, NIC, its 11 queues, the hash on addresses only, what each queue and `rx_nodesc_drop_cnt` took a
//! second. Kernel, the rate of `RcvbufErrors` and where interrupts go are not, and chosen.

use std::collections::BTreeMap;

use super::{Specimen, sysctls};
use crate::specimen::{
    Cpu, CpuTimes, Cpus, Ethtool, Hashed, Interrupt, Kernel, Listener, Machine, Netfilter, Nic, Process,
    RECVFROM, ReceiveQueue, Softnet, Thread, TransmitQueue, Tree, UdpCounts, UdpSocket,
};

const NIC: &str = "eth2";
const CPUS: u32 = 24;
const QUEUES: u32 = 11;
/// The queue that takes all.
const BUSY: usize = 4;
const KERNEL: Kernel = Kernel { major: 3, minor: 18, release: "3.18.14" };
const PORT: u16 = 4321;
const SERVER: u32 = 3021;
const INODE: u64 = 20_404;
const SECONDS: u64 = 10;
/// Packets a second each queue takes in.
const QUEUE_RATE: [u64; 11] = [8, 0, 0, 1, 355_200, 0, 0, 1, 0, 0, 0];
/// Packets a second for which there was no descriptor.
const NO_DESCRIPTOR_RATE: u64 = 451_300;
/// Of the packets that reach the socket, those a second for which its buffer is full.
const BUFFER_FULL_RATE: u64 = 123_800;

pub(super) fn million_packets() -> Specimen {
    let mut first = machine();
    add(&mut first, 60);
    first.uptime_centiseconds = 100 * 90_000;
    for times in &mut first.times {
        times.idle = 100 * 90_000 - times.user - times.system - times.softirq;
    }
    let mut later = first.clone();
    add(&mut later, SECONDS);
    later.uptime_centiseconds += 100 * SECONDS;
    Specimen {
        name: "million-packets",
        about: "2 x 6 cores with hyper-threading, sfc with 11 queues hashing on addresses: one queue takes everything",
        first,
        later: Some(later),
    }
}

/// Cores 0 to 5 are on node 0, 6 to 11 on node 1; CPU n + 12 is the other thread of core n.
pub(super) fn machine() -> Machine {
    let cpu = |cpu: u32| Cpu { cpu, node: u32::from(cpu % 12 >= 6), core: cpu % 6 };
    Machine {
        kernel: KERNEL,
        uptime_centiseconds: 0,
        cpus: Cpus {
            all: (0..CPUS).map(cpu).collect(),
            model: "Intel(R) Xeon(R) CPU E5-2620 0 @ 2.00GHz",
            hypervisor: false,
            governor: Some("performance"),
        },
        times: vec![CpuTimes::default(); CPUS as usize],
        softnet: vec![Softnet::default(); CPUS as usize],
        interrupts: (0..QUEUES).map(interrupt).collect(),
        nics: vec![nic()],
        sysctls: sysctls::stock(KERNEL, &[NIC], 0),
        udp: vec![UdpSocket {
            local: ([0, 0, 0, 0], PORT).into(),
            inode: INODE,
            cookie: 0x2001,
            queued_bytes: 212_480,
            receive_buffer: 212_992,
            drops: 0,
            reuseport: false,
        }],
        tcp: vec![Listener { local: ([0, 0, 0, 0], 22).into(), inode: 9_100, cookie: 0x11 }],
        udp_counts: UdpCounts::default(),
        netfilter: Netfilter { modules: vec![("sfc", 0)], ..Netfilter::default() },
        processes: vec![ssh_server(), receiver()],
        product: ("Example", "Server"),
        audit: 0,
        also: Tree::default(),
    }
}

fn add(machine: &mut Machine, seconds: u64) {
    for (queue, rate) in QUEUE_RATE.iter().enumerate() {
        let packets = rate * seconds;
        machine.interrupts[queue].handled[queue] += packets / 40;
        let softnet = &mut machine.softnet[queue];
        softnet.processed += u32::try_from(packets).unwrap_or(u32::MAX);
        softnet.net_rx += packets / 40;
    }
    for (cpu, times) in machine.times.iter_mut().enumerate() {
        let (system, softirq) = match cpu {
            BUSY => (0, 98),
            7 | 8 => (85, 0),
            _ => (0, 0),
        };
        times.user += seconds;
        times.system += system * seconds;
        times.softirq += softirq * seconds;
        times.idle += (99 - system - softirq) * seconds;
    }
    for thread in &mut machine.processes[1].threads {
        thread.user += seconds;
        thread.system += 85 * seconds;
    }
    let received = QUEUE_RATE.iter().sum::<u64>() * seconds;
    let lost = BUFFER_FULL_RATE * seconds;
    machine.udp_counts.in_datagrams += received - lost;
    machine.udp_counts.in_errors += lost;
    machine.udp_counts.receive_buffer_errors += lost;
    machine.udp[0].drops += u32::try_from(lost).unwrap_or(u32::MAX);
    let missed = NO_DESCRIPTOR_RATE * seconds;
    let nic = &mut machine.nics[0];
    for (name, count) in [("rx_packets", received), ("rx_bytes", received * 74), ("rx_dropped", missed)] {
        *nic.totals.entry(name).or_default() += count;
    }
    let statistics = &mut nic.ethtool.statistics;
    for (name, count) in [("rx_packets", received + missed), ("rx_nodesc_drop_cnt", missed)] {
        *statistics.entry(name.to_owned()).or_default() += count;
    }
    for (queue, rate) in QUEUE_RATE.iter().enumerate() {
        *statistics.entry(format!("rx-{queue}.rx_packets")).or_default() += rate * seconds;
    }
}

fn interrupt(queue: u32) -> Interrupt {
    Interrupt {
        irq: 90 + queue,
        chip: "IR-PCI-MSI".into(),
        hardware: queue,
        name: format!("{NIC}-{queue}"),
        affinity: vec![queue],
        effective: queue,
        hint: vec![],
        node: 0,
        handled: vec![0; CPUS as usize],
    }
}

fn nic() -> Nic {
    Nic {
        name: NIC,
        index: 4,
        pci: "pci0000:00/0000:00:02.0/0000:05:00.0",
        virtio: None,
        speed: Some(10_000),
        node: 0,
        irqs: (90..90 + QUEUES).collect(),
        receive: vec![ReceiveQueue::default(); QUEUES as usize],
        transmit: (0..QUEUES).map(transmit).collect(),
        totals: BTreeMap::new(),
        virtual_functions: None,
        ethtool: Ethtool {
            driver: ["sfc", "4.0", "3.2.1.6122", "0000:05:00.0"],
            // The driver tells its channels since Linux 4.17.
            channels: None,
            rings: Some([1024, 1024, 4096, 4096]),
            interrupt_after: Some(60),
            gro: true,
            table: Some((0..128).map(|entry| entry % QUEUES).collect()),
            udp_hash: Some(Hashed::Addresses),
            table_queues: Some(QUEUES),
            statistics: BTreeMap::new(),
            queue_packets: None,
            discipline: "pfifo_fast",
        },
    }
}

/// A transmit queue a core; that of core 10 has core 11 as well.
fn transmit(queue: u32) -> TransmitQueue {
    let xps = match queue {
        10 => vec![10, 11, 22, 23],
        _ => vec![queue, queue + 12],
    };
    TransmitQueue { xps, limit: 0 }
}

fn receiver() -> Process {
    let thread = |number: u32| Thread {
        tid: SERVER + number,
        allowed: (0..CPUS).collect(),
        last_cpu: 7 + number,
        user: 0,
        system: 0,
        call: Some((RECVFROM, 3)),
    };
    Process {
        pid: SERVER,
        name: "udpreceiver",
        arguments: vec!["./udpreceiver", "0.0.0.0:4321"],
        threads: (0..2).map(thread).collect(),
        sockets: vec![INODE],
    }
}

fn ssh_server() -> Process {
    let thread = Thread {
        tid: 1020,
        allowed: (0..CPUS).collect(),
        last_cpu: 13,
        user: 1,
        system: 2,
        call: Some((23, 7)),
    };
    Process {
        pid: 1020,
        name: "sshd",
        arguments: vec!["/usr/sbin/sshd", "-D"],
        threads: vec![thread],
        sockets: vec![9_100],
    }
}
