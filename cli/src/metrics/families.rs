//! The table of all families. Names, labels and units in it are a promise: see docs/export.md.

use linerate_host::StageName::{Filter, Irq, Link, Machine, Route, Rss, Socket, Softirq, Thread, Transmit};

use crate::metrics::family::MetricKind::{Counter, Gauge};
use crate::metrics::family::MetricScope::{Cost, Drops, Exporter, Findings, Headroom, Path, Stage};
use crate::metrics::family::SeriesFold::{Highest, Omit, Sum};
use crate::metrics::family::{MetricFamily, MetricKind};

// Counts of one, ticks of `USER_HZ`, and nanoseconds.
const ONE: MetricKind = Counter(1.0);
const TICKS: MetricKind = Counter(0.01);
const NANOSECONDS: MetricKind = Counter(1e-9);

macro_rules! table {
    ($($id:ident: $name:literal, $kind:expr, $unit:literal, [$($label:literal),*], $of:expr, $help:literal;)*) => {
        $(
            pub(crate) static $id: MetricFamily = MetricFamily {
                name: concat!("linerate_", $name),
                kind: $kind,
                unit: $unit,
                labels: &[$($label),*],
                of: $of,
                help: $help,
            };
        )*
        /// All families, in the order in which a packet passes their subjects.
        pub(crate) static FAMILIES: &[&MetricFamily] = &[$(&$id),*];
    };
}

