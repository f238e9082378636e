//! CPUs, softirqs, filters and the IP layer.

use std::collections::BTreeMap;

use linerate_host::counter::CountedUnit;
use linerate_host::stage::STAGES;
use linerate_host::stage::filter::ConntrackState;
use linerate_host::stage::softirq::SoftnetCpu;
use linerate_host::{PacketPath, StageName};

use super::interfaces::interface_identity;
use super::{CounterReset, GatheredSamples};
use crate::metrics::families::{
    CONNTRACK_ENTRIES, CONNTRACK_EVENTS, CONNTRACK_LIMIT, CPU_SECONDS, FILTER_HOOKS, FILTER_PROGRAMS,
    KERNEL_INFO, LOST_PACKETS, ROUTE_DELIVERED_PACKETS, ROUTE_RECEIVE_PACKETS, SOFTIRQ_BACKLOG,
    SOFTIRQ_BACKLOG_LIMIT, SOFTIRQ_DROPPED, SOFTIRQ_FLOW_LIMITED, SOFTIRQ_PROCESSED, SOFTIRQ_RPS,
    SOFTIRQ_RPS_CPUS, SOFTIRQ_RUNS, SOFTIRQ_SQUEEZES, UDP_ERRORS, UDP_RECEIVE_DATAGRAMS,
    UDP_TRANSMIT_DATAGRAMS,
};
use crate::metrics::family::MetricFamily;

pub(super) fn machine(path: &PacketPath, samples: &mut GatheredSamples) {
    for times in path.machine.cpu_times.value().into_iter().flatten() {
        let cpu = times.cpu.to_string();
        let modes = [
            ("user", times.user),
            ("system", times.system),
            ("idle", times.idle),
            ("irq", times.irq),
            ("softirq", times.softirq),
            ("steal", times.steal),
        ];
        for (mode, ticks) in modes {
            samples.add_source_counter(&CPU_SECONDS, &[&cpu, mode], (0, CounterReset::Never), ticks);
        }
    }
    if let Some(release) = path.machine.kernel.value() {
        samples.add_gauge(&KERNEL_INFO, &[release], 1.0);
    }
}

pub(super) fn softirq(path: &PacketPath, samples: &mut GatheredSamples) {
    path.softirq.softnet.value().into_iter().flatten().for_each(|line| softnet_counters(line, samples));
    for (cpu, runs) in path.softirq.net_rx.value().into_iter().flatten() {
        samples.add_source_counter(&SOFTIRQ_RUNS, &[&cpu.to_string()], (0, CounterReset::At32Bits), *runs);
    }
    let limit = path.softirq.sysctls.get("netdev_max_backlog").and_then(|limit| limit.value());
    samples.add_integer_gauge(&SOFTIRQ_BACKLOG_LIMIT, &[], limit.copied());
    for item in &path.softirq.rps {
        for queue in item.queues.value().into_iter().flatten() {
            let labels: [&str; 2] = [&item.interface, &queue.queue.to_string()];
            let cpus = queue.cpus.value().map(|cpus| cpus.len() as u64);
            samples.add_integer_gauge(&SOFTIRQ_RPS_CPUS, &labels, cpus);
        }
    }
}

