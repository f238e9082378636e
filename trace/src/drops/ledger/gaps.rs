//! Where packets may have gone that no count explains.

use super::evidence::{Evidence, Kind};
use super::{Entry, Step, Way, device};
use crate::drops::seen::{Direction, Network};

/// Fewer than this part of what passed, and packets on their way at the ends of the time explain it.
const IN_FLIGHT_PART: u64 = 1000;

/// Says of each stage with a gap what may be behind it.
pub(super) fn explain(evidence: &Evidence, way: &mut Way, direction: Direction) {
    for entry in &mut way.stages {
        let Some(gap) = entry.unaccounted.value().copied().filter(|gap| *gap != 0) else { continue };
        entry.likely = likely(evidence, entry, direction, gap);
    }
}

fn likely(evidence: &Evidence, entry: &Entry, direction: Direction, gap: i64) -> Vec<String> {
    let mut lines = Vec::new();
    if evidence.seen.missed > 0 {
        lines.push(format!("{} events that the programs could not count", evidence.seen.missed));
    }
    let passed = entry.packets_in.value().copied().unwrap_or_default();
    let in_flight = "packets that were on their way when counting began or ended".to_owned();
    let is_small = gap.unsigned_abs() <= (passed / IN_FLIGHT_PART).max(64);
    if is_small {
        lines.push(in_flight.clone());
    }
    lines.extend(counters(evidence, entry.stage, direction, gap));
    let fixed = GAPS.iter().filter(|candidate| {
        (candidate.direction, candidate.step, candidate.more) == (direction, entry.stage, gap < 0)
    });
    lines.extend(fixed.map(|candidate| candidate.text.to_owned()));
    if evidence.subject.network == Network::All {
        lines.push("packets that passed several network namespaces, and were counted in each".to_owned());
    }
    if !is_small {
        lines.push(in_flight);
    }
    lines
}

/// A gap and what can be behind it.
struct Gap {
    direction: Direction,
    step: Step,
    /// Whether more left than came in.
    more: bool,
    text: &'static str,
}

const fn gap(direction: Direction, step: Step, more: bool, text: &'static str) -> Gap {
    Gap { direction, step, more, text }
}

use Direction::{Reply, Request};

const GAPS: &[Gap] = &[
    gap(
        Request,
        Step::Softirq,
        false,
        "the generator's own host: its qdisc, its device, or no route to here",
    ),
    gap(Request, Step::Softirq, false, "the wire, or a switch between"),
    gap(Request, Step::Softirq, false, "AF_XDP sockets and XDP programs that take packets without a counter"),
    gap(
        Request,
        Step::Softirq,
        false,
        "another network namespace of this host: only this one's packets are counted",
    ),
    gap(Request, Step::Softirq, true, "others than the generator that send to the same port"),
    gap(Request, Step::Softirq, false, "packets that GRO held back"),
    gap(
        Request,
        Step::Softirq,
        false,
        "packets that came while the kernel ran no programs, and that no socket told of either",
    ),
    gap(
        Request,
        Step::Softirq,
        true,
        "a driver or tunnel that hands packets over past the points where arrivals are counted",
    ),
    gap(
        Request,
        Step::Socket,
        false,
        "packets that a macvlan or a switch took from the device (ip link show master)",
    ),
    gap(
        Request,
        Step::Socket,
        false,
        "packets that tc, a tunnel or netfilter sent elsewhere (redirect, NFQUEUE, DNAT to other ports)",
    ),
    gap(
        Request,
        Step::Socket,
        false,
        "packets for sockets of tunnels (VXLAN, WireGuard), which take them past any receive buffer",
    ),
    gap(Request, Step::Socket, false, "fragments: several arrive as one datagram"),
    gap(Request, Step::Socket, true, "multicast: a packet for several sockets"),
    gap(
        Request,
        Step::Socket,
        true,
        "packets from programs on this host that reach the socket past the device",
    ),
    gap(Request, Step::Application, false, "datagrams that still wait in a socket that is not read"),
    gap(
        Request,
        Step::Application,
        false,
        "datagrams that the program reads in a way that no tracepoint tells of (splice, kernel users)",
    ),
    gap(Request, Step::Application, true, "datagrams that had waited before counting began"),
    gap(
        Reply,
        Step::Ingress,
        false,
        "sends to sockets of this host that leave by no device, and sends that are gathered (MSG_MORE, UDP_CORK)",
    ),
    gap(
        Reply,
        Step::Ingress,
        true,
        "calls that send several datagrams (UDP_SEGMENT), and packets that the kernel sends by itself",
    ),
    gap(Reply, Step::Transmit, false, "packets that wait in a queueing discipline"),
    gap(Reply, Step::Transmit, true, "packets that waited in a queueing discipline, or that netem doubles"),
    gap(Reply, Step::Wire, true, "replies from others than this host"),
];

/// Counters that moved meanwhile and can have to do with it.
fn counters(evidence: &Evidence, step: Step, direction: Direction, gap: i64) -> Vec<String> {
    let kinds: &[Kind] = match (direction, step) {
        _ if gap < 0 => &[],
        (Direction::Request, Step::Softirq) => {
            &[Kind::XdpTaken, Kind::DeviceLost, Kind::XdpDropped, Kind::XdpFailed]
        }
        (Direction::Reply, Step::Transmit | Step::Wire) => &[Kind::DeviceUnsent],
        _ => &[],
    };
    let of_kinds = kinds.iter().flat_map(|kind| evidence.of_kind(*kind));
    let named = NAMED.iter().filter(|(at, _)| gap > 0 && (direction, step) == *at);
    let named = named.flat_map(|(_, name)| evidence.grown.iter().filter(move |grown| grown.name == *name));
    of_kinds
        .chain(named)
        .map(|grown| format!("{}: {} grew by {}", grown.place, device::source(grown), grown.packets))
        .collect()
}

/// Counters of the host that tell of packets that went another way.
const NAMED: &[((Direction, Step), &str)] = &[
    ((Request, Step::Socket), "Ip.ReasmReqds"),
    ((Request, Step::Socket), "Ip.ReasmFails"),
    ((Request, Step::Socket), "Ip.InDiscards"),
    ((Request, Step::Socket), "Ip6ReasmReqds"),
    ((Request, Step::Socket), "Ip6ReasmFails"),
    ((Reply, Step::Ingress), "Ip.OutDiscards"),
    ((Reply, Step::Ingress), "Ip.OutNoRoutes"),
    ((Reply, Step::Ingress), "Ip6OutDiscards"),
    ((Reply, Step::Ingress), "Ip6OutNoRoutes"),
];
