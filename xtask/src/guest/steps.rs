//! Changes by hand, and the findings of doctor after each.

use super::machine::GuestVariant;
use super::traffic::FlowCount;

// A change by hand and the findings that doctor must report after it. Changes add up.
pub(super) struct ManualStep {
    pub(super) what: &'static str,
    /// A shell script.
    pub(super) change: &'static str,
    /// Traffic to `vnet0` while doctor runs.
    pub(super) traffic: Option<FlowCount>,
    /// Doctor's arguments.
    pub(super) doctor: &'static str,
    /// Findings that doctor must report.
    pub(super) present: &'static [&'static str],
    // Findings that doctor must not report.
    pub(super) absent: &'static [&'static str],
}

/// The base of steps that change nothing and check all interfaces.
pub(super) const UNCHANGED: ManualStep =
    ManualStep { what: "", change: "", traffic: None, doctor: "", present: &[], absent: &[] };

/// The steps of a variant.
pub(super) fn for_variant(variant: GuestVariant) -> &'static [ManualStep] {
    match variant {
        GuestVariant::TwoNodes => &TWO_NODES,
        GuestVariant::OneNode => &ONE_NODE,
        GuestVariant::Smt => &SMT,
        GuestVariant::OneQueue => &ONE_QUEUE,
        // `plans` checks the other variants.
        _ => &[],
    }
}

/// An igb with the settings of its driver, fixed step by step, and a virtio-net under load.
const TWO_NODES: [ManualStep; 9] = [
    ManualStep {
        what: "igb as its driver leaves it",
        doctor: "--interface igb0",
        present: &[
            "rss.hash-without-ports",
            "transmit.xps-missing",
            "softirq.rps-missing",
            "link.queues-below-cpus",
        ],
        absent: &["link.single-queue"],
        ..UNCHANGED
    },
    ManualStep {
        what: "ports in the hash",
        change: "ethtool -N igb0 rx-flow-hash udp4 sdfn && ethtool -N igb0 rx-flow-hash udp6 sdfn",
        doctor: "--interface igb0",
        present: &["transmit.xps-missing", "softirq.rps-missing"],
        absent: &["rss.hash-without-ports"],
        ..UNCHANGED
    },
    ManualStep {
        what: "a transmit queue for each CPU",
        change: r#"for queue in 0 1 2 3 4 5 6 7; do
            printf %x $(( (0x10101 << queue) & 0xfffff )) >/sys/class/net/igb0/queues/tx-$queue/xps_cpus || exit
        done"#,
        doctor: "--interface igb0",
        present: &["softirq.rps-missing"],
        absent: &["rss.hash-without-ports", "transmit.xps-missing"],
        ..UNCHANGED
    },
    ManualStep {
        what: "packets handed on to the CPUs without a queue",
        // The interrupts are on CPUs of node 1; half of the packets leave the node.
        change: r#"for queue in 0 1 2 3 4 5 6 7; do
            printf %x $(( (0x10101 << queue) & 0xfffff )) >/sys/class/net/igb0/queues/rx-$queue/rps_cpus || exit
        done"#,
        doctor: "--interface igb0",
        present: &["softirq.rps-crosses-node"],
        absent: &[
            "rss.hash-without-ports",
            "transmit.xps-missing",
            "softirq.rps-missing",
            "link.queues-below-cpus",
        ],
        ..UNCHANGED
    },
    ManualStep {
        // Most of its queues have had no interrupt yet, so their affinity is not in effect.
        what: "virtio-net as its driver leaves it",
        doctor: "--interface vnet0",
        absent: &[
            "irq.stacked",
            "irq.not-hint",
            "irq.one-node",
            "transmit.xps-missing",
            "transmit.xps-wrong",
            "softirq.rps-missing",
            "link.queues-below-cpus",
        ],
        ..UNCHANGED
    },
    ManualStep {
        what: "4 of the 20 queues of virtio-net",
        change: "ethtool -L vnet0 combined 4",
        doctor: "--interface vnet0",
        present: &["link.queues-below-cpus"],
        ..UNCHANGED
    },
    ManualStep {
        what: "all queues of virtio-net",
        change: "ethtool -L vnet0 combined 20",
        doctor: "--interface vnet0",
        absent: &["link.queues-below-cpus"],
        ..UNCHANGED
    },
    ManualStep {
        what: "one flow to virtio-net",
        change: SERVER,
        traffic: Some(FlowCount::One),
        doctor: "--interface vnet0 --interval 5",
        present: &["softirq.skew"],
        ..UNCHANGED
    },
    ManualStep {
        what: "many flows to virtio-net",
        traffic: Some(FlowCount::Many),
        doctor: "--interface vnet0 --interval 5",
        absent: &[
            "softirq.skew",
            "rss.single-flow",
            "rss.queue-imbalance",
            "irq.stacked",
            "irq.not-hint",
            "irq.one-node",
        ],
        ..UNCHANGED
    },
];

// Starts a server and waits until it listens; before that, ICMP errors answer the datagrams.
const SERVER: &str = "linerate serve echo --bind 198.18.82.2:4000 >/run/server 2>&1 &
    until ss -Huln 'sport = :4000' | grep -q .; do sleep 0.1; done";

const ONE_NODE: [ManualStep; 1] = [ManualStep {
    what: "igb with one node",
    doctor: "--interface igb0",
    present: &["rss.hash-without-ports", "transmit.xps-missing", "softirq.rps-missing"],
    absent: &["irq.one-node", "link.far-node", "softirq.rps-crosses-node", "machine.smt"],
    ..UNCHANGED
}];

const SMT: [ManualStep; 1] =
    [ManualStep { what: "two threads a core", present: &["machine.smt"], ..UNCHANGED }];

const ONE_QUEUE: [ManualStep; 1] = [ManualStep {
    what: "virtio-net with one queue",
    doctor: "--interface vnet0",
    present: &["link.single-queue"],
    absent: &["link.queues-below-cpus"],
    ..UNCHANGED
}];
