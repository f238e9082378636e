//! Explanations of unaccounted packets.

use super::evidence::{CounterUse, PacketEvidence};
use super::{AccountingPath, PathStep, StageEntry, device};
use crate::drops::packet_counts::{CountedEvent, PacketDirection};

/// A smaller part of the packets can be in flight at the ends of the time.
const IN_FLIGHT_PART: u64 = 1000;

/// Adds possible explanations to each stage with a gap.
pub(super) fn explain(evidence: &PacketEvidence, path: &mut AccountingPath, direction: PacketDirection) {
    for entry in &mut path.stages {
        let Some(gap) = entry.unaccounted.value().copied().filter(|gap| *gap != 0) else { continue };
        entry.likely = likely(evidence, entry, direction, gap);
    }
}

fn likely(
    evidence: &PacketEvidence,
    entry: &StageEntry,
    direction: PacketDirection,
    gap: i64,
) -> Vec<String> {
    let mut lines = Vec::new();
    let missed = evidence.seen.event_count(CountedEvent::Missed);
    if missed > 0 {
        lines.push(format!("{missed} events that the programs could not count"));
    }
    let passed = entry.packets_in.value().copied().unwrap_or_default();
    let in_flight = "packets that were on their way when counting began or ended".to_owned();
    let is_small = gap.unsigned_abs() <= (passed / IN_FLIGHT_PART).max(64);
    if is_small {
        lines.push(in_flight.clone());
    }
    lines.extend(counters(evidence, entry.stage, direction, gap));
    let known_gaps = GAPS.iter().filter(|(place, _)| *place == (direction, entry.stage, gap < 0));
    lines.extend(known_gaps.flat_map(|(_, texts)| *texts).map(|text| (*text).to_owned()));
    if !is_small {
        lines.push(in_flight);
    }
    lines
}

use PacketDirection::{Reply, Request};

/// A direction, a step, and whether more left than came in.
type GapPlace = (PacketDirection, PathStep, bool);

const GAPS: &[(GapPlace, &[&str])] = &[
    (
        (Request, PathStep::Softirq, false),
        &[
            "the generator's own host: its qdisc, its device, or no route to here",
            "the wire, or a switch between",
            "AF_XDP sockets and XDP programs that take packets without a counter",
            "another network namespace of this host: only this one's packets are counted",
            "packets that GRO held back",
            "packets that came while the kernel ran no programs, and that no socket counted either",
        ],
    ),
    (
        (Request, PathStep::Softirq, true),
        &[
            "others than the generator that send to the same port",
            "a driver or tunnel that hands packets over past the points where arrivals are counted",
        ],
    ),
    (
        (Request, PathStep::Socket, false),
        &[
            "packets that a macvlan or a switch took from the device (ip link show master)",
            "packets that tc, a tunnel or netfilter sent elsewhere (redirect, NFQUEUE, DNAT to other ports)",
            "packets for sockets of tunnels (VXLAN, WireGuard), which take them past any receive buffer",
            "fragments: several arrive as one datagram",
        ],
    ),
    (
        (Request, PathStep::Socket, true),
        &[
            "multicast: a packet for several sockets",
            "packets from programs on this host that reach the socket past the device",
        ],
    ),
    (
        (Request, PathStep::Application, false),
        &[
            "datagrams that still wait in a socket that is not read",
            "datagrams that are read without a tracepoint (splice, users in the kernel)",
        ],
    ),
    ((Request, PathStep::Application, true), &["datagrams that had waited before counting began"]),
    (
        (Reply, PathStep::Ingress, false),
        &[
            "sends to sockets of this host that leave by no device, and sends that are gathered (MSG_MORE, UDP_CORK)",
        ],
    ),
    ((Reply, PathStep::Transmit, false), &["packets that wait in a queueing discipline"]),
    (
        (Reply, PathStep::Transmit, true),
        &["packets that waited in a queueing discipline, or that netem doubles"],
    ),
    (
        (Reply, PathStep::Wire, false),
        &[
            "replies to others than the generator",
            "further replies to an answered request that did not arrive",
        ],
    ),
    ((Reply, PathStep::Wire, true), &["replies from others than this host"]),
];

/// Growing counters that may be related.
fn counters(evidence: &PacketEvidence, step: PathStep, direction: PacketDirection, gap: i64) -> Vec<String> {
    let kinds: &[CounterUse] = match (direction, step) {
        _ if gap < 0 => &[],
        (PacketDirection::Request, PathStep::Softirq) => {
            &[CounterUse::XdpTaken, CounterUse::DeviceLost, CounterUse::XdpDropped, CounterUse::XdpFailed]
        }
        (PacketDirection::Reply, PathStep::Transmit | PathStep::Wire) => &[CounterUse::DeviceUnsent],
        _ => &[],
    };
    let kind_counters = kinds.iter().flat_map(|kind| evidence.counters_of_kind(*kind));
    let named_counters = NAMED.iter().filter(|(stage, _)| gap > 0 && (direction, step) == *stage);
    let named_counters = named_counters
        .flat_map(|(_, name)| evidence.grown.iter().filter(move |counter| counter.name == *name));
    kind_counters
        .chain(named_counters)
        .map(|counter| format!("{}: {} grew by {}", counter.place, device::source(counter), counter.packets))
        .collect()
}

/// Counters of packets that took another path.
const NAMED: &[((PacketDirection, PathStep), &str)] = &[
    ((Request, PathStep::Socket), "Ip.ReasmReqds"),
    ((Request, PathStep::Socket), "Ip.ReasmFails"),
    ((Request, PathStep::Socket), "Ip.InDiscards"),
    ((Request, PathStep::Socket), "Ip6ReasmReqds"),
    ((Request, PathStep::Socket), "Ip6ReasmFails"),
    ((Reply, PathStep::Ingress), "Ip.OutDiscards"),
    ((Reply, PathStep::Ingress), "Ip.OutNoRoutes"),
    ((Reply, PathStep::Ingress), "Ip6OutDiscards"),
    ((Reply, PathStep::Ingress), "Ip6OutNoRoutes"),
];
