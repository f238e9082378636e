//! The machine of 2016: T. Makita, "Boost UDP Transaction Performance", `LinuxCon` Japan 2016.
//!
//! What the slides show is in `published`. What they do not show is chosen so that it is no fault: the governor is
//! `performance`, no packet is lost, connection tracking is not loaded.

mod hypervisor;
mod neglected;
mod published;

use std::collections::BTreeMap;

use super::{Specimen, sysctls};
use crate::specimen::{
    Cpu, CpuTimes, Cpus, Ethtool, Hashed, Interrupt, IpTable, Kernel, Machine, Netfilter, Nic, Process,
    RECVFROM, ReceiveQueue, Softnet, Thread, TransmitQueue, Tree, UdpCounts, UdpSocket,
};
pub(super) use hypervisor::hypervisor;
pub(super) use neglected::neglected;
use published::{CPU_PERCENT, IRQ_TO_CPU, QUEUE_PACKETS, TABLE_REACH};

const NIC: &str = "ens1f0";
const CPUS: u32 = 20;
const KERNEL: Kernel = Kernel { major: 4, minor: 6, release: "4.6.3" };
/// The slides name no port.
const PORT: u16 = 10_000;
const SERVER: u32 = 4711;
const INODE: u64 = 31_337;
/// Seconds since boot at the first reading; the load took a tenth of them.
const UPTIME: u64 = 86_400;
/// Seconds between the readings.
const SECONDS: u64 = 10;

/// As it was found: 270,000 transactions a second.
pub(super) fn as_found() -> Specimen {
    let first = machine(&Way::as_found());
    let later = load(&first, &Way::as_found(), 270_000);
    Specimen {
        name: "makita-2016",
        about: "20 cores, 82599, kernel 4.6.3: one socket for 20 threads, every interrupt on one of two nodes",
        first,
        later: Some(later),
    }
}

/// After all steps but the last two, which are the server's own and hyper-threading: 5,860,000 transactions a second.
pub(super) fn fixed() -> Specimen {
    let first = machine(&Way::fixed());
    let later = load(&first, &Way::fixed(), 5_860_000);
    Specimen {
        name: "makita-2016-fixed",
        about: "the same machine after every step of the slides",
        first,
        later: Some(later),
    }
}

/// What the steps of the slides change.
struct Way {
    irq_to_cpu: [u32; 20],
    /// The second CPU of RPS for a queue, where it has one.
    rps: BTreeMap<usize, u32>,
    sockets: u64,
    pinned: bool,
    gro: bool,
    tables: bool,
    rp_filter: u8,
    accept_local: u8,
    audit: u32,
    irqbalance: Vec<&'static str>,
    /// Per cent in user mode, in the kernel, idle and in softirqs, by CPU.
    percent: [[u64; 4]; 20],
}

impl Way {
    fn as_found() -> Self {
        Self {
            irq_to_cpu: IRQ_TO_CPU,
            rps: BTreeMap::new(),
            sockets: 1,
            pinned: false,
            gro: true,
            tables: true,
            rp_filter: 1,
            accept_local: 0,
            audit: 1,
            irqbalance: vec!["/usr/sbin/irqbalance", "--foreground"],
            percent: CPU_PERCENT,
        }
    }

    fn fixed() -> Self {
        Self {
            irq_to_cpu: std::array::from_fn(|queue| u32::try_from(queue).unwrap_or(0)),
            rps: (6..10).map(|queue| (queue, u32::try_from(queue).unwrap_or(0) + 10)).collect(),
            sockets: u64::from(CPUS),
            pinned: true,
            gro: false,
            tables: false,
            rp_filter: 0,
            accept_local: 1,
            audit: 0,
            irqbalance: vec!["/usr/sbin/irqbalance", "--foreground", "--hintpolicy=exact"],
            // sar's figures for the steps after reuseport are not published; these are near its own.
            percent: [[3, 37, 0, 60]; 20],
        }
    }

    /// The CPUs on which packets of a queue meet the network stack, that of its interrupt first.
    fn stack_cpus(&self, queue: usize) -> Vec<u32> {
        std::iter::once(self.irq_to_cpu[queue]).chain(self.rps.get(&queue).copied()).collect()
    }
}

