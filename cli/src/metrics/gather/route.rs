//! The IP layer, what UDP counts of all sockets, and losses that stages count by the kernel's names.

use linerate_host::counter::CountedUnit;
use linerate_host::stage::STAGES;
use linerate_host::{PacketPath, StageName};

use super::GatheredSamples;
use super::link::interface_identity;
use crate::metrics::families::{
    LOST_PACKETS, ROUTE_DELIVERED_PACKETS, ROUTE_RECEIVE_PACKETS, UDP_ERRORS, UDP_RECEIVE_DATAGRAMS,
    UDP_TRANSMIT_DATAGRAMS,
};
use crate::metrics::family::MetricFamily;

/// The kernel's counter, whose it is here, and the labels.
static COUNTED: [(&str, &MetricFamily, &[&str]); 8] = [
    ("Ip.InReceives", &ROUTE_RECEIVE_PACKETS, &["ipv4"]),
    ("Ip6InReceives", &ROUTE_RECEIVE_PACKETS, &["ipv6"]),
    ("Ip.InDelivers", &ROUTE_DELIVERED_PACKETS, &["ipv4"]),
    ("Ip6InDelivers", &ROUTE_DELIVERED_PACKETS, &["ipv6"]),
    ("Udp.InDatagrams", &UDP_RECEIVE_DATAGRAMS, &["ipv4"]),
    ("Udp6InDatagrams", &UDP_RECEIVE_DATAGRAMS, &["ipv6"]),
    ("Udp.OutDatagrams", &UDP_TRANSMIT_DATAGRAMS, &["ipv4"]),
    ("Udp6OutDatagrams", &UDP_TRANSMIT_DATAGRAMS, &["ipv6"]),
];

/// What UDP counts as errors, without `InErrors`, which is the sum of those that come in.
const ERRORS: [(&str, &str); 5] = [
    ("NoPorts", "no_port"),
    ("RcvbufErrors", "receive_buffer"),
    ("InCsumErrors", "checksum"),
    ("MemErrors", "memory"),
    ("SndbufErrors", "send_buffer"),
];

/// Stages whose losses have nothing but a name and perhaps an interface; the others tell theirs themselves.
const BY_NAME: [StageName; 2] = [StageName::Link, StageName::Route];

pub(super) fn gather(path: &PacketPath, all: &mut GatheredSamples) {
    for (name, family, labels) in &COUNTED {
        if let Some(count) = path.route.snmp(name) {
            all.add_counter(family, labels, count);
        }
    }
    for (name, reason) in ERRORS {
        for (prefix, family) in [("Udp.", "ipv4"), ("Udp6", "ipv6")] {
            if let Some(count) = path.route.snmp(&format!("{prefix}{name}")) {
                all.add_counter(&UDP_ERRORS, &[family, reason], count);
            }
        }
    }
    let stages = STAGES.iter().filter(|stage| BY_NAME.contains(&stage.name));
    for counter in stages.flat_map(|stage| (stage.counters)(path)) {
        if counter.counts == CountedUnit::PacketsLost {
            let of_link = counter.stage == StageName::Link;
            let interface = if of_link { counter.place.as_str() } else { "" };
            let labels = [counter.stage.name(), &counter.name, interface, ""];
            all.add_source_counter(
                &LOST_PACKETS,
                &labels,
                interface_identity(path, interface),
                counter.value,
            );
        }
    }
    for line in path.softirq.softnet.value().into_iter().flatten() {
        let labels = ["softirq", "backlog", "", ""];
        let source = (u64::from(line.cpu), super::CounterReset::At32Bits);
        all.add_source_counter(&LOST_PACKETS, &labels, source, line.dropped);
    }
}
