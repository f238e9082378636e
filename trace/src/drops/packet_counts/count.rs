//! Packet counts: by point, and by reason and place of loss.

use std::collections::BTreeMap;

use super::PacketDirection;
use crate::symbols::KernelSymbols;
use crate::sys::kernel_layout;

/// Counting points in packet order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum PathPoint {
    /// Enters the network namespace (`netif_receive_skb`): after the backlog, before generic XDP,
    /// taps, tc and netfilter. A GRO packet counts as its segments. Each copy of a bridge counts.
    Received,
    /// In a socket's receive buffer (`sk_data_ready`). A multicast packet counts for each socket.
    Delivered,
    /// Read by the application (`sock_recv_length`, not peeking).
    Read,
    /// Read with a buffer shorter than the datagram. Known if the datagram was seen at the head of
    /// the socket's queue; see [`PathPoint::LengthUnknown`].
    Truncated,
    /// Read with an unknown length, so that it may have been truncated.
    LengthUnknown,
    /// Sent by the application (`sock_send_length`): before its own netfilter hooks.
    Sent,
    /// A system call to send failed (`sock_send_length` below zero, not EAGAIN).
    SendFailed,
    /// Sent by this host, at a device's qdisc (`net_dev_queue`): after routing and netfilter.
    Queued,
    /// Received by a device, at another device's qdisc: a router, a bridge or a NAT host.
    Forwarded,
}

/// Datagrams on the wire: an aggregate counts as its segments. At sockets: datagrams as the socket
/// sees them.
pub type PassedCounts = BTreeMap<(PathPoint, PacketDirection), u64>;

/// Other events that the programs count, in the order of `enum note` of bpf/drops.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CountedEvent {
    /// Not counted anywhere, because a program was running on the same CPU, or a table was full.
    Missed,
    /// A received fragment other than the first, without ports, so its subject is unknown. Not in
    /// any other number.
    Fragment,
    /// A received packet with unreadable ports: IPv6 with extension headers other than that of a
    /// fragment, or headers outside the linear part of the socket buffer. Not in any other number.
    Unparsed,
    /// A dropped fragment.
    LostFragment,
    /// A dropped packet with unreadable ports.
    LostUnparsed,
    /// A copy made by a bridge; included in the numbers.
    Copy,
    /// A run of any program.
    Run,
}

impl CountedEvent {
    const ALL: [Self; 7] = [
        Self::Missed,
        Self::Fragment,
        Self::Unparsed,
        Self::LostFragment,
        Self::LostUnparsed,
        Self::Copy,
        Self::Run,
    ];
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PacketOrigin {
    /// From this host.
    Local,
    /// From a device.
    Received,
    /// Still in the device, XDP or a backlog.
    Arriving,
}

/// Where and why packets are dropped (`kfree_skb`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LossSite {
    /// Where the kernel's code dropped the packet.
    pub address: u64,
    /// Name in this kernel's `enum skb_drop_reason`, without `SKB_DROP_REASON_`; `None` before
    /// Linux 5.17, as [`super::PacketCounts::notes`] reports.
    pub reason: Option<String>,
    /// Inode of the network namespace; zero if the packet had neither device nor socket.
    pub network: u32,
    /// Index of the receiving or transmitting device; `None` if it had none.
    pub device: Option<u32>,
    /// The server's port; zero without ports.
    pub port: u16,
    pub direction: PacketDirection,
    pub origin: PacketOrigin,
    /// Error of its route (`EINVAL` of a blackhole, `EACCES` of a prohibition); zero without one.
    pub route_error: i32,
    /// The netfilter hook, such as `input`.
    pub hook: Option<&'static str>,
    /// The dropping function; `None` if addresses are hidden, as [`super::PacketCounts::notes`]
    /// reports.
    pub function: Option<String>,
}

/// `struct lost_key` of bpf/drops.bpf.c.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(C)]
pub(super) struct LostKey {
    location: u64,
    reason: u32,
    network: u32,
    device: u32,
    port: u16,
    direction: u8,
    origin: u8,
    route_error: i32,
    hook: u32,
}

kernel_layout!(LostKey: 32);

