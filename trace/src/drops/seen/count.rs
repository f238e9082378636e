//! Counts of packets: by point, and by why and where they were lost.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Direction;
use crate::symbols::Symbols;

/// Where a packet is seen, in the order that it passes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Point {
    /// The device's driver gave it to the kernel (`napi_gro_receive_entry`, `netif_receive_skb_entry`, `netif_rx` ...):
    /// behind the ring and native XDP, before GRO and the backlog.
    Arrived,
    /// Protocol processing begins (`netif_receive_skb`): behind the backlog, before generic XDP, taps, tc and netfilter. What
    /// GRO put together counts as what it was made of.
    Received,
    /// It is in a socket's receive buffer (`sk_data_ready`). A multicast packet counts for each socket.
    Delivered,
    /// A socket's receive buffer refused it (`udp_fail_queue_rcv_skb`); it is among [`super::Seen::lost`] too.
    Refused,
    /// The application read it (`sock_recv_length`, not peeking).
    Read,
    /// Of those read: the application's buffer was shorter than the datagram. Seen where the datagram's length was still in the
    /// socket's queue when the one before it was read, or when it arrived; see [`Point::LengthUnknown`].
    Truncated,
    /// Of those read: their length was not seen, so that whether they were cut is not known.
    LengthUnknown,
    /// The application sent it (`sock_send_length`): before its own netfilter hooks.
    Sent,
    /// A system call to send it failed (`sock_send_length` below zero, not EAGAIN).
    SendFailed,
    /// It is given to a device's qdisc (`net_dev_queue`): behind routing and netfilter.
    Queued,
    /// It is given to the driver (`net_dev_start_xmit`): behind the qdisc.
    Started,
    /// The driver took it (started, and not busy).
    Transmitted,
    /// The driver refused it (`net_dev_xmit`, busy): it goes back into the qdisc, and starts again.
    Busy,
}

/// Packets that passed a point.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Passed {
    /// Where.
    pub point: Point,
    /// Which way.
    pub direction: Direction,
    /// Inode of the network namespace.
    pub network: u32,
    /// Index of the device; none at a socket.
    pub device: Option<u32>,
    /// Datagrams on the wire: an aggregate counts as its segments. At sockets: datagrams as the socket sees them.
    pub packets: u64,
}

/// Packets that the kernel threw away (`kfree_skb`), for one reason at one place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// Which way.
    pub direction: Direction,
    /// Name of this kernel's `enum skb_drop_reason`, without `SKB_DROP_REASON_`: none before Linux 5.17,
    /// where [`super::Seen::notes`] says so.
    pub reason: Option<String>,
    /// The function that threw it away; none where addresses are hidden, which [`super::Seen::notes`] tell.
    pub function: Option<String>,
    /// Where in it: `function+0x1f [module]`, or the address.
    pub location: String,
    /// Inode of the network namespace; zero where the packet had neither device nor socket.
    pub network: u32,
    /// Index of the device that it came from or was to leave by; none where it had none then.
    pub device: Option<u32>,
    /// The server's port; zero where none was asked for.
    pub port: u16,
    /// Datagrams: an aggregate counts as its segments.
    pub packets: u64,
}

/// `struct passed_key` of bpf/drops.bpf.c: network, device, point, direction.
pub(super) type Key = [u32; 4];

/// `struct lost_key`, in words of 8 bytes: location; reason and network; device, port and direction.
pub(super) type LostKey = [u64; 3];

/// What the programs counted, as the kernel keeps it.
#[derive(Debug)]
pub(super) struct Counted {
    pub(super) passed: BTreeMap<Key, u64>,
    pub(super) lost: BTreeMap<LostKey, u64>,
    pub(super) notes: Notes,
}

/// What was not counted as a packet that passed or was lost.
#[derive(Debug)]
pub(super) struct Notes {
    pub(super) missed: u64,
    pub(super) fragments: u64,
    pub(super) unparsed: u64,
    pub(super) lost_fragments: u64,
    pub(super) lost_unparsed: u64,
}

/// In the order of `enum point` of bpf/drops.h.
const POINTS: [Point; 13] = [
    Point::Arrived,
    Point::Received,
    Point::Delivered,
    Point::Refused,
    Point::Read,
    Point::Truncated,
    Point::LengthUnknown,
    Point::Sent,
    Point::SendFailed,
    Point::Queued,
    Point::Started,
    Point::Transmitted,
    Point::Busy,
];

