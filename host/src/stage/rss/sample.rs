//! Fixture hosts for the tests of this stage and of `transmit`.

use std::collections::BTreeMap;

use super::{HashFields, NtupleRule, QueueCounts, RssState};
use crate::stage::PacketPath;
use crate::stage::link::{DeviceKind, LinkDriver, LinkState};
use crate::stage::softirq::{InterfaceRps, RpsQueue};
use crate::stage::transmit::TransmitState;
use crate::{CpuSet, Known};

/// A driver whose device is on PCI.
pub(crate) fn driver(name: &str) -> Known<Option<LinkDriver>> {
    let (version, firmware) = Default::default();
    Known::Value(Some(LinkDriver { name: name.into(), version, firmware, bus: "0000:01:00.0".into() }))
}

/// A hardware interface with this many queues each way, and nothing else known.
pub(crate) fn link(interface: &str, queues: u32) -> LinkState {
    LinkState {
        interface: interface.into(),
        index: Known::Value(2),
        up: Known::Value(true),
        driver: driver("ice"),
        device: Known::Value(DeviceKind::Hardware),
        speed_bits_per_second: Known::Value(None),
        mtu_bytes: Known::Value(1500),
        node: Known::Value(None),
        receive_queues: Known::Value(queues),
        transmit_queues: Known::Value(queues),
        channels: Known::Value(None),
        rings: Known::Value(None),
        coalesce: Known::Value(None),
        features: Known::Value(BTreeMap::new()),
        sriov: Known::Value(None),
        bridge: Known::Value(None),
        statistics: Known::Value(None),
        totals: Known::Value(BTreeMap::new()),
        has_links_below: false,
    }
}

/// A balanced table, and ports in the hash.
pub(crate) fn rss(interface: &str, queues: u32) -> RssState {
    let with_ports = HashFields::from_letters("sdfn").expect("letters");
    let flows = ["udp4", "udp6", "tcp4", "tcp6"];
    RssState {
        interface: interface.into(),
        table: Known::Value(Some((0..queues).cycle().take(128).collect())),
        table_queues: Known::Value(Some(queues)),
        hash: Known::Value(None),
        fields: Known::Value(Some(flows.into_iter().map(|flow| (flow.to_owned(), with_ports)).collect())),
        ntuple: Known::Value(Some(Vec::new())),
        queues: Known::Value(None),
    }
}

/// A host with this many CPUs and the interface `eth0` with this many queues, without any problem.
pub(crate) fn path(cpus: u32, queues: u32) -> PacketPath {
    let mut path = PacketPath::scripted::<String, String>([]);
    path.uptime_seconds = Known::Value(1000.0);
    path.machine.online = Known::Value((0..cpus).collect::<CpuSet>());
    path.link = vec![link("eth0", queues)];
    path.rss = vec![rss("eth0", queues)];
    path.transmit = vec![TransmitState {
        interface: "eth0".into(),
        queues: Known::unknown("made up"),
        disciplines: Known::unknown("made up"),
    }];
    path
}

/// RPS of `eth0` with these CPUs of each receive queue.
pub(crate) fn rps(queue_cpus: impl IntoIterator<Item = CpuSet>) -> Vec<InterfaceRps> {
    let queue = |(queue, cpus)| RpsQueue { queue, cpus: Known::Value(cpus), flow_count: Known::Value(0) };
    vec![InterfaceRps {
        interface: "eth0".into(),
        queues: Known::Value((0..).zip(queue_cpus).map(queue).collect()),
        gro_flush_timeout_ns: Known::Value(None),
        napi_defer_hard_irqs: Known::Value(None),
        threaded: Known::Value(None),
    }]
}

/// A rule that sends DNS to a queue.
pub(crate) fn ntuple_rule(queue: u32) -> NtupleRule {
    let (queue, destination_port) = (Some(queue), Some(53));
    NtupleRule { location: 1, flow: "udp4".into(), queue, rss_context: false, destination_port }
}

/// Packets of each queue since boot.
pub(crate) fn counts(packets: &[u64]) -> Known<Option<Vec<QueueCounts>>> {
    let counts = packets.iter().zip(0..).map(|(packets, queue)| QueueCounts {
        queue,
        packets: *packets,
        bytes: None,
        drops: None,
        read_from: format!("ethtool -S eth0: rx_queue_{queue}_packets"),
    });
    Known::Value(Some(counts.collect()))
}

/// The same host ten seconds later, with these rates of its receive queues.
pub(crate) fn later(before: &PacketPath, packets_per_second: &[u64]) -> PacketPath {
    let mut now = before.clone();
    now.uptime_seconds = Known::Value(1010.0);
    let packets: Vec<u64> = packets_per_second.iter().map(|rate| 1_000_000 + rate * 10).collect();
    now.rss[0].queues = counts(&packets);
    now
}