fn softnet_counters(line: &SoftnetCpu, samples: &mut GatheredSamples) {
    let counts: [(&'static MetricFamily, Option<u64>); 5] = [
        (&SOFTIRQ_PROCESSED, Some(line.processed)),
        (&SOFTIRQ_DROPPED, Some(line.dropped)),
        (&SOFTIRQ_SQUEEZES, Some(line.time_squeeze)),
        (&SOFTIRQ_RPS, line.received_rps),
        (&SOFTIRQ_FLOW_LIMITED, line.flow_limit),
    ];
    let cpu = line.cpu.to_string();
    for (family, count) in counts {
        samples.add_source_counter(family, &[&cpu], (0, CounterReset::At32Bits), count);
    }
    samples.add_integer_gauge(&SOFTIRQ_BACKLOG, &[&cpu], line.backlog);
}

pub(super) fn filter(path: &PacketPath, samples: &mut GatheredSamples) {
    for item in &path.filter.interfaces {
        let interface = item.interface.as_str();
        let xdp = item.xdp.value().map(|xdp| f64::from(u8::from(xdp.is_some())));
        samples.add_gauge(&FILTER_PROGRAMS, &[interface, "xdp"], xdp);
        if let Some(tc) = item.tc.value() {
            samples.add_gauge(&FILTER_PROGRAMS, &[interface, "tc_ingress"], f64::from(tc.ingress));
            samples.add_gauge(&FILTER_PROGRAMS, &[interface, "tc_egress"], f64::from(tc.egress));
        }
    }
    let mut hooks: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for hook in path.filter.hooks.value().into_iter().flatten() {
        *hooks.entry((&hook.family, &hook.hook)).or_default() += 1;
    }
    for ((family, hook), functions) in hooks {
        samples.add_integer_gauge(&FILTER_HOOKS, &[family, hook], functions);
    }
    if let Some(Some(conntrack)) = path.filter.conntrack.value() {
        conntrack_counters(conntrack, samples);
    }
}

fn conntrack_counters(conntrack: &ConntrackState, samples: &mut GatheredSamples) {
    samples.add_integer_gauge(&CONNTRACK_ENTRIES, &[], conntrack.count.value().copied());
    samples.add_integer_gauge(&CONNTRACK_LIMIT, &[], conntrack.max.value().copied());
    let Some(statistics) = conntrack.statistics.value() else { return };
    // Sums of unsigned ints, one per possible CPU (struct ip_conntrack_stat,
    // include/linux/netfilter/nf_conntrack_common.h, Linux 6.18).
    let source = (0, CounterReset::At32Bits);
    let lost_labels = ["filter", "conntrack_full", "", ""];
    samples.add_source_counter(&LOST_PACKETS, &lost_labels, source, conntrack.drops());
    for event in ["early_drop", "insert_failed", "invalid"] {
        samples.add_source_counter(&CONNTRACK_EVENTS, &[event], source, statistics.get(event).copied());
    }
}

// The kernel's counter, its family, and the labels.
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

// UDP's error counters, without `InErrors`, which is the sum of all receive errors.
const ERRORS: [(&str, &str); 5] = [
    ("NoPorts", "no_port"),
    ("RcvbufErrors", "receive_buffer"),
    ("InCsumErrors", "checksum"),
    ("MemErrors", "memory"),
    ("SndbufErrors", "send_buffer"),
];

// Stages whose losses have only a name and perhaps an interface. The other stages report their
// losses themselves.
const BY_NAME: [StageName; 2] = [StageName::Link, StageName::Route];

pub(super) fn route(path: &PacketPath, samples: &mut GatheredSamples) {
    for (name, family, labels) in &COUNTED {
        samples.add_counter(family, labels, path.route.snmp(name));
    }
    for (name, reason) in ERRORS {
        for (prefix, family) in [("Udp.", "ipv4"), ("Udp6", "ipv6")] {
            let count = path.route.snmp(&format!("{prefix}{name}"));
            samples.add_counter(&UDP_ERRORS, &[family, reason], count);
        }
    }
    let stages = STAGES.iter().filter(|stage| BY_NAME.contains(&stage.name));
    for counter in stages.flat_map(|stage| (stage.counters)(path)) {
        if counter.counts == CountedUnit::PacketsLost {
            let is_link = counter.stage == StageName::Link;
            let interface = if is_link { counter.place.as_str() } else { "" };
            let labels = [counter.stage.name(), &counter.name, interface, ""];
            samples.add_source_counter(
                &LOST_PACKETS,
                &labels,
                interface_identity(path, interface),
                counter.value,
            );
        }
    }
    for line in path.softirq.softnet.value().into_iter().flatten() {
        let labels = ["softirq", "backlog", "", ""];
        let source = (u64::from(line.cpu), CounterReset::At32Bits);
        samples.add_source_counter(&LOST_PACKETS, &labels, source, line.dropped);
    }
}
