//! A virtual machine behind rules: its packets are tracked, an XDP program runs where it helps least, and some packets are dropped
//! for where they come from. Made up, to show what filters do.

use serde_json::json;

use super::{Specimen, small_vm};
use crate::specimen::{EPOLL_WAIT, Machine, Process, Thread, Tree, UdpSocket};

const NIC: &str = "ens3";
const PORT: u16 = 53;
const SERVER: u32 = 702;
const INODE: u64 = 15_300;
/// Bytes that its server asked for: few for datagrams that were merged.
const BUFFER: u32 = 106_496;
const SECONDS: u64 = 10;
const RATE: u64 = 60_000;

pub(super) fn tracked_vm() -> Specimen {
    let mut first = small_vm::machine();
    serve(&mut first);
    filter(&mut first, 0);
    let mut later = first.clone();
    pass(&mut later);
    Specimen {
        name: "tracked-vm",
        about: "2 CPUs, virtio, made up: a name server whose packets are tracked and filtered by their source, an XDP program in generic mode, irqbalance",
        first,
        later: Some(later),
    }
}

fn serve(machine: &mut Machine) {
    machine.udp.push(UdpSocket {
        local: ([0, 0, 0, 0], PORT).into(),
        inode: INODE,
        cookie: 11,
        queued_bytes: 0,
        receive_buffer: BUFFER,
        drops: 0,
        reuseport: false,
    });
    let process = |pid: u32, name: &'static str, arguments: Vec<&'static str>, sockets: Vec<u64>| Process {
        pid,
        name,
        arguments,
        threads: vec![Thread {
            tid: pid,
            allowed: vec![0, 1],
            last_cpu: 1,
            user: 100,
            system: 100,
            call: Some((EPOLL_WAIT, 9)),
        }],
        sockets,
    };
    machine.processes.push(process(SERVER, "named", vec!["/usr/sbin/named", "-f"], vec![INODE]));
    let irqbalance = vec!["/usr/sbin/irqbalance", "--foreground"];
    machine.processes.push(process(430, "irqbalance", irqbalance, vec![]));
    for name in ["nf_conntrack", "nf_tables", "nfnetlink"] {
        machine.netfilter.modules.push((name, 1));
    }
    for interface in ["all", NIC] {
        machine.sysctls.insert(format!("net.ipv4.conf.{interface}.rp_filter"), "1".to_owned());
    }
}

/// What the kernel tells of tracking, of the program and of sources, before and after so many rounds.
fn filter(machine: &mut Machine, rounds: u64) {
    let mut also = Tree::default();
    let hook = |hook: &str, priority: i32, function: &str| json!({ "family": "ip", "hook": hook, "priority": priority, "function": function, "module": "nf_conntrack" });
    also.call(
        "nfnetlink/hooks",
        &json!([hook("prerouting", -200, "ipv4_conntrack_in"), hook("output", -200, "ipv4_conntrack_local")]),
    );
    also.line("/proc/sys/net/netfilter/nf_conntrack_count", 41_000 + 300 * rounds);
    also.line("/proc/sys/net/netfilter/nf_conntrack_max", 262_144);
    // ct_cpu_seq_show in net/netfilter/nf_conntrack_standalone.c.
    let line = "0000a028  00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 \
                00000000  00000000 00000000 00000000 00000000\n";
    let names = "entries  clashres found new invalid ignore delete chainlength insert insert_failed drop early_drop icmp_error  \
                 expect_new expect_create expect_delete search_restart\n";
    also.file("/proc/net/stat/nf_conntrack", format!("{names}{line}{line}"));
    also.call(&format!("xdp/{NIC}/attached"), &json!({ "id": 17, "mode": "generic" }));
    let options =
        json!({ "reuseport": false, "incoming_cpu": null, "gro": true, "receive_buffer_bytes": BUFFER });
    also.call(&format!("socket/{INODE}/options"), &options);
    also.file(
        "/proc/net/netstat",
        format!(
            "TcpExt: SyncookiesSent ListenOverflows ListenDrops IPReversePathFilter\nTcpExt: 0 0 0 {}\n\
             IpExt: InNoRoutes InTruncatedPkts InMcastPkts InOctets\nIpExt: 0 0 0 7680000\n",
            40_000 + rounds * 14_000
        ),
    );
    machine.also = also;
}

/// Ten seconds of load.
fn pass(machine: &mut Machine) {
    machine.uptime_centiseconds += 100 * SECONDS;
    for times in &mut machine.times {
        times.softirq += 20 * SECONDS;
        times.system += 15 * SECONDS;
        times.idle += 65 * SECONDS;
    }
    let packets = RATE * SECONDS;
    for softnet in &mut machine.softnet {
        softnet.processed += u32::try_from(packets / 2).unwrap_or(u32::MAX);
        softnet.net_rx += packets / 20;
    }
    machine.udp_counts.in_datagrams += packets;
    machine.udp_counts.out_datagrams += packets;
    for name in ["rx_packets", "tx_packets"] {
        *machine.nics[0].totals.entry(name).or_default() += packets;
    }
    if let Some(server) = machine.processes.iter_mut().find(|process| process.pid == SERVER) {
        server.threads[0].system += 45 * SECONDS;
    }
    filter(machine, 1);
}
