//! Packets without tracepoint events, known from their sockets.
//!
//! Some kernels skip programs at tracepoints for a time, for example while a softirq interrupts
//! certain tasks. Such a packet is seen neither arriving nor being dropped. But its socket counts
//! drops (`sk_drops`, Linux 2.6.31), and reads are seen in the reader's call. Either proves that
//! the packet passed all stages before the socket. A packet whose ports could not be read on
//! arrival has all later events.

use super::divide::{PlacedLoss, packets};
use super::evidence::{GrownCounter, PacketEvidence};
use super::loss_placement::is_of_port;
use super::{LossExactness, PathStep, StageLoss};
use crate::drops::causes;
use crate::drops::packet_counts::{CountedEvent, PacketDirection, PacketOrigin, PathPoint};

// Losses that a socket counts or may count (net/ipv4/udp.c, Linux 6.18): its count includes those
// that were seen.
const BY_SOCKETS: &[&str] =
    &["receive-buffer", "udp-memory", "socket-filter", "bad-checksum", "bad-checksum-read", "policy"];

/// The cause of a socket's drops, by counters of the network namespace.
const NAMED: [(&str, [&str; 2]); 3] = [
    ("receive-buffer", ["Udp.RcvbufErrors", "Udp6RcvbufErrors"]),
    ("udp-memory", ["Udp.MemErrors", "Udp6MemErrors"]),
    ("bad-checksum", ["Udp.InCsumErrors", "Udp6InCsumErrors"]),
];

/// Adds to evidence and losses what sockets prove; returns notes about it. Without proof both stay
/// unchanged.
pub(super) fn add_untraced_packets(
    evidence: &mut PacketEvidence,
    placed_losses: &mut Vec<PlacedLoss>,
) -> Vec<String> {
    let mut notes = Vec::new();
    let dropped_packets = add_socket_drops(evidence, placed_losses);
    if dropped_packets > 0 {
        notes.push(format!(
            "the sockets dropped {dropped_packets} packets that no tracepoint saw, as where the kernel runs no programs; \
             their own counts are used"
        ));
    }
    let read_packets = unseen_reads(evidence);
    if read_packets > 0 {
        add_passed(evidence, PathPoint::Delivered, read_packets);
        notes.push(format!(
            "{read_packets} packets were read that no tracepoint saw before, as where the kernel runs no programs; they are \
             counted as delivered"
        ));
    }
    let unparsed_packets = evidence.seen.event_count(CountedEvent::Unparsed);
    let proved_packets = dropped_packets.saturating_add(read_packets).saturating_add(unparsed_packets);
    if proved_packets > 0 {
        add_received(evidence, placed_losses, proved_packets);
        placed_losses.sort_by_key(|placed| std::cmp::Reverse(placed.loss.packets));
    }
    notes
}

/// Adds losses that only sockets counted; returns their number.
fn add_socket_drops(evidence: &PacketEvidence, placed_losses: &mut Vec<PlacedLoss>) -> u64 {
    // A socket does not count drops per sender.
    let mut dropped_packets: u64 = 0;
    if evidence.subject.peer.is_some() {
        return dropped_packets;
    }
    let mut uncounted_by_name = NAMED.map(|(name, counters)| {
        let seen_packets = packets(placed_losses.iter().filter(|placed| placed.loss.name == name));
        (name, evidence.growth_of(&counters).saturating_sub(seen_packets))
    });
    let ports = match evidence.subject.ports.as_slice() {
        [] => &[0],
        ports => ports,
    };
    for port in ports {
        let (mut unseen_packets, largest) = unseen_drops(evidence, placed_losses, *port);
        dropped_packets = dropped_packets.saturating_add(unseen_packets);
        for (name, uncounted) in &mut uncounted_by_name {
            let packets = unseen_packets.min(*uncounted);
            (unseen_packets, *uncounted) = (unseen_packets - packets, *uncounted - packets);
            add_loss(placed_losses, name, packets, *port, largest);
        }
        add_loss(placed_losses, "unknown", unseen_packets, *port, largest);
    }
    dropped_packets
}

