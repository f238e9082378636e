//! A virtual machine in a cloud that serves by one thread on one CPU, which also takes all its packets. Made up, to show
//! what is wrong with many.

use std::collections::BTreeMap;

use super::{Specimen, small_vm};
use crate::specimen::{
    Ethtool, Hashed, Interrupt, Machine, Nic, Process, RECVFROM, ReceiveQueue, Thread, TransmitQueue,
    UdpSocket,
};

const NIC: &str = "ens5";
const PORT: u16 = 1812;
const SERVER: u32 = 611;
const INODE: u64 = 18_120;
const SECONDS: u64 = 10;
/// Requests a second that are answered.
const ANSWERED: u64 = 38_000;

pub(super) fn cloud_vm() -> Specimen {
    let mut first = small_vm::machine();
    serve(&mut first);
    let mut later = first.clone();
    pass(&mut later);
    Specimen {
        name: "cloud-vm",
        about: "2 CPUs, ena with one queue, made up: one thread pinned to the CPU that takes all packets, and a hypervisor that takes its share",
        first,
        later: Some(later),
    }
}

fn serve(machine: &mut Machine) {
    machine.product = ("Amazon EC2", "c5n.large");
    machine.nics = vec![nic()];
    machine.interrupts = vec![Interrupt {
        irq: 27,
        chip: "PCI-MSIX-0000:00:05.0".into(),
        hardware: 1,
        name: format!("{NIC}-Tx-Rx-0"),
        affinity: vec![0],
        effective: 0,
        hint: vec![0],
        node: -1,
        handled: vec![90_000_000, 0],
    }];
    for name in ["rp_filter", "accept_local", "forwarding"] {
        if let Some(value) = machine.sysctls.remove(&format!("net.ipv4.conf.ens3.{name}")) {
            machine.sysctls.insert(format!("net.ipv4.conf.{NIC}.{name}"), value);
        }
    }
    machine.udp.push(UdpSocket {
        local: ([0, 0, 0, 0], PORT).into(),
        inode: INODE,
        cookie: 9,
        queued_bytes: 4_096,
        receive_buffer: 212_992,
        drops: 0,
        reuseport: false,
    });
    machine.processes.push(Process {
        pid: SERVER,
        name: "radiusd",
        arguments: vec!["/usr/sbin/radiusd", "-f"],
        threads: vec![Thread {
            tid: SERVER,
            allowed: vec![0],
            last_cpu: 0,
            user: 4_000,
            system: 9_000,
            call: Some((RECVFROM, 3)),
        }],
        sockets: vec![INODE],
    });
}

fn nic() -> Nic {
    Nic {
        name: NIC,
        index: 2,
        pci: "pci0000:00/0000:00:05.0",
        virtio: None,
        speed: None,
        node: -1,
        irqs: vec![27],
        receive: vec![ReceiveQueue::default()],
        transmit: vec![TransmitQueue::default()],
        totals: BTreeMap::from([("rx_packets", 91_000_000), ("tx_packets", 90_000_000)]),
        virtual_functions: None,
        ethtool: Ethtool {
            driver: ["ena", "6.1.0-40-cloud-amd64", "", "0000:00:05.0"],
            channels: Some([0, 0, 1, 0, 0, 2]),
            rings: Some([1024, 1024, 8192, 1024]),
            interrupt_after: Some(20),
            gro: true,
            table: Some(vec![0; 128]),
            udp_hash: Some(Hashed::Ports),
            table_queues: Some(1),
            statistics: BTreeMap::from([
                ("queue_0_rx_cnt".to_owned(), 91_000_000),
                ("queue_0_tx_cnt".to_owned(), 90_000_000),
                ("rx_drops".to_owned(), 0),
                ("pps_allowance_exceeded".to_owned(), 120),
            ]),
            queue_packets: None,
            discipline: "fq_codel",
        },
    }
}

/// Ten seconds of load.
fn pass(machine: &mut Machine) {
    let packets = ANSWERED * SECONDS;
    machine.uptime_centiseconds += 100 * SECONDS;
    for (times, [user, system, softirq, steal]) in
        machine.times.iter_mut().zip([[14, 25, 48, 13], [2, 1, 0, 6]])
    {
        times.user += user * SECONDS;
        times.system += system * SECONDS;
        times.softirq += softirq * SECONDS;
        times.steal += steal * SECONDS;
        times.idle += (100 - user - system - softirq - steal) * SECONDS;
    }
    let softnet = &mut machine.softnet[0];
    softnet.processed += u32::try_from(packets).unwrap_or(u32::MAX);
    softnet.net_rx += packets / 8;
    machine.interrupts[0].handled[0] += packets / 8;
    machine.udp_counts.in_datagrams += packets;
    machine.udp_counts.out_datagrams += packets;
    if let Some(server) = machine.processes.last_mut() {
        server.threads[0].user += 14 * SECONDS;
        server.threads[0].system += 25 * SECONDS;
    }
    let nic = &mut machine.nics[0];
    for name in ["rx_packets", "tx_packets"] {
        *nic.totals.entry(name).or_default() += packets;
    }
    for (name, count) in
        [("queue_0_rx_cnt", packets), ("queue_0_tx_cnt", packets), ("pps_allowance_exceeded", 31_000)]
    {
        *nic.ethtool.statistics.entry(name.to_owned()).or_default() += count;
    }
}
