//! What a ledger is made of.

use linerate_host::Known;
use serde::{Deserialize, Serialize};

use super::GeneratorSaid;
use crate::drops::seen::{EdgeCounts, PacketCounts, PacketDirection, PathPoint, PortSubject, TraceOverhead};

/// All that is known of packets over a time. A ledger is a pure function of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PacketEvidence {
    pub subject: PortSubject,
    /// What tracepoints saw in that time.
    pub seen: PacketCounts,
    /// By how much counters of the host and its devices grew; those that did not are left out.
    pub grown: Vec<GrownCounter>,
    /// The same of what sockets dropped, read later than tracepoints at the beginning and before them at the end: all of it
    /// was while they told.
    pub within: Vec<GrownCounter>,
    /// What waited at the beginning.
    pub waited: QueuedPackets,
    /// What waits at the end.
    pub waiting: QueuedPackets,
    /// Functions at netfilter's hooks that are not the kernel's own, such as `chain inet filter input hook input`; empty where
    /// unknown.
    pub chains: Vec<String>,
    /// What the generator says, where it is ours.
    pub generator: Option<GeneratorSaid>,
    /// What could not be read, one line each.
    pub unread: Vec<String>,
    pub overhead: Known<TraceOverhead>,
    /// If only parts of the time were counted; all above is of these parts.
    pub sampled: Option<SampledTime>,
}

/// Parts of a time in which packets were counted.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SampledTime {
    /// The whole time, s.
    pub of_seconds: f64,
    /// The most CPU time that counting took while it went on, as a share of one CPU.
    pub counting_cpu_share: f64,
    /// What the sockets looked at dropped in the whole time, as they count it.
    pub socket_drops_packets: u64,
}

/// A counter that grew.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrownCounter {
    /// Where: `eth0`, `cpu 2`, `host`, `conntrack`, `udp 0.0.0.0:53 (named) ino 812`.
    pub place: String,
    /// Its name at its source.
    pub name: String,
    pub kind: CounterUse,
    pub packets: u64,
    /// The file, or the call to the kernel.
    pub read_from: String,
}

/// What a counter is good for in a ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CounterUse {
    /// Frames that ended in the device or its driver before there was a socket buffer: no tracepoint tells of them.
    DeviceLost,
    /// Frames that came damaged.
    DeviceDamaged,
    /// Packets beyond an instance's allowance.
    DeviceAllowance,
    /// Frames that an XDP program dropped.
    XdpDropped,
    /// Frames of which an XDP program, or what it wanted, failed.
    XdpFailed,
    /// Frames that an XDP program sent back or elsewhere.
    XdpTaken,
    /// Frames that a device did not send.
    DeviceUnsent,
    /// Anything else: what others are checked against, or divided by.
    Other,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct QueuedPackets {
    /// Bytes of memory charged to the subject's sockets by what is not read yet, together; none where unknown.
    pub sockets_bytes: Option<u64>,
    /// Packets in queueing disciplines.
    pub disciplines_packets: u64,
    /// Packets in CPUs' backlogs.
    pub backlogs_packets: u64,
}

/// Less memory than the smallest datagram is charged with: its socket buffer and its data (SKB_TRUESIZE, Linux 6.18, is
/// over 700 bytes; 512 leaves room for other kernels).
const LEAST_CHARGE_BYTES: u64 = 512;

impl QueuedPackets {
    fn joined(&self, later: &Self) -> Self {
        Self {
            sockets_bytes: self
                .sockets_bytes
                .zip(later.sockets_bytes)
                .map(|(one, other)| one.saturating_add(other)),
            disciplines_packets: self.disciplines_packets.saturating_add(later.disciplines_packets),
            backlogs_packets: self.backlogs_packets.saturating_add(later.backlogs_packets),
        }
    }

    /// How many datagrams can at most be in the sockets.
    pub(super) fn most_datagrams(&self) -> u64 {
        self.sockets_bytes.map_or(0, |bytes| bytes.div_ceil(LEAST_CHARGE_BYTES))
    }
}

