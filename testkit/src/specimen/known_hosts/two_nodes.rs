//! A machine of two nodes with two hardware threads a core, whose interrupts and threads are on the wrong ones. Made up, to show
//! what placement does.

use serde_json::json;

use super::{Specimen, million_packets, sysctls};
use crate::specimen::{
    Hashed, Kernel, Machine, Process, RECVFROM, ReceiveQueue, Thread, TransmitQueue, Tree, UdpSocket,
};

const NIC: &str = "eth2";
const KERNEL: Kernel = Kernel { major: 5, minor: 15, release: "5.15.0-91-generic" };
const PORT: u16 = 5353;
const SERVER: u32 = 2200;
const INODE: u64 = 50_100;
const SECONDS: u64 = 10;
const RATE: u64 = 330_000;
/// CPUs of node 1, which take all interrupts of a NIC on node 0. CPU n + 12 is the other thread of core n.
const INTERRUPTED: [u32; 3] = [6, 7, 8];
/// The CPUs of the threads: one with packets, one on its core, one that gets none, and one on the other node.
const PINNED: [u32; 4] = [6, 18, 10, 2];
/// Per cent of a CPU that the threads take.
const TAKEN: [u64; 4] = [70, 50, 40, 2];

pub(super) fn two_nodes() -> Specimen {
    let mut first = million_packets::machine();
    place(&mut first);
    first.uptime_centiseconds = 100 * 90_000;
    for times in &mut first.times {
        times.idle = 100 * 90_000;
    }
    tell(&mut first, 0);
    let mut later = first.clone();
    pass(&mut later);
    Specimen {
        name: "two-nodes",
        about: "2 x 6 cores with hyper-threading, made up: interrupts on the node that the NIC is not on, four threads pinned in four ways, no XPS",
        first,
        later: Some(later),
    }
}

fn place(machine: &mut Machine) {
    machine.kernel = KERNEL;
    machine.sysctls = sysctls::stock(KERNEL, &[NIC], 0);
    machine.sysctls.insert("net.ipv4.udp_early_demux".to_owned(), "0".to_owned());
    for (interrupt, cpu) in machine.interrupts.iter_mut().zip(INTERRUPTED.iter().cycle()) {
        interrupt.affinity = vec![*cpu];
        interrupt.effective = *cpu;
    }
    let nic = &mut machine.nics[0];
    nic.ethtool.udp_hash = Some(Hashed::Ports);
    nic.ethtool.channels = Some([0, 0, 11, 0, 0, 11]);
    nic.ethtool.gro = false;
    nic.ethtool.statistics = (0..11).map(|queue| (format!("rx-{queue}.rx_packets"), 9_000_000)).collect();
    // From CPU 7 to the other thread of its core.
    nic.receive[1] = ReceiveQueue { rps: vec![19], flows: 0 };
    nic.transmit = vec![TransmitQueue::default(); nic.transmit.len()];
    machine.udp = (0..4).map(socket).collect();
    machine.processes[1] = server();
}

fn socket(number: u64) -> UdpSocket {
    UdpSocket {
        local: ([0, 0, 0, 0], PORT).into(),
        inode: INODE + number,
        cookie: 0x5001 + number,
        queued_bytes: 0,
        receive_buffer: 8_388_608,
        drops: 0,
        reuseport: true,
    }
}

fn server() -> Process {
    let thread = |(number, cpu): (u32, u32)| Thread {
        tid: SERVER + number,
        allowed: vec![cpu],
        last_cpu: cpu,
        user: 0,
        system: 0,
        call: Some((RECVFROM, 3 + number)),
    };
    Process {
        pid: SERVER,
        name: "resolver",
        arguments: vec!["/usr/sbin/resolver"],
        threads: (0..).zip(PINNED).map(thread).collect(),
        sockets: (0..4).map(|number| INODE + number).collect(),
    }
}

/// What the kernel tells of the group, of the discipline and of a queue that stood still so many times.
fn tell(machine: &mut Machine, times: u64) {
    let mut also = Tree::default();
    // Nothing was attached to the group, and one socket asks for the packets of a CPU that its thread may not run on.
    let members =
        (0..4_u64).map(|place| json!({ "cookie": 0x5001 + place, "place": place, "chooser": "kernel" }));
    also.call("reuseport/udp", &members.collect());
    let options =
        json!({ "reuseport": true, "incoming_cpu": 7, "gro": false, "receive_buffer_bytes": 8_388_608 });
    also.call(&format!("socket/{INODE}/options"), &options);
    let discipline = |kind: &str, parent: String, drops: u64| {
        json!({
            "kind": kind, "handle": "0:", "parent": parent,
            "packets": 4_000_000 + times * RATE * SECONDS, "drops": drops, "requeues": 0, "backlog": 0,
        })
    };
    let drops = 900 + times * 7_000;
    let below = (1..=11)
        .map(|queue| discipline("pfifo_fast", format!(":{queue:x}"), if queue == 4 { drops } else { 0 }));
    let all = std::iter::once(discipline("mq", "root".to_owned(), drops)).chain(below);
    also.call(&format!("qdisc/{NIC}"), &all.collect());
    also.line(format!("/sys/class/net/{NIC}/queues/tx-3/tx_timeout"), times);
    machine.also = also;
}

/// Ten seconds of load, nearly all of it by one flow.
fn pass(machine: &mut Machine) {
    let packets = RATE * SECONDS;
    machine.uptime_centiseconds += 100 * SECONDS;
    for (cpu, times) in machine.times.iter_mut().enumerate() {
        let busy = if cpu == 6 { 96 } else { 3 };
        times.softirq += busy * SECONDS;
        times.idle += (100 - busy) * SECONDS;
    }
    for (queue, cpu) in (0..11).zip(INTERRUPTED.iter().cycle()) {
        let share = if queue == 0 { packets * 95 / 100 } else { packets / 200 };
        let softnet = &mut machine.softnet[*cpu as usize];
        softnet.processed += u32::try_from(share).unwrap_or(u32::MAX);
        softnet.net_rx += share / 40;
        machine.interrupts[queue].handled[*cpu as usize] += share / 40;
        let statistics = &mut machine.nics[0].ethtool.statistics;
        *statistics.entry(format!("rx-{queue}.rx_packets")).or_default() += share;
    }
    for name in ["rx_packets", "tx_packets"] {
        *machine.nics[0].totals.entry(name).or_default() += packets;
    }
    machine.udp_counts.in_datagrams += packets;
    machine.udp_counts.out_datagrams += packets;
    for (thread, taken) in machine.processes[1].threads.iter_mut().zip(TAKEN) {
        thread.system += taken * SECONDS;
    }
    tell(machine, 1);
}
