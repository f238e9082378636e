//! Snapshots of `linerate top` for tests.

use linerate_host::live::snapshot::{
    CpuSnapshot, FindingSite, HostLine, InterfaceSnapshot, LiveFinding, NodeSnapshot, PathTotals,
    QdiscSnapshot, ReceiveQueue, ServiceSnapshot, Snapshot, SnapshotCost, SocketSnapshot, ThreadLocality,
    ThreadSnapshot, TransmitQueueSnapshot,
};
use linerate_host::live::{LiveHost, SnapshotSource};
use linerate_host::{Known, OpenedCapture, Scope, Severity, StageName};

use crate::fixture_hosts;

// A host of four CPUs and an interface with two queues, one of which loses packets.
pub(crate) fn small() -> Snapshot {
    Snapshot {
        unix_seconds: Some(1_700_000_000.0),
        interval_seconds: Some(1.0),
        host: HostLine {
            name: Known::Value("db7".into()),
            kernel: Known::Value("6.18.0".into()),
            nodes: vec![NodeSnapshot { node: 0, cpus: "0-3".into() }],
        },
        interfaces: vec![interface()],
        cpus: Known::Value((0..4).map(cpu).collect()),
        services: Known::Value(vec![service()]),
        threads: Known::Value(vec![
            thread(1240, 0, ThreadLocality::WithPackets),
            thread(1241, 3, ThreadLocality::OffQueue),
        ]),
        findings: vec![
            LiveFinding {
                id: "socket.buffer-small".into(),
                stage: StageName::Socket,
                severity: Severity::High,
                title: "udp 10.0.0.1:53 (nsd) loses 12,300 packets/s: its receive buffer is too small".into(),
                remedy: "Raise net.core.rmem_max and have the server ask for more.".into(),
                places: vec![FindingSite::Service("udp 10.0.0.1:53 (nsd)".into())],
            },
            LiveFinding {
                id: "irq.stacked".into(),
                stage: StageName::Irq,
                severity: Severity::Medium,
                title: "Interrupts of 2 queues of eth0 go to CPU 0".into(),
                remedy: "Spread them.".into(),
                places: vec![FindingSite::Receive("eth0".into(), 1), FindingSite::Cpu(0)],
            },
        ],
        totals: PathTotals {
            rx_packets_per_second: Some(271_000.0),
            rx_drops_per_second: Some(0.0),
            interrupts_per_second: Some(18_200.0),
            softirq_cpus: Some(1.02),
            backlog_drops_per_second: Some(0.0),
            queued_bytes: Some(212_992),
            socket_drops_per_second: Some(12_300.0),
            thread_cpus: Some(1.83),
            tx_packets_per_second: Some(258_700.0),
            tx_drops_per_second: Some(0.0),
        },
        unknown: Vec::new(),
        cost: SnapshotCost::default(),
    }
}

/// A host without any values.
pub(crate) fn empty() -> Snapshot {
    let reason = "cannot read /proc/stat: Permission denied";
    Snapshot {
        unix_seconds: None,
        interval_seconds: None,
        host: HostLine { name: Known::unknown(reason), kernel: Known::unknown(reason), nodes: Vec::new() },
        interfaces: Vec::new(),
        cpus: Known::unknown(reason),
        services: Known::Value(Vec::new()),
        threads: Known::unknown("cannot list /proc: Permission denied"),
        findings: Vec::new(),
        totals: PathTotals::default(),
        unknown: Vec::new(),
        cost: SnapshotCost::default(),
    }
}

/// The fixture of 128 CPUs and four interfaces of 64 queues.
pub(crate) fn big() -> Snapshot {
    let fixture = linerate_testkit::fixture::fixture("many").expect("a fixture");
    let [first, later] = fixture_hosts::readings(&fixture);
    let source = SnapshotSource::from(OpenedCapture { about: None, first, later: Some(later) });
    LiveHost::open(source, Scope::default()).refresh()
}

fn interface() -> InterfaceSnapshot {
    let receive = |queue: u32, packets: f64, cpu: u32| ReceiveQueue {
        queue,
        packets_per_second: Some(packets),
        drops_per_second: Some(0.0),
        irq: Some(40 + queue),
        interrupts_per_second: Some(9_100.0),
        cpu: Some(cpu),
        allowed: Some(cpu.to_string()),
        rps: Some(String::new()),
        far_node: false,
    };
    let transmit = |queue: u32, packets: f64| TransmitQueueSnapshot {
        queue,
        packets_per_second: Some(packets),
        drops_per_second: Some(0.0),
        backlog_packets: Some(0),
        irq: Some(40 + queue),
        xps: Some(queue.to_string()),
    };
    InterfaceSnapshot {
        interface: "eth0".into(),
        driver: Some("ixgbe".into()),
        node: Some(0),
        speed_bits_per_second: Some(10_000_000_000),
        gone_seconds: None,
        rx_packets_per_second: Some(271_000.0),
        rx_bits_per_second: Some(180e6),
        rx_drops_per_second: Some(0.0),
        tx_packets_per_second: Some(258_700.0),
        tx_bits_per_second: Some(180e6),
        tx_drops_per_second: Some(0.0),
        receive: Known::Value(vec![receive(0, 199_400.0, 0), receive(1, 71_600.0, 0)]),
        receive_told_by: Some("ethtool -S eth0".into()),
        transmit: Known::Value(vec![transmit(0, 258_700.0), transmit(1, 0.0)]),
        transmit_told_by: Some("ethtool -S eth0".into()),
        discipline: Known::Value(Some(QdiscSnapshot { kind: "mq".into(), ..QdiscSnapshot::default() })),
    }
}

fn cpu(cpu: u32) -> CpuSnapshot {
    let busy = cpu == 0;
    let rate = |rate: f64| Some(if busy { rate } else { 0.0 });
    CpuSnapshot {
        cpu,
        node: Some(0),
        interrupts_per_second: rate(18_200.0),
        busy_share: Some(if busy { 1.0 } else { 0.31 }),
        softirq_share: Some(if busy { 0.97 } else { 0.017 }),
        steal_share: Some(0.0),
        net_rx_per_second: rate(15_000.0),
        packets_share: rate(1.0),
        packets_per_second: rate(271_000.0),
        rps_per_second: Some(0.0),
        drops_per_second: Some(0.0),
        squeezes_per_second: rate(212.0),
        backlog_packets: Some(0),
    }
}

fn service() -> ServiceSnapshot {
    let socket = |index: u32, queued: u64, drops: f64| SocketSnapshot {
        inode: 900 + u64::from(index),
        place: index,
        gone_seconds: None,
        incoming_cpu: None,
        queued_bytes: Some(queued),
        receive_buffer_bytes: Some(212_992),
        fill: Some(queued as f64 / 212_992.0),
        drops_per_second: Some(drops),
    };
    ServiceSnapshot {
        name: "udp 10.0.0.1:53 (nsd)".into(),
        port: 53,
        pids: vec![1240],
        steering: Some("hash".into()),
        sockets: vec![socket(0, 212_992, 12_300.0), socket(1, 0, 0.0)],
    }
}

fn thread(tid: u32, cpu: u32, locality: ThreadLocality) -> ThreadSnapshot {
    ThreadSnapshot {
        pid: 1240,
        tid,
        name: "nsd".into(),
        services: vec!["udp 10.0.0.1:53 (nsd)".into()],
        gone_seconds: None,
        cpu_share: Some(if cpu == 0 { 0.99 } else { 0.84 }),
        system_share: Some(0.6),
        cpu: Some(cpu),
        moved_from: None,
        allowed: Some("0-3".into()),
        seat: Some(locality),
    }
}