fn machine(way: &Way) -> Machine {
    let numbers: Vec<u32> = (0..CPUS).collect();
    let node = |cpu: u32| u32::from(cpu % 10 >= 5);
    let core = |cpu: u32| cpu % 5 + if cpu >= 10 { 5 } else { 0 };
    let mut sysctls = sysctls::stock(KERNEL, &[NIC], way.rp_filter);
    for interface in ["all", NIC] {
        sysctls.insert(format!("net.ipv4.conf.{interface}.accept_local"), way.accept_local.to_string());
    }
    let mut machine = Machine {
        kernel: KERNEL,
        uptime_centiseconds: 0,
        cpus: Cpus {
            all: numbers.iter().map(|cpu| Cpu { cpu: *cpu, node: node(*cpu), core: core(*cpu) }).collect(),
            model: "Intel(R) Xeon(R) CPU E5-2650 v3 @ 2.30GHz",
            hypervisor: false,
            governor: Some("performance"),
        },
        times: vec![CpuTimes::default(); numbers.len()],
        softnet: vec![Softnet::default(); numbers.len()],
        interrupts: (0..20).map(|queue| interrupt(way, queue)).collect(),
        nics: vec![nic(way)],
        sysctls,
        udp: (0..way.sockets).map(|number| socket(number, way.sockets > 1)).collect(),
        tcp: Vec::new(),
        udp_counts: UdpCounts::default(),
        netfilter: netfilter(way),
        processes: vec![irqbalance(way), server(way)],
        product: ("Example", "Server"),
        audit: way.audit,
        also: Tree::default(),
    };
    // As much load since boot as makes the published packets.
    let packets: u64 = QUEUE_PACKETS.iter().sum();
    add(&mut machine, way, &QUEUE_PACKETS, packets.div_ceil(270_000));
    machine.uptime_centiseconds = 100 * UPTIME;
    for times in &mut machine.times {
        times.idle += (100 * UPTIME).saturating_sub(times.user + times.system + times.idle + times.softirq);
    }
    machine
}

/// The machine after some more seconds of this many transactions a second.
fn load(first: &Machine, way: &Way, per_second: u64) -> Machine {
    let all: u64 = QUEUE_PACKETS.iter().sum();
    let packets = QUEUE_PACKETS.map(|published| published * per_second * SECONDS / all);
    let mut later = first.clone();
    add(&mut later, way, &packets, SECONDS);
    later.uptime_centiseconds += 100 * SECONDS;
    later
}

/// Adds packets of each queue to all that counts them, and the time they took.
fn add(machine: &mut Machine, way: &Way, packets: &[u64; 20], seconds: u64) {
    let sum: u64 = packets.iter().sum();
    let nic = &mut machine.nics[0];
    for (queue, packets) in packets.iter().enumerate() {
        let statistics = &mut nic.ethtool.statistics;
        for (name, count) in [("rx_queue", *packets), ("tx_queue", sum / u64::from(CPUS))] {
            *statistics.entry(format!("{name}_{queue}_packets")).or_default() += count;
            *statistics.entry(format!("{name}_{queue}_bytes")).or_default() += count * 142;
        }
        let cpus = way.stack_cpus(queue);
        let interrupts = packets / 20;
        machine.interrupts[queue].handled[cpus[0] as usize] += interrupts;
        machine.softnet[cpus[0] as usize].net_rx += interrupts;
        for cpu in &cpus {
            let softnet = &mut machine.softnet[*cpu as usize];
            let share = packets / cpus.len() as u64;
            softnet.processed += u32::try_from(share).unwrap_or(u32::MAX);
            if *cpu != cpus[0] {
                softnet.received_rps += u32::try_from(share / 4).unwrap_or(u32::MAX);
                softnet.net_rx += share / 4;
            }
        }
    }
    for (times, [user, system, idle, softirq]) in machine.times.iter_mut().zip(way.percent) {
        times.user += user * seconds;
        times.system += system * seconds;
        times.idle += idle * seconds;
        times.softirq += softirq * seconds;
    }
    machine.udp_counts.in_datagrams += sum;
    machine.udp_counts.out_datagrams += sum;
    let server = &mut machine.processes[1];
    for (thread, [user, system, ..]) in server.threads.iter_mut().zip(way.percent) {
        thread.user += user * seconds;
        thread.system += system * seconds;
    }
    for (name, count) in
        [("rx_packets", sum), ("tx_packets", sum), ("rx_bytes", sum * 142), ("tx_bytes", sum * 142)]
    {
        *machine.nics[0].totals.entry(name).or_default() += count;
        *machine.nics[0].ethtool.statistics.entry(name.to_owned()).or_default() += count;
    }
}

