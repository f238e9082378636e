//! A virtual machine whose limits are in a server's way: a CPU quota, memory for UDP sockets, and rules that drop packets. Made
//! up, to show what limits do.

use serde_json::json;

use super::{Specimen, small_vm};
use crate::specimen::{EPOLL_WAIT, Machine, Process, Thread, Tree, UdpSocket};

const SERVER: u32 = 704;
const SECONDS: u64 = 10;
/// What each second brings, in packets.
const RECEIVED: u64 = 20_000;
const DROPPED_BY_RULES: u64 = 2_000;
const LOST_FOR_MEMORY: u64 = 3_214;

pub(super) fn held_back_vm() -> Specimen {
    let mut first = small_vm::machine();
    serve(&mut first);
    limits(&mut first, 0);
    let mut later = first.clone();
    later.uptime_centiseconds += 100 * SECONDS;
    for times in &mut later.times {
        times.softirq += 5 * SECONDS;
        times.idle += 95 * SECONDS;
    }
    for softnet in &mut later.softnet {
        softnet.processed += u32::try_from(RECEIVED * SECONDS / 2).unwrap_or(u32::MAX);
    }
    for name in ["rx_packets", "tx_packets"] {
        *later.nics[0].totals.entry(name).or_default() += RECEIVED * SECONDS;
    }
    later.processes.last_mut().into_iter().for_each(|server| server.threads[0].system += 20 * SECONDS);
    later
        .udp
        .last_mut()
        .into_iter()
        .for_each(|socket| socket.drops += u32::try_from(LOST_FOR_MEMORY * SECONDS).unwrap_or(u32::MAX));
    limits(&mut later, SECONDS);
    Specimen {
        name: "held-back-vm",
        about: "2 CPUs, virtio, made up: a name server with a CPU quota, little memory for UDP sockets, and a rule that drops a tenth of the packets",
        first,
        later: Some(later),
    }
}

fn serve(machine: &mut Machine) {
    let inode = 15_400;
    machine.udp.push(UdpSocket {
        local: ([0, 0, 0, 0], 53).into(),
        inode,
        cookie: 12,
        queued_bytes: 0,
        receive_buffer: 8 << 20,
        drops: 0,
        reuseport: false,
    });
    machine.processes.push(Process {
        pid: SERVER,
        name: "named",
        arguments: vec!["/usr/sbin/named", "-f"],
        threads: vec![Thread {
            tid: SERVER,
            allowed: vec![0, 1],
            last_cpu: 1,
            user: 100,
            system: 100,
            call: Some((EPOLL_WAIT, 9)),
        }],
        sockets: vec![inode],
    });
    for name in ["nf_tables", "nfnetlink"] {
        machine.netfilter.modules.push((name, 1));
    }
}

/// What the kernel tells of the limits after so many seconds.
fn limits(machine: &mut Machine, seconds: u64) {
    let mut also = Tree::default();
    also.line(format!("/proc/{SERVER}/cgroup"), "0::/system.slice/named.service");
    let cgroup = "/sys/fs/cgroup/system.slice/named.service";
    also.line(format!("{cgroup}/cpu.max"), "20000 100000");
    let (periods, throttled) = (900 + 10 * seconds, 300 + 8 * seconds);
    also.file(
        format!("{cgroup}/cpu.stat"),
        format!("usage_usec 9\nnr_periods {periods}\nnr_throttled {throttled}\n"),
    );
    also.line("/proc/sys/net/ipv4/udp_mem", "768\t1024\t1536");
    also.file("/proc/net/sockstat", "sockets: used 90\nUDP: inuse 3 mem 1535\n");
    let (received, dropped) = (9_000_000 + RECEIVED * seconds, 40_000 + DROPPED_BY_RULES * seconds);
    let (lost, delivered) = (LOST_FOR_MEMORY * seconds, received - dropped);
    also.file(
        "/proc/net/snmp",
        format!(
            "Ip: Forwarding DefaultTTL InReceives InHdrErrors InAddrErrors InUnknownProtos InDiscards InDelivers\n\
             Ip: 2 64 {received} 0 0 0 0 {delivered}\n\
             Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors MemErrors\n\
             Udp: {} 12 {lost} {delivered} 0 0 0 {lost}\n",
            delivered - lost,
        ),
    );
    also.call("nfnetlink/tables", &json!([{ "family": "inet", "name": "filter", "rules": 4, "hooks": 1 }]));
    machine.also = also;
}