fn grown_joined(one: &[GrownCounter], other: &[GrownCounter]) -> Vec<GrownCounter> {
    let mut joined = one.to_vec();
    for grown in other {
        match joined.iter_mut().find(|before| (&before.place, &before.name) == (&grown.place, &grown.name)) {
            Some(before) => before.packets = before.packets.saturating_add(grown.packets),
            None => joined.push(grown.clone()),
        }
    }
    joined
}

impl PacketEvidence {
    /// What is known of two times, neither of which is part of the other.
    #[must_use]
    pub fn joined(self, later: &Self) -> Self {
        let mut unread = self.unread;
        unread.extend(later.unread.iter().filter(|line| !unread.contains(line)).cloned().collect::<Vec<_>>());
        Self {
            seen: self.seen.joined(&later.seen),
            grown: grown_joined(&self.grown, &later.grown),
            within: grown_joined(&self.within, &later.within),
            waited: self.waited.joined(&later.waited),
            waiting: self.waiting.joined(&later.waiting),
            unread,
            ..later.clone()
        }
    }

    /// By how much counters of this name grew, at all places; a name with a space in it has its place before it.
    pub(super) fn grown(&self, name: &str) -> u64 {
        let (place, name) = name.split_once(' ').map_or((None, name), |(place, name)| (Some(place), name));
        let these = self.grown.iter().filter(|grown| grown.name == name);
        let these = these.filter(|grown| place.is_none_or(|place| grown.place == place));
        these.map(|grown| grown.packets).fold(0, u64::saturating_add)
    }

    /// Counters of a kind, the largest first.
    pub(super) fn of_kind(&self, kind: CounterUse) -> Vec<&GrownCounter> {
        let mut these: Vec<&GrownCounter> = self.grown.iter().filter(|grown| grown.kind == kind).collect();
        these.sort_by_key(|grown| std::cmp::Reverse(grown.packets));
        these
    }

    /// Packets that can have been between two points when counting began and when it ended; see [`EdgeCounts::between`].
    pub(super) fn between(&self, points: &[PathPoint], is_handled: bool) -> (u64, u64) {
        let at = |edge: Option<&EdgeCounts>| edge.map_or(0, |edge| edge.between(points, is_handled));
        (at(self.seen.edges.first()), at(self.seen.edges.last()))
    }

    /// Whether only part of the traffic is looked at, of which the kernel's own counters do not tell apart.
    pub(super) fn is_narrowed(&self) -> bool {
        !self.subject.ports.is_empty() || self.subject.peer.is_some()
    }

    /// Packets that passed a point; unknown where the kernel has no tracepoint there.
    pub(super) fn passed(&self, point: PathPoint, direction: PacketDirection) -> Known<u64> {
        if let Some(peer) = self.subject.peer.filter(|_| is_at_socket(point)) {
            return Known::unknown(format!("a socket does not say which of its datagrams are of {peer}"));
        }
        let tracepoints = tracepoints(point);
        let lacking =
            self.seen.lacking.iter().find(|lacking| tracepoints.iter().any(|name| lacking.contains(name)));
        match lacking {
            Some(lacking) => Known::unknown(format!("this kernel lacks {lacking}")),
            None => Known::Value(self.seen.packets(point, direction)),
        }
    }
}

/// Whether it is a socket that tells of it, and not the packet.
fn is_at_socket(point: PathPoint) -> bool {
    use PathPoint::{Delivered, LengthUnknown, Read, SendFailed, Sent, Truncated};
    matches!(point, Delivered | Read | Truncated | LengthUnknown | Sent | SendFailed)
}

/// The tracepoints without which a point does not count.
fn tracepoints(point: PathPoint) -> &'static [&'static str] {
    match point {
        PathPoint::Received => &[],
        PathPoint::Delivered => &["sk_data_ready"],
        PathPoint::Read | PathPoint::Truncated | PathPoint::LengthUnknown => &["sock_recv_length"],
        PathPoint::Sent | PathPoint::SendFailed => &["sock_send_length"],
        PathPoint::Queued | PathPoint::Forwarded => &["net_dev_queue"],
    }
}
