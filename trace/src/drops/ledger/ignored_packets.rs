//! Broadcasts and multicasts that no socket of this host wants, such as discovery on a LAN.
//!
//! The kernel frees them as it frees packets without a socket, and counts them as `IgnoredMulti`
//! (__udp4_lib_mcast_deliver, net/ipv4/udp.c; __udp6_lib_mcast_deliver, net/ipv6/udp.c; Linux
//! 6.18).

use super::evidence::PacketEvidence;
use crate::drops::causes;
use crate::drops::packet_counts::{LossSite, PacketDirection, PathPoint};
use crate::symbols::source_name;

// The first two are usually inlined into the other two.
const FUNCTIONS: [&str; 4] =
    ["__udp4_lib_mcast_deliver", "__udp6_lib_mcast_deliver", "__udp4_lib_rcv", "__udp6_lib_rcv"];

/// Leaves these packets out of the evidence; returns a note about their number.
pub(super) fn leave_out_ignored_packets(evidence: &mut PacketEvidence) -> Option<String> {
    let mut left = evidence.growth_of(&["Udp.IgnoredMulti", "Udp6IgnoredMulti"]);
    let is_narrowed = evidence.is_narrowed();
    let mut ignored: u64 = 0;
    for (_, lost) in evidence.seen.lost.iter_mut().filter(|(site, _)| can_be_ignored(site, is_narrowed)) {
        let packets = left.min(*lost);
        (*lost, left, ignored) = (*lost - packets, left - packets, ignored + packets);
    }
    if let Some(received) = evidence.seen.passed.get_mut(&(PathPoint::Received, PacketDirection::Request)) {
        *received = received.saturating_sub(ignored);
    }
    let note =
        format!("{ignored} broadcasts and multicasts came that no socket here wants; they are not counted");
    (ignored > 0).then_some(note)
}

// The counter is of all ports. Before Linux 5.17 packets without a socket have no reason, either.
fn can_be_ignored(site: &LossSite, is_narrowed: bool) -> bool {
    let has_no_reason = match site.reason.as_deref() {
        Some(reason) => reason == causes::NO_REASON,
        None => !is_narrowed,
    };
    has_no_reason
        && site.direction == PacketDirection::Request
        && site.function.as_deref().is_some_and(|function| FUNCTIONS.contains(&source_name(function)))
}
