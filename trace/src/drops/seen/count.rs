//! Counts of packets: by point, and by why and where they were lost.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::PacketDirection;
use crate::symbols::KernelSymbols;

/// Where a packet is seen, in the order that it passes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PathPoint {
    /// It enters the network namespace (`netif_receive_skb`): behind the backlog, before generic XDP, taps, tc and netfilter.
    /// What GRO put together counts as what it was made of. A copy that a bridge makes counts as one more.
    Received,
    /// It is in a socket's receive buffer (`sk_data_ready`). A multicast packet counts for each socket.
    Delivered,
    /// The application read it (`sock_recv_length`, not peeking).
    Read,
    /// Of those read: the application's buffer was shorter than the datagram. Seen where the datagram was at the head of the
    /// socket's queue before; see [`PathPoint::LengthUnknown`].
    Truncated,
    /// Of those read: their length was not seen, so that whether they were cut is not known.
    LengthUnknown,
    /// The application sent it (`sock_send_length`): before its own netfilter hooks.
    Sent,
    /// A system call to send it failed (`sock_send_length` below zero, not EAGAIN).
    SendFailed,
    /// Sent by this host and given to a device's qdisc (`net_dev_queue`): behind routing and netfilter.
    Queued,
    /// The same of a packet that came by a device, to a router, a bridge or a NAT host.
    Forwarded,
}

/// Packets that passed a point.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PassedCount {
    pub point: PathPoint,
    pub direction: PacketDirection,
    /// Datagrams on the wire: an aggregate counts as its segments. At sockets: datagrams as the socket sees them.
    pub packets: u64,
}

/// Where a packet came from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PacketOrigin {
    /// This host made it.
    Local,
    /// It came by a device.
    #[default]
    Received,
    /// It was about to: its device, XDP or a backlog had it.
    Arriving,
}

/// Packets that the kernel threw away (`kfree_skb`), for one reason at one place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostCount {
    pub direction: PacketDirection,
    /// Name of this kernel's `enum skb_drop_reason`, without `SKB_DROP_REASON_`: none before Linux 5.17,
    /// where [`super::PacketCounts::notes`] says so.
    pub reason: Option<String>,
    /// The function that threw it away; none where addresses are hidden, which [`super::PacketCounts::notes`] tell.
    pub function: Option<String>,
    /// Where in it: `function+0x1f [module]`, or the address.
    pub location: String,
    /// Inode of the network namespace; zero where the packet had neither device nor socket.
    pub network: u32,
    /// Index of the device that it came from or was to leave by; none where it had none then.
    pub device: Option<u32>,
    /// The server's port; zero where none was asked for.
    pub port: u16,
    /// Where it came from.
    #[serde(default)]
    pub origin: PacketOrigin,
    /// Error of the route that it had (`EINVAL` of a blackhole, `EACCES` of a prohibition); zero where it had none.
    #[serde(default)]
    pub route_error: i32,
    /// Netfilter's hook that it was at, if it was at one: `input`.
    #[serde(default)]
    pub hook: Option<String>,
    /// Datagrams: an aggregate counts as its segments.
    pub packets: u64,
}

/// `struct lost_key` of bpf/drops.bpf.c, in words of 8 bytes: location; reason and network; device, port, direction and
/// origin; the route's error and the hook.
pub(super) type LostKey = [u64; 4];

/// In the order of `enum point` of bpf/drops.h; none for what is not told by itself.
const POINTS: [Option<PathPoint>; 10] = [
    Some(PathPoint::Received),
    Some(PathPoint::Delivered),
    // Buffers that were delivered, in which several datagrams may be.
    None,
    Some(PathPoint::Read),
    Some(PathPoint::Truncated),
    Some(PathPoint::LengthUnknown),
    Some(PathPoint::Sent),
    Some(PathPoint::SendFailed),
    Some(PathPoint::Queued),
    Some(PathPoint::Forwarded),
];

const DIRECTIONS: usize = 2;

/// `enum note` of bpf/drops.h.
const NOTES: usize = 6;

/// `struct counters`, its last word not counted.
pub(super) const COUNTERS: usize = POINTS.len() * DIRECTIONS + NOTES + 1;

/// `enum hook`.
const HOOKS: [Option<&str>; 7] = [
    None,
    Some("ingress"),
    Some("prerouting"),
    Some("input"),
    Some("forward"),
    Some("output"),
    Some("postrouting"),
];

/// What the programs counted on all CPUs, as the kernel keeps it. One CPU may have taken back what another counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DropCounters([u64; COUNTERS]);

/// What was not counted as a packet that passed or was lost.
#[derive(Debug)]
pub(super) struct CountNotes {
    pub(super) missed: u64,
    pub(super) fragments: u64,
    pub(super) unparsed: u64,
    pub(super) lost_fragments: u64,
    pub(super) lost_unparsed: u64,
    pub(super) copies: u64,
}

impl DropCounters {
    pub(super) fn of(cpus: &[[u64; COUNTERS]]) -> Self {
        Self(std::array::from_fn(|word| cpus.iter().fold(0, |sum: u64, cpu| sum.wrapping_add(cpu[word]))))
    }

    pub(super) fn notes(&self) -> CountNotes {
        let [.., missed, fragments, unparsed, lost_fragments, lost_unparsed, copies, _] = self.0;
        CountNotes { missed, fragments, unparsed, lost_fragments, lost_unparsed, copies }
    }

    fn at(&self, point: usize, direction: usize) -> u64 {
        self.0[point * DIRECTIONS + direction]
    }