table! {
    CPU_SECONDS: "machine_cpu_seconds", TICKS, "seconds", ["cpu", "mode"], Stage(Machine),
        "CPU time by mode: user, system, idle, irq, softirq, and steal (taken by the hypervisor).";

    LINK_INFO: "link_info", Gauge(Omit), "", ["interface", "driver", "device"], Stage(Link),
        "The interface's driver and kind of device: hardware, virtio or software. Always 1.";
    LINK_UP: "link_up", Gauge(Sum), "", ["interface"], Stage(Link), "Whether the interface is up.";
    LINK_SPEED: "link_speed_bits_per_second", Gauge(Omit), "bits_per_second", ["interface"], Stage(Link),
        "Nominal rate of the interface.";
    LINK_QUEUES: "link_queues", Gauge(Sum), "queues", ["interface", "direction"], Stage(Link), "Queues of the interface in use, by direction.";
    LINK_RING: "link_ring_descriptors", Gauge(Omit), "descriptors", ["interface", "direction"], Stage(Link),
        "Length of a queue's ring.";
    LINK_RECEIVE_PACKETS: "link_receive_packets", ONE, "packets", ["interface"], Stage(Link),
        "Packets that the interface received.";
    LINK_RECEIVE_BYTES: "link_receive_bytes", ONE, "bytes", ["interface"], Stage(Link), "Bytes that the interface received.";
    LINK_TRANSMIT_PACKETS: "link_transmit_packets", ONE, "packets", ["interface"], Stage(Link),
        "Packets that the interface sent.";
    LINK_TRANSMIT_BYTES: "link_transmit_bytes", ONE, "bytes", ["interface"], Stage(Link), "Bytes that the interface sent.";

    RSS_RECEIVE_PACKETS: "rss_receive_packets", ONE, "packets", ["interface", "queue"], Stage(Rss),
        "Packets that a receive queue received.";
    RSS_RECEIVE_BYTES: "rss_receive_bytes", ONE, "bytes", ["interface", "queue"], Stage(Rss), "Bytes that a receive queue received.";
    RSS_DROPPED_PACKETS: "rss_dropped_packets", ONE, "packets", ["interface", "queue"], Stage(Rss),
        "Packets that a receive queue dropped because it had no free buffers or descriptors. Drivers add them to the interface's drops, too.";

    IRQ_HANDLED: "irq_handled_interrupts", ONE, "interrupts", ["interface", "queue"], Stage(Irq),
        "Interrupts of a queue; the label queue is the receive queue, otherwise the transmit queue, otherwise none.";
    IRQ_CPU: "irq_cpu", Gauge(Omit), "", ["interface", "queue"], Stage(Irq),
        "The CPU that handles the interrupt of a queue; absent if several CPUs may.";

    SOFTIRQ_PROCESSED: "softirq_processed_packets", ONE, "packets", ["cpu"], Stage(Softirq),
        "Packets that a CPU processed in NET_RX; RPS makes a packet count on both CPUs.";
    SOFTIRQ_DROPPED: "softirq_dropped_packets", ONE, "packets", ["cpu"], Stage(Softirq),
        "Packets dropped because the backlog of the CPU was full, in all network namespaces.";
    SOFTIRQ_SQUEEZES: "softirq_squeezes", ONE, "squeezes", ["cpu"], Stage(Softirq),
        "Runs of NET_RX that ended with packets left, because budget or time was used up.";
    SOFTIRQ_RPS: "softirq_rps_wakeups", ONE, "wakeups", ["cpu"], Stage(Softirq),
        "Times another CPU woke this CPU to hand over packets (RPS).";
    SOFTIRQ_FLOW_LIMITED: "softirq_flow_limited_packets", ONE, "packets", ["cpu"], Stage(Softirq),
        "Packets dropped by the flow limit; softirq_dropped_packets includes them.";
    SOFTIRQ_RUNS: "softirq_net_rx_runs", ONE, "runs", ["cpu"], Stage(Softirq), "Runs of NET_RX.";
    SOFTIRQ_BACKLOG: "softirq_backlog_packets", Gauge(Sum), "packets", ["cpu"], Stage(Softirq),
        "Packets that wait in a CPU's backlog.";
    SOFTIRQ_BACKLOG_LIMIT: "softirq_backlog_limit_packets", Gauge(Highest), "packets", [], Stage(Softirq),
        "Packets that may wait in the backlog of each CPU (net.core.netdev_max_backlog).";
    SOFTIRQ_RPS_CPUS: "softirq_rps_cpus", Gauge(Omit), "cpus", ["interface", "queue"], Stage(Softirq),
        "CPUs to which RPS hands the packets of a queue; 0 if RPS is off.";

    FILTER_PROGRAMS: "filter_programs", Gauge(Sum), "programs", ["interface", "hook"], Stage(Filter),
        "BPF programs and filters at the hooks xdp, tc_ingress and tc_egress.";
    FILTER_HOOKS: "filter_hook_functions", Gauge(Sum), "functions", ["family", "hook"], Stage(Filter),
        "Functions registered at the hooks of netfilter.";
    CONNTRACK_ENTRIES: "filter_conntrack_entries", Gauge(Sum), "entries", [], Stage(Filter),
        "Entries of connection tracking.";
    CONNTRACK_LIMIT: "filter_conntrack_limit_entries", Gauge(Highest), "entries", [], Stage(Filter),
        "Maximum number of entries of connection tracking.";
    CONNTRACK_EVENTS: "filter_conntrack_events", ONE, "events", ["event"], Stage(Filter),
        "Events of connection tracking, such as invalid packets, or entries evicted from a full table (early_drop).";

    ROUTE_RECEIVE_PACKETS: "route_receive_packets", ONE, "packets", ["family"], Stage(Route),
        "Packets that the IP layer received: ipv4, ipv6.";
    ROUTE_DELIVERED_PACKETS: "route_delivered_packets", ONE, "packets", ["family"], Stage(Route),
        "Packets that the IP layer delivered to UDP, TCP and other protocols.";

    UDP_RECEIVE_DATAGRAMS: "udp_receive_datagrams", ONE, "datagrams", ["family"], Stage(Socket),
        "Datagrams that applications read, of all sockets of the network namespace.";
    UDP_TRANSMIT_DATAGRAMS: "udp_transmit_datagrams", ONE, "datagrams", ["family"], Stage(Socket),
        "Datagrams that applications sent.";
    UDP_ERRORS: "udp_error_datagrams", ONE, "datagrams", ["family", "reason"], Stage(Socket),
        "Datagrams that UDP lost: no_port, receive_buffer, checksum, memory, send_buffer.";
    SOCKETS: "socket_sockets", Gauge(Sum), "sockets", ["protocol", "port"], Stage(Socket),
        "Unconnected UDP sockets and TCP listeners; port is ephemeral for ports that the kernel assigns to clients.";
    SOCKET_QUEUED: "socket_queued_bytes", Gauge(Sum), "bytes", ["protocol", "port"], Stage(Socket),
        "Memory charged for datagrams that wait in the sockets of a port.";
    SOCKET_BUFFER: "socket_buffer_bytes", Gauge(Sum), "bytes", ["protocol", "port"], Stage(Socket),
        "Receive buffers of the sockets of a port, together.";
    SOCKET_FILL: "socket_fill_ratio", Gauge(Highest), "ratio", ["protocol", "port"], Stage(Socket),
        "Fill level of the fullest receive buffer of a port at the moment of the scrape, 0 to 1.";
    SOCKET_DROPPED: "socket_dropped_packets", ONE, "packets", ["protocol", "port"], Stage(Socket),
        "Packets dropped because the receive buffer of a socket was full.";
    SOCKET_STEERING: "socket_steering_info", Gauge(Omit), "", ["protocol", "port", "steering"], Stage(Socket),
        "How the kernel chooses among the sockets of a reuseport group: hash, cpu, program. Always 1.";

    THREAD_CPU_SECONDS: "thread_cpu_seconds", TICKS, "seconds", ["port", "mode"], Stage(Thread),
        "CPU time of the threads that serve a port, in user mode and in the kernel; port is several for threads that serve several ports.";
    THREADS: "thread_threads", Gauge(Sum), "threads", ["port"], Stage(Thread), "Threads that serve a port.";
    THREAD_ID_SECONDS: "thread_id_cpu_seconds", TICKS, "seconds", ["pid", "tid", "port", "mode"], Stage(Thread),
        "CPU time of each thread that serves a port, by process and thread ID; only with --with pids.";

    TRANSMIT_PACKETS: "transmit_packets", ONE, "packets", ["interface", "queue"], Stage(Transmit),
        "Packets that a transmit queue sent.";
    TRANSMIT_TIMEOUTS: "transmit_timeouts", ONE, "timeouts", ["interface", "queue"], Stage(Transmit),
        "Times the watchdog found a transmit queue stuck.";
    QDISC_PACKETS: "transmit_qdisc_packets", ONE, "packets", ["interface"], Stage(Transmit),
        "Packets that the root queueing discipline sent.";
    QDISC_REQUEUES: "transmit_qdisc_requeues", ONE, "requeues", ["interface"], Stage(Transmit),
        "Packets that went back into the root queueing discipline because the driver was busy.";
    QDISC_BACKLOG: "transmit_qdisc_backlog_packets", Gauge(Sum), "packets", ["interface"], Stage(Transmit),
        "Packets that wait in the root queueing discipline.";

    LOST_PACKETS: "lost_packets", ONE, "packets", ["stage", "reason", "interface", "port"], Path,
        "Lost packets by stage and reason, each counted once; reason is the name of the kernel's or driver's counter, or backlog, receive_buffer, qdisc.";
    FINDINGS: "findings", Gauge(Sum), "", ["id", "severity"], Findings,
        "Number of places with this finding of doctor, from this scrape and the one before.";
    UNKNOWN: "unknown", Gauge(Sum), "", ["what", "why"], Path,
        "Number of values that could not be read, and why: denied, missing, unsupported, other.";

    DROPS_LOST: "drops_lost_packets", ONE, "packets", ["direction", "reason"], Drops,
        "UDP packets that the kernel dropped, by the drop reason of skb:kfree_skb in lower case.";
    DROPS_PASSED: "drops_passed_packets", ONE, "packets", ["point", "direction"], Drops,
        "UDP packets that passed a point of the packet path.";
    DROPS_MISSED: "drops_missed_events", ONE, "events", [], Drops, "Events of UDP packets that could not be counted.";

    COST_SECONDS: "cost_cpu_seconds", NANOSECONDS, "seconds", ["cpu", "context"], Cost,
        "CPU time spent on packets: net_rx, net_tx, nic_irq.";
    COST_STOLEN: "cost_stolen_seconds", NANOSECONDS, "seconds", ["cpu"], Cost,
        "CPU time spent on packets that was taken from threads, and that top(1) reports as theirs.";
    COST_LOOK: "cost_look_ratio", Gauge(Highest), "ratio", [], Cost,
        "Share of all CPU time that measuring the cost uses, 0 to 1.";

    HEADROOM: "headroom_ratio", Gauge(Omit), "ratio", ["port"], Headroom,
        "Unused share of a service's estimated capacity, 0 to 1; absent without an estimate.";
    HEADROOM_CAPACITY: "headroom_capacity_datagrams_per_second", Gauge(Omit), "datagrams_per_second", ["port"], Headroom,
        "Estimated capacity of a service; absent without an estimate. Datagrams that one read returns (UDP_GRO) count as one.";

    BUILD_INFO: "build_info", Gauge(Omit), "", ["version"], Exporter, "The exporter's version. Always 1.";
    KERNEL_INFO: "kernel_info", Gauge(Omit), "", ["release"], Exporter, "The kernel's release. Always 1.";
    COLLECTOR_UP: "collector_up", Gauge(Omit), "", ["collector"], Exporter,
        "1 if a collector of --with works, 0 if a privilege or a kernel feature is missing.";
    SCRAPE_SECONDS: "scrape_duration_seconds", Gauge(Highest), "seconds", [], Exporter,
        "Duration of the last reading of the host, with its findings.";
    EXPORTER_CPU: "exporter_cpu_seconds", NANOSECONDS, "seconds", [], Exporter, "CPU time of the exporter's process.";
    FOLDED: "folded_series", Gauge(Sum), "series", ["family"], Exporter,
        "Series above --max-series that were summed in one series, whose labels are other; absent if there are none.";
}