fn interrupt(way: &Way, queue: u32) -> Interrupt {
    let cpu = way.irq_to_cpu[queue as usize];
    Interrupt {
        irq: 105 + queue,
        chip: "IR-PCI-MSI".into(),
        hardware: 524_288 + queue,
        name: format!("{NIC}-TxRx-{queue}"),
        affinity: vec![cpu],
        effective: cpu,
        hint: vec![queue],
        node: 0,
        handled: vec![0; CPUS as usize],
    }
}

fn nic(way: &Way) -> Nic {
    let receive = |queue: usize| ReceiveQueue {
        rps: match way.rps.get(&queue) {
            Some(_) => way.stack_cpus(queue),
            None => Vec::new(),
        },
        flows: 0,
    };
    Nic {
        name: NIC,
        index: 2,
        pci: "pci0000:00/0000:00:03.0/0000:04:00.0",
        virtio: None,
        speed: Some(10_000),
        node: 0,
        irqs: (105..125).collect(),
        receive: (0..20).map(receive).collect(),
        transmit: (0..CPUS).map(|cpu| TransmitQueue { xps: vec![cpu], limit: 0 }).collect(),
        totals: BTreeMap::new(),
        virtual_functions: Some((63, 0)),
        ethtool: ethtool(way),
    }
}

/// ixgbe has 63 channels of the 64 queues (`IXGBE_MAX_FDIR_INDICES`), and RSS of 16 (`IXGBE_MAX_RSS_INDICES`), though it
/// tells 20 to those who ask how many queues RSS has (`ETHTOOL_GRXRINGS`). That the hash has the ports was set by hand.
fn ethtool(way: &Way) -> Ethtool {
    Ethtool {
        driver: ["ixgbe", "4.2.1-k", "0x800003e1", "0000:04:00.0"],
        channels: Some([0, 0, CPUS, 0, 0, 63]),
        rings: Some([512, 512, 4096, 4096]),
        interrupt_after: Some(1),
        gro: way.gro,
        table: Some((0..128).map(|entry| entry % TABLE_REACH).collect()),
        udp_hash: Some(Hashed::Ports),
        table_queues: Some(CPUS),
        statistics: [
            "rx_missed_errors",
            "rx_no_buffer_count",
            "rx_no_dma_resources",
            "rx_errors",
            "rx_dropped",
        ]
        .map(|name| (name.to_owned(), 0))
        .into(),
        queue_packets: None,
        discipline: "pfifo_fast",
    }
}

fn socket(number: u64, reuseport: bool) -> UdpSocket {
    UdpSocket {
        local: ([0, 0, 0, 0], PORT).into(),
        inode: INODE + number,
        cookie: 0x1001 + number,
        queued_bytes: 0,
        receive_buffer: 212_992,
        drops: 0,
        reuseport,
    }
}

/// The modules that a distribution's firewall service leaves when it has no rule.
fn netfilter(way: &Way) -> Netfilter {
    if !way.tables {
        return Netfilter { modules: vec![("ixgbe", 0)], ..Netfilter::default() };
    }
    Netfilter {
        modules: vec![
            ("iptable_raw", 0),
            ("iptable_mangle", 0),
            ("iptable_filter", 0),
            ("ip_tables", 3),
            ("x_tables", 4),
            ("ixgbe", 0),
        ],
        ip_tables: Some(vec![
            IpTable { name: "raw", rules: 0, hooks: 2 },
            IpTable { name: "mangle", rules: 0, hooks: 5 },
            IpTable { name: "filter", rules: 0, hooks: 3 },
        ]),
    }
}

fn irqbalance(way: &Way) -> Process {
    let thread = Thread {
        tid: 811,
        allowed: (0..CPUS).collect(),
        last_cpu: 5,
        user: 40,
        system: 90,
        call: Some((7, 0x7f)),
    };
    Process {
        pid: 811,
        name: "irqbalance",
        arguments: way.irqbalance.clone(),
        threads: vec![thread],
        sockets: vec![],
    }
}

/// A thread a CPU, each in `recvfrom`. Threads that may run anywhere were on node 1: softirqs had node 0.
fn server(way: &Way) -> Process {
    let thread = |number: u32| Thread {
        tid: SERVER + number,
        allowed: if way.pinned { vec![number] } else { (0..CPUS).collect() },
        last_cpu: if way.pinned { number } else { number % 5 + if number >= 10 { 15 } else { 5 } },
        user: 0,
        system: 0,
        call: Some((RECVFROM, if way.sockets == 1 { 3 } else { 3 + number })),
    };
    Process {
        pid: SERVER,
        name: "udpecho",
        arguments: vec!["./udpecho"],
        threads: (0..CPUS).map(thread).collect(),
        sockets: (0..way.sockets).map(|number| INODE + number).collect(),
    }
}