    /// Packets by point, without those where none passed. A read takes a whole buffer, of which a socket with UDP_GRO can
    /// have several datagrams in one: as many as were delivered, on average.
    pub(super) fn passed(&self) -> Vec<PassedCount> {
        let mut rows = Vec::new();
        for (index, point) in POINTS.iter().enumerate() {
            let Some(point) = *point else { continue };
            for (way, direction) in [PacketDirection::Request, PacketDirection::Reply].into_iter().enumerate()
            {
                let packets = match (point, self.at(1, way), self.at(2, way)) {
                    (PathPoint::Read, datagrams, buffers) if buffers > 0 && datagrams != buffers => {
                        let read = u128::from(self.at(index, way)) * u128::from(datagrams);
                        u64::try_from(read / u128::from(buffers)).unwrap_or(u64::MAX)
                    }
                    _ => self.at(index, way),
                };
                if packets > 0 {
                    rows.push(PassedCount { point, direction, packets });
                }
            }
        }
        rows
    }
}

fn direction(number: u32) -> PacketDirection {
    if number == 0 { PacketDirection::Request } else { PacketDirection::Reply }
}

/// Packets that were thrown away, named. A copy that a packet socket had no room for is none of them (`packet_rcv` and
/// `tpacket_rcv`, net/packet/af_packet.c), nor is part of an aggregate, which was counted as a whole and is freed with it
/// (`skb_release_data`, net/core/skbuff.c; Linux 6.18).
pub(super) fn lost(
    counted: &BTreeMap<LostKey, u64>,
    reasons: Option<&BTreeMap<u32, String>>,
    symbols: &KernelSymbols,
) -> Vec<LostCount> {
    let rows = counted.iter().filter_map(|([address, why, whose, how], packets)| {
        let (reason, network) = halves(*why);
        let (device, rest) = halves(*whose);
        let [low, high, way, origin] = rest.to_ne_bytes();
        let port = u16::from_ne_bytes([low, high]);
        let (route_error, hook) = halves(*how);
        let symbol = symbols.name(*address).into_value();
        let location = symbol.as_ref().map_or_else(|| format!("{address:#x}"), ToString::to_string);
        let function = symbol.map(|symbol| symbol.name);
        (!function.as_deref().is_some_and(is_no_loss)).then(|| LostCount {
            direction: direction(u32::from(way)),
            reason: reasons.map(|names| named(names, reason)),
            function,
            location,
            network,
            device: (device != 0).then_some(device),
            port,
            origin: match origin {
                0 => PacketOrigin::Local,
                1 => PacketOrigin::Received,
                _ => PacketOrigin::Arriving,
            },
            route_error: i32::from_ne_bytes(route_error.to_ne_bytes()),
            hook: HOOKS.get(hook as usize).copied().flatten().map(str::to_owned),
            packets: *packets,
        })
    });
    rows.collect()
}

fn is_no_loss(function: &str) -> bool {
    ["packet_rcv", "tpacket_rcv", "skb_release_data"].iter().any(|prefix| function.starts_with(prefix))
}

/// Subsystems have reasons of their own, in the upper half (include/net/dropreason.h, Linux 6.4); those have no name here.
fn named(names: &BTreeMap<u32, String>, reason: u32) -> String {
    names.get(&reason).cloned().unwrap_or_else(|| format!("reason {reason:#x}"))
}

/// The two halves of a word as they lie in memory.
fn halves(word: u64) -> (u32, u32) {
    let bytes = word.to_ne_bytes();
    let half = |at: usize| bytes[at..].first_chunk().map_or(0, |half| u32::from_ne_bytes(*half));
    (half(0), half(4))
}

type PassedKey = (PathPoint, PacketDirection);

fn passed_key(passed: &PassedCount) -> PassedKey {
    (passed.point, passed.direction)
}

/// Differences; what did not change is left out.
pub(super) fn passed_since(later: &[PassedCount], earlier: &[PassedCount]) -> Vec<PassedCount> {
    let before: BTreeMap<PassedKey, u64> =
        earlier.iter().map(|passed| (passed_key(passed), passed.packets)).collect();
    let changed = later.iter().filter_map(|passed| {
        let was = before.get(&passed_key(passed)).copied().unwrap_or(0);
        let packets = passed.packets.saturating_sub(was);
        (packets > 0).then(|| PassedCount { packets, ..passed.clone() })
    });
    changed.collect()
}

pub(super) fn passed_joined(one: &[PassedCount], other: &[PassedCount]) -> Vec<PassedCount> {
    let mut joined = one.to_vec();
    for passed in other {
        match joined.iter_mut().find(|before| passed_key(before) == passed_key(passed)) {
            Some(before) => before.packets = before.packets.saturating_add(passed.packets),
            None => joined.push(passed.clone()),
        }
    }
    joined
}

pub(super) fn lost_joined(one: &[LostCount], other: &[LostCount]) -> Vec<LostCount> {
    let mut joined = one.to_vec();
    for lost in other {
        match joined.iter_mut().find(|before| is_same_loss(before, lost)) {
            Some(before) => before.packets = before.packets.saturating_add(lost.packets),
            None => joined.push(lost.clone()),
        }
    }
    joined
}

fn is_same_loss(one: &LostCount, other: &LostCount) -> bool {
    (one.direction, one.network, one.device, one.port)
        == (other.direction, other.network, other.device, other.port)
        && (one.origin, one.route_error, &one.hook) == (other.origin, other.route_error, &other.hook)
        && one.reason == other.reason
        && one.location == other.location
}

/// Differences; what did not change is left out.
pub(super) fn lost_since(later: &[LostCount], earlier: &[LostCount]) -> Vec<LostCount> {
    let changed = later.iter().filter_map(|lost| {
        let was = earlier.iter().find(|before| is_same_loss(before, lost)).map_or(0, |before| before.packets);
        let packets = lost.packets.saturating_sub(was);
        (packets > 0).then(|| LostCount { packets, ..lost.clone() })
    });
    changed.collect()
}