/// The family to which a series of this name belongs.
#[cfg(test)]
pub(crate) fn family(series: &str) -> Option<&'static MetricFamily> {
    FAMILIES.iter().copied().find(|family| family.series() == series)
}

/// The table of families as Markdown, which docs/export.md has.
#[cfg(test)]
pub(crate) fn table() -> String {
    let mut text =
        String::from("| metric | type | unit | labels | part | meaning |\n|---|---|---|---|---|---|\n");
    for family in FAMILIES {
        let labels: Vec<String> = family.labels.iter().map(|label| format!("`{label}`")).collect();
        text.push_str(&format!(
            "| `{}` | {} | {} | {} | {} | {} |\n",
            family.series(),
            family.kind_name(),
            family.unit,
            labels.join(" "),
            family.of.name(),
            family.help
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn metric_names_are_valid_openmetrics_and_unique() {
        let mut names = BTreeSet::new();
        for family in FAMILIES {
            let name = family.name;
            assert!(names.insert(name), "{name} twice");
            assert!(name.bytes().all(|letter| letter.is_ascii_lowercase() || letter == b'_'), "{name}");
            assert!(
                family.unit.is_empty() || name.ends_with(&format!("_{}", family.unit)),
                "{name}: {}",
                family.unit
            );
            assert!(!name.ends_with("_total"), "{name}: the encoder adds the suffix");
            // Only gauges may have no unit: a counter counts something.
            assert!(matches!(family.kind, Gauge(_)) || !family.unit.is_empty(), "{name}");
            assert!(
                family.help.ends_with('.') && !family.help.contains(['\n', '|']),
                "{name}: {}",
                family.help
            );
            let labels: BTreeSet<_> = family.labels.iter().collect();
            assert_eq!(labels.len(), family.labels.len(), "{name}");
        }
    }
}