// Drops of a port's sockets beyond the drops seen, and the socket with most drops.
fn unseen_drops<'e>(
    evidence: &'e PacketEvidence,
    placed_losses: &[PlacedLoss],
    port: u16,
) -> (u64, Option<&'e GrownCounter>) {
    let counters = evidence.within.iter().filter(|counter| port == 0 || is_of_port(&counter.place, port));
    let counter_growth = counters.clone().map(|counter| counter.packets).fold(0, u64::saturating_add);
    let seen_packets = packets(placed_losses.iter().filter(|placed| {
        (placed.direction, placed.port) == (PacketDirection::Request, port)
            && BY_SOCKETS.contains(&placed.loss.name.as_str())
    }));
    (counter_growth.saturating_sub(seen_packets), counters.max_by_key(|counter| counter.packets))
}

/// Adds packets to a loss, or creates it.
fn add_loss(
    placed_losses: &mut Vec<PlacedLoss>,
    name: &str,
    packets: u64,
    port: u16,
    largest: Option<&GrownCounter>,
) {
    if packets == 0 {
        return;
    }
    let key = (PacketDirection::Request, PathStep::Socket, port);
    let existing = placed_losses.iter_mut().find(|candidate| {
        (candidate.direction, candidate.step, candidate.port) == key && candidate.loss.name == name
    });
    if let Some(PlacedLoss { loss, .. }) = existing {
        loss.packets = loss.packets.saturating_add(packets);
        loss.source = format!("{}, and {packets} more by the socket's own count", loss.source);
        return;
    }
    let cause = causes::find_cause(name).unwrap_or_else(causes::unknown);
    let source = "the socket's own count of drops".to_owned();
    let mut loss = StageLoss::new(cause, packets, LossExactness::Exact, source);
    loss.place = largest.map(|counter| counter.place.clone());
    placed_losses.push(PlacedLoss {
        direction: key.0,
        origin: PacketOrigin::Received,
        step: key.1,
        port,
        has_reason: false,
        loss,
    });
}

// Datagrams that were read, but not seen at delivery and cannot have waited from before.
fn unseen_reads(evidence: &PacketEvidence) -> u64 {
    let packets_at = |point| evidence.passed(point, PacketDirection::Request).into_value();
    let counts = packets_at(PathPoint::Read)
        .zip(packets_at(PathPoint::Delivered))
        .filter(|_| evidence.waited.sockets_bytes.is_some());
    let between = evidence.between(&[PathPoint::Delivered, PathPoint::Read], false);
    counts.map_or(0, |(read, delivered)| {
        let waited = evidence.waited.most_datagrams(&evidence.seen).saturating_add(between);
        read.saturating_sub(delivered).saturating_sub(waited)
    })
}

/// Adds proved packets to [`PathPoint::Received`], up to the number that later points have more.
fn add_received(evidence: &mut PacketEvidence, placed_losses: &[PlacedLoss], proved_packets: u64) {
    const LATER: [PathStep; 4] = [PathStep::Ingress, PathStep::Filter, PathStep::Route, PathStep::Socket];
    let packets_at = |point| evidence.passed(point, PacketDirection::Request).into_value();
    let later_losses = packets(
        placed_losses
            .iter()
            .filter(|placed| placed.direction == PacketDirection::Request && LATER.contains(&placed.step)),
    );
    let forwarded = packets_at(PathPoint::Forwarded).unwrap_or(0);
    let counts = packets_at(PathPoint::Received).zip(packets_at(PathPoint::Delivered));
    let Some((received, delivered)) = counts else { return };
    let missing = delivered.saturating_add(forwarded).saturating_add(later_losses).saturating_sub(received);
    add_passed(evidence, PathPoint::Received, missing.min(proved_packets));
}

fn add_passed(evidence: &mut PacketEvidence, point: PathPoint, packets: u64) {
    let passed = evidence.seen.passed.entry((point, PacketDirection::Request)).or_default();
    *passed = passed.saturating_add(packets);
}