fn direction(number: u32) -> Direction {
    if number == 0 { Direction::Request } else { Direction::Reply }
}

/// Packets by point. What a driver took is what it was given less what it gave back: when it has taken a packet, the
/// packet may be gone, and is not looked at.
pub(super) fn passed(counted: &BTreeMap<Key, u64>) -> Vec<Passed> {
    let mut packets: BTreeMap<PassedKey, u64> = BTreeMap::new();
    for ([network, device, point, way], count) in counted {
        let Some(point) = usize::try_from(*point).ok().and_then(|point| POINTS.get(point)) else { continue };
        let device = (*device != 0).then_some(*device);
        packets.insert((*point, direction(*way), *network, device), *count);
    }
    let started: Vec<(PassedKey, u64)> = packets
        .iter()
        .filter(|((point, ..), _)| *point == Point::Started)
        .map(|(key, count)| (*key, *count))
        .collect();
    for ((_, direction, network, device), count) in started {
        let busy = packets.get(&(Point::Busy, direction, network, device)).copied().unwrap_or(0);
        packets.insert((Point::Transmitted, direction, network, device), count.saturating_sub(busy));
    }
    let rows = packets.into_iter().map(|((point, direction, network, device), packets)| Passed {
        point,
        direction,
        network,
        device,
        packets,
    });
    rows.collect()
}

/// Packets that were thrown away, named. A copy that a packet socket had no room for is none of them (`packet_rcv` and
/// `tpacket_rcv`, net/packet/af_packet.c), nor is part of an aggregate, which was counted as a whole and is freed with it
/// (`skb_release_data`, net/core/skbuff.c; Linux 6.18).
pub(super) fn lost(
    counted: &BTreeMap<LostKey, u64>,
    reasons: Option<&BTreeMap<u32, String>>,
    symbols: &Symbols,
) -> Vec<Lost> {
    let rows = counted.iter().filter_map(|([address, why, whose], packets)| {
        let (reason, network) = halves(*why);
        let (device, rest) = halves(*whose);
        let [low, high, ..] = rest.to_ne_bytes();
        let port = u16::from_ne_bytes([low, high]);
        let [.., low, high] = rest.to_ne_bytes();
        let way = u16::from_ne_bytes([low, high]);
        let symbol = symbols.name(*address).into_value();
        let location = symbol.as_ref().map_or_else(|| format!("{address:#x}"), ToString::to_string);
        let function = symbol.map(|symbol| symbol.name);
        (!function.as_deref().is_some_and(is_no_loss)).then(|| Lost {
            direction: direction(u32::from(way)),
            reason: reasons.map(|names| named(names, reason)),
            function,
            location,
            network,
            device: (device != 0).then_some(device),
            port,
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

type PassedKey = (Point, Direction, u32, Option<u32>);

fn passed_key(passed: &Passed) -> PassedKey {
    (passed.point, passed.direction, passed.network, passed.device)
}

/// Differences; what did not change is left out.
pub(super) fn passed_since(later: &[Passed], earlier: &[Passed]) -> Vec<Passed> {
    let before: BTreeMap<PassedKey, u64> =
        earlier.iter().map(|passed| (passed_key(passed), passed.packets)).collect();
    let changed = later.iter().filter_map(|passed| {
        let was = before.get(&passed_key(passed)).copied().unwrap_or(0);
        let packets = passed.packets.saturating_sub(was);
        (packets > 0).then(|| Passed { packets, ..passed.clone() })
    });
    changed.collect()
}

/// Differences; what did not change is left out.
pub(super) fn lost_since(later: &[Lost], earlier: &[Lost]) -> Vec<Lost> {
    let same = |one: &Lost, other: &Lost| {
        (one.direction, one.network, one.device, one.port)
            == (other.direction, other.network, other.device, other.port)
            && one.reason == other.reason
            && one.location == other.location
    };
    let changed = later.iter().filter_map(|lost| {
        let was = earlier.iter().find(|before| same(before, lost)).map_or(0, |before| before.packets);
        let packets = lost.packets.saturating_sub(was);
        (packets > 0).then(|| Lost { packets, ..lost.clone() })
    });
    changed.collect()
}