// In the order of `enum point` of bpf/drops.h; `None` for points that are not reported.
const POINTS: [Option<PathPoint>; 10] = [
    Some(PathPoint::Received),
    Some(PathPoint::Delivered),
    // Delivered buffers, which may contain several datagrams.
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

/// `struct counters` in words.
pub(super) const COUNTERS: usize = POINTS.len() * DIRECTIONS + CountedEvent::ALL.len() + 1;

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

// Counters of all CPUs. One CPU may correct a count of another.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::drops) struct DropCounters([u64; COUNTERS]);

impl DropCounters {
    pub(super) fn from_cpus(cpus: &[[u64; COUNTERS]]) -> Self {
        Self(std::array::from_fn(|word| cpus.iter().fold(0, |sum: u64, cpu| sum.wrapping_add(cpu[word]))))
    }

    pub(super) fn events(&self) -> BTreeMap<CountedEvent, u64> {
        CountedEvent::ALL.into_iter().zip(self.0[POINTS.len() * DIRECTIONS..].iter().copied()).collect()
    }

    // In the order of `POINTS`, in a direction.
    fn grown_since(&self, earlier: &Self, side: usize) -> [u64; POINTS.len()] {
        std::array::from_fn(|point| {
            let word = point * DIRECTIONS + side;
            self.0[word].wrapping_sub(earlier.0[word])
        })
    }

    /// Requests and buffers delivered since the earlier reading; since the start if none was
    /// delivered later, because those waited.
    fn delivered_since(&self, earlier: &Self) -> (u64, u64) {
        let [_, datagrams, buffers, ..] = self.grown_since(earlier, 0);
        if buffers > 0 { (datagrams, buffers) } else { (self.0[DIRECTIONS], self.0[2 * DIRECTIONS]) }
    }

    /// Datagrams per delivered buffer, rounded up; zero if none was delivered.
    pub(super) fn buffer_datagrams_since(&self, earlier: &Self) -> u64 {
        let (datagrams, buffers) = self.delivered_since(earlier);
        datagrams.div_ceil(buffers.max(1))
    }

    /// The growth without zeros. A read takes a whole buffer, which can contain several datagrams
    /// with UDP_GRO: the average number delivered.
    pub(super) fn passed_since(&self, earlier: &Self) -> PassedCounts {
        let mut passed = PassedCounts::new();
        let (datagrams, buffers) = self.delivered_since(earlier);
        for (side, direction) in [PacketDirection::Request, PacketDirection::Reply].into_iter().enumerate() {
            for (point, count) in POINTS.into_iter().zip(self.grown_since(earlier, side)) {
                let Some(point) = point else { continue };
                let packets = match point {
                    PathPoint::Read if buffers > 0 => {
                        let scaled = u128::from(count) * u128::from(datagrams) / u128::from(buffers);
                        u64::try_from(scaled).unwrap_or(u64::MAX)
                    }
                    // Threads that read one socket at the same time can make the correction of this count too
                    // large (`cut` of bpf/drops.bpf.c), so the sum can be below zero.
                    PathPoint::Truncated => u64::try_from(count.cast_signed()).unwrap_or(0),
                    _ => count,
                };
                if packets > 0 {
                    passed.insert((point, direction), packets);
                }
            }
        }
        passed
    }
}

// Named losses, without copies that a packet socket had no room for (`packet_rcv` and
// `tpacket_rcv`, net/packet/af_packet.c) and parts of an aggregate, which is counted as a whole
// (`skb_release_data`, net/core/skbuff.c; Linux 6.18).
pub(super) fn lost(
    counts: &BTreeMap<LostKey, u64>,
    reasons: Option<&BTreeMap<u32, String>>,
    symbols: &KernelSymbols,
) -> BTreeMap<LossSite, u64> {
    let losses = counts.iter().filter_map(|(key, packets)| {
        let site = LossSite {
            address: key.location,
            reason: reasons.map(|names| reason_name(names, key.reason)),
            network: key.network,
            device: (key.device != 0).then_some(key.device),
            port: key.port,
            direction: match key.direction {
                0 => PacketDirection::Request,
                _ => PacketDirection::Reply,
            },
            origin: match key.origin {
                0 => PacketOrigin::Local,
                1 => PacketOrigin::Received,
                _ => PacketOrigin::Arriving,
            },
            route_error: key.route_error,
            hook: HOOKS.get(key.hook as usize).copied().flatten(),
            function: symbols.name(key.location).into_value().map(|symbol| symbol.name),
        };
        // Function names require the right to read kernel addresses (CAP_SYSLOG).
        let is_copy = site.reason.as_deref() == Some("PACKET_SOCK_ERROR")
            || site.function.as_deref().is_some_and(is_no_loss);
        (!is_copy).then_some((site, *packets))
    });
    losses.collect()
}

fn is_no_loss(function: &str) -> bool {
    ["packet_rcv", "tpacket_rcv", "skb_release_data"].iter().any(|prefix| function.starts_with(prefix))
}

// Reasons of subsystems in the upper half (include/net/dropreason.h, Linux 6.4) have no name here.
fn reason_name(names: &BTreeMap<u32, String>, reason: u32) -> String {
    names.get(&reason).cloned().unwrap_or_else(|| format!("reason {reason:#x}"))
}

/// The growth since an earlier reading, without zeros.
pub(super) fn growth<K: Clone + Ord>(
    later: &BTreeMap<K, u64>,
    earlier: &BTreeMap<K, u64>,
) -> BTreeMap<K, u64> {
    let growth = |(key, count): (&K, &u64)| {
        let grown = count.saturating_sub(earlier.get(key).copied().unwrap_or(0));
        (grown > 0).then(|| (key.clone(), grown))
    };
    later.iter().filter_map(growth).collect()
}

/// The sum of two disjoint times.
pub(super) fn sum<K: Clone + Ord>(earlier: &BTreeMap<K, u64>, later: &BTreeMap<K, u64>) -> BTreeMap<K, u64> {
    let mut sum = earlier.clone();
    for (key, count) in later {
        let total = sum.entry(key.clone()).or_default();
        *total = total.saturating_add(*count);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The packets read and truncated, of counters of two CPUs.
    fn read_and_truncated(truncated: [i64; 2]) -> Vec<(PathPoint, u64)> {
        let cpus = truncated.map(|truncated| {
            let mut cpu = [0; COUNTERS];
            cpu[3 * DIRECTIONS] = 10;
            cpu[4 * DIRECTIONS] = truncated.cast_unsigned();
            cpu
        });
        let passed = DropCounters::from_cpus(&cpus).passed_since(&DropCounters::default());
        passed.into_iter().map(|((point, _), packets)| (point, packets)).collect()
    }

    #[test]
    fn a_cpu_may_correct_the_truncated_reads_of_another_cpu_but_not_below_zero() {
        assert_eq!(read_and_truncated([7, -3]), [(PathPoint::Read, 20), (PathPoint::Truncated, 4)]);
        assert_eq!(read_and_truncated([3, -5]), [(PathPoint::Read, 20)]);
    }

    #[test]
    fn reads_stand_for_the_datagrams_per_buffer_of_their_time() {
        let counters = |datagrams, buffers, reads| {
            let mut cpu = [0; COUNTERS];
            [cpu[DIRECTIONS], cpu[2 * DIRECTIONS], cpu[3 * DIRECTIONS]] = [datagrams, buffers, reads];
            DropCounters::from_cpus(&[cpu])
        };
        let readings = [(0, 0, 0), (5000, 500, 400), (5000, 500, 500), (5100, 600, 500), (5300, 800, 800)];
        let readings = readings.map(|(datagrams, buffers, reads)| counters(datagrams, buffers, reads));
        let laps = readings.windows(2).map(|pair| {
            let passed = pair[1].passed_since(&pair[0]);
            let read = passed.get(&(PathPoint::Read, PacketDirection::Request)).copied();
            (read.unwrap_or(0), pair[1].buffer_datagrams_since(&pair[0]))
        });
        assert_eq!(laps.collect::<Vec<_>>(), [(4000, 10), (1000, 10), (0, 1), (300, 1)]);
    }
}
