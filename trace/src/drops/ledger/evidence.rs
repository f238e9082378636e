//! The input of a ledger.

use std::collections::BTreeMap;

use linerate_host::Known;
use serde::{Deserialize, Serialize};

use super::GeneratorSaid;
use crate::drops::packet_counts::{
    AT_SOCKETS, EdgeCounts, PacketCounts, PacketDirection, PathPoint, PortSubject, TraceOverhead,
};

/// Everything known about packets over a time. A ledger is a pure function of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PacketEvidence {
    pub subject: PortSubject,
    /// From tracepoints.
    pub seen: PacketCounts,
    /// Growth of counters of the host and its devices, without zeros.
    pub grown: Vec<GrownCounter>,
    /// Growth of socket drops, read after tracepoints at the beginning and before them at the end,
    /// so that all of it is within the observation.
    pub within: Vec<GrownCounter>,
    pub waited: QueuedPackets,
    pub waiting: QueuedPackets,
    /// Functions at netfilter's hooks that are not the kernel's own, such as `chain inet filter
    /// input hook input`; empty if unknown.
    pub chains: Vec<String>,
    /// Interfaces of virtual machines and containers: `tap tap0 of web1 (6001), machine-qemu-web1.scope` by `tap0`.
    pub ports: BTreeMap<String, String>,
    /// If the generator is linerate's.
    pub generator: Option<GeneratorSaid>,
    /// One line each.
    pub unread: Vec<String>,
    /// Devices whose counters went back or vanished, one line each.
    pub resets: Vec<String>,
    pub overhead: Known<TraceOverhead>,
    /// If only parts of the time were counted; all values above are of these parts.
    pub sampled: Option<SampledTime>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SampledTime {
    pub of_seconds: f64,
    /// The highest CPU share of counting while it was active, of one CPU.
    pub counting_cpu_share: f64,
    /// Drops of the observed sockets in the whole time, by their own counters.
    pub socket_drops_packets: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrownCounter {
    /// `eth0`, `cpu 2`, `host`, `conntrack`, `udp 0.0.0.0:53 (named) ino 812`.
    pub place: String,
    pub name: String,
    pub kind: CounterUse,
    pub packets: u64,
    /// The file or the system call.
    pub read_from: String,
}

/// The role of a counter in a ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CounterUse {
    /// Frames lost in the device or driver before there was a socket buffer, without tracepoint.
    DeviceLost,
    /// Damaged frames.
    DeviceDamaged,
    /// Packets beyond an instance's allowance.
    DeviceAllowance,
    /// Frames dropped by an XDP program.
    XdpDropped,
    /// Frames with an error of the XDP program or its action.
    XdpFailed,
    /// Frames that an XDP program transmitted or redirected.
    XdpTaken,
    /// Packets that the queue of a macvtap took, for which the kernel has no tracepoint.
    MacvtapTaken,
    /// Frames that a device did not send.
    DeviceUnsent,
    /// Others, for checks and divisions.
    Other,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueuedPackets {
    /// Memory charged to the subject's sockets for unread data; `None` if unknown.
    pub sockets_bytes: Option<u64>,
    pub disciplines_packets: u64,
    pub backlogs_packets: u64,
}

// Less than the charge of the smallest datagram: its socket buffer and data (SKB_TRUESIZE, Linux
// 6.18, is over 700 bytes; 512 leaves room for other kernels).
const LEAST_CHARGE_BYTES: u64 = 512;

impl QueuedPackets {
    fn joined(&self, later: &Self) -> Self {
        Self {
            sockets_bytes: self
                .sockets_bytes
                .zip(later.sockets_bytes)
                .map(|(left, right)| left.saturating_add(right)),
            disciplines_packets: self.disciplines_packets.saturating_add(later.disciplines_packets),
            backlogs_packets: self.backlogs_packets.saturating_add(later.backlogs_packets),
        }
    }

    /// Upper bound of the datagrams in the sockets.
    pub(super) fn most_datagrams(&self, counts: &PacketCounts) -> u64 {
        let buffers = self.sockets_bytes.map_or(0, |bytes| bytes.div_ceil(LEAST_CHARGE_BYTES));
        buffers.saturating_mul(counts.buffer_datagrams.max(1))
    }
}

/// The growth of counters in two disjoint times.
fn growth_joined(mut grown: Vec<GrownCounter>, later: &[GrownCounter]) -> Vec<GrownCounter> {
    for counter in later {
        let key = (&counter.place, &counter.name);
        match grown.iter_mut().find(|existing| (&existing.place, &existing.name) == key) {
            Some(existing) => existing.packets = existing.packets.saturating_add(counter.packets),
            None => grown.push(counter.clone()),
        }
    }
    grown
}

impl PacketEvidence {
    /// The sum of two disjoint times.
    #[must_use]
    pub fn joined(self, later: &Self) -> Self {
        let lines_joined = |mut lines: Vec<String>, later: &[String]| {
            let new: Vec<String> = later.iter().filter(|line| !lines.contains(line)).cloned().collect();
            lines.extend(new);
            lines
        };
        Self {
            seen: self.seen.joined(&later.seen),
            grown: growth_joined(self.grown, &later.grown),
            within: growth_joined(self.within, &later.within),
            waited: self.waited.joined(&later.waited),
            waiting: self.waiting.joined(&later.waiting),
            unread: lines_joined(self.unread, &later.unread),
            resets: lines_joined(self.resets, &later.resets),
            ..later.clone()
        }
    }

    /// Growth of the counters with these names at all places; before a space, a name can have a
    /// place.
    pub(super) fn growth_of(&self, names: &[&str]) -> u64 {
        let is_named = |counter: &&GrownCounter| {
            names.iter().any(|name| match name.split_once(' ') {
                Some((place, name)) => (place, name) == (counter.place.as_str(), counter.name.as_str()),
                None => counter.name == *name,
            })
        };
        let counters = self.grown.iter().filter(is_named);
        counters.map(|counter| counter.packets).fold(0, u64::saturating_add)
    }

    /// Counters of a kind, largest first.
    pub(super) fn counters_of_kind(&self, kind: CounterUse) -> Vec<&GrownCounter> {
        let mut counters: Vec<&GrownCounter> =
            self.grown.iter().filter(|counter| counter.kind == kind).collect();
        counters.sort_by_key(|counter| std::cmp::Reverse(counter.packets));
        counters
    }

    /// Packets that may have been between points at either end of counting; see
    /// [`EdgeCounts::between`].
    pub(super) fn between(&self, points: &[PathPoint], is_handled: bool) -> u64 {
        let count = |edge: Option<&EdgeCounts>| edge.map_or(0, |edge| edge.between(points, is_handled));
        count(self.seen.edges.first()).saturating_add(count(self.seen.edges.last()))
    }

    // Whether only part of the traffic is observed, which the kernel's counters do not
    // distinguish.
    pub(super) fn is_narrowed(&self) -> bool {
        !self.subject.ports.is_empty() || self.subject.peer.is_some()
    }

    /// Packets that passed a point; unknown without a tracepoint there.
    pub(super) fn passed(&self, point: PathPoint, direction: PacketDirection) -> Known<u64> {
        if let Some(peer) = self.subject.peer.filter(|_| AT_SOCKETS.contains(&point)) {
            return Known::unknown(format!("a socket does not report which of its datagrams are of {peer}"));
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

fn tracepoints(point: PathPoint) -> &'static [&'static str] {
    match point {
        PathPoint::Received => &[],
        PathPoint::Delivered => &["sk_data_ready"],
        PathPoint::Read | PathPoint::Truncated | PathPoint::LengthUnknown => &["sock_recv_length"],
        PathPoint::Sent | PathPoint::SendFailed => &["sock_send_length"],
        PathPoint::Queued | PathPoint::Forwarded => &["net_dev_queue"],
    }
}
