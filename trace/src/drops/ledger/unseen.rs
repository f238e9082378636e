//! Packets without tracepoint events, known from their sockets.
//!
//! Some kernels skip programs at tracepoints for a time, for example while a softirq interrupts
//! certain tasks. Such a packet is seen neither arriving nor being dropped. But its socket counts
//! drops (`sk_drops`, Linux 2.6.31), and reads are seen in the reader's call. Either proves that
//! the packet passed all stages before the socket. A packet whose ports could not be read on
//! arrival has all later events.

use super::divide::PlacedLoss;
use super::evidence::{GrownCounter, PacketEvidence};
use super::fallen::is_of_port;
use super::{LossExactness, PathStep, StageLoss};
use crate::drops::causes;
use crate::drops::seen::{PacketDirection, PacketOrigin, PassedCount, PathPoint};

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

/// Evidence and losses including those that sockets prove, and a note about them.
pub(super) struct CompletedEvidence {
    pub(super) evidence: PacketEvidence,
    pub(super) fallen: Vec<PlacedLoss>,
    pub(super) notes: Vec<String>,
}

/// Completes evidence. Without proof it stays unchanged.
pub(super) fn completed(evidence: &PacketEvidence, mut fallen: Vec<PlacedLoss>) -> CompletedEvidence {
    let mut evidence = evidence.clone();
    let mut notes = Vec::new();
    let dropped = dropped(&evidence, &mut fallen);
    if dropped > 0 {
        notes.push(format!(
            "the sockets dropped {dropped} packets that no tracepoint saw, as where the kernel runs no programs; \
             their own counts are used"
        ));
    }
    let read = read(&evidence);
    if read > 0 {
        add(&mut evidence, PathPoint::Delivered, read);
        notes.push(format!(
            "{read} packets were read that no tracepoint saw before, as where the kernel runs no programs; they are \
             counted as delivered"
        ));
    }
    let proved = dropped.saturating_add(read).saturating_add(evidence.seen.unparsed_packets);
    if proved > 0 {
        pass(&mut evidence, &fallen, proved);
        fallen.sort_by_key(|fallen| std::cmp::Reverse(fallen.loss.packets));
    }
    CompletedEvidence { evidence, fallen, notes }
}

/// Adds losses that only sockets counted; returns their number.
fn dropped(evidence: &PacketEvidence, fallen: &mut Vec<PlacedLoss>) -> u64 {
    // A socket does not count drops per sender.
    let mut dropped: u64 = 0;
    if evidence.subject.peer.is_some() {
        return dropped;
    }
    let mut left = NAMED.map(|(name, counters)| {
        let counted = counters.iter().map(|name| evidence.grown(name)).fold(0, u64::saturating_add);
        let seen = fallen.iter().filter(|fallen| fallen.loss.name == name).map(|fallen| fallen.loss.packets);
        (name, counted.saturating_sub(seen.fold(0, u64::saturating_add)))
    });
    let ports = match evidence.subject.ports.as_slice() {
        [] => &[0],
        ports => ports,
    };
    for port in ports {
        let (mut unseen, most) = unseen(evidence, fallen, *port);
        dropped = dropped.saturating_add(unseen);
        for (name, left) in &mut left {
            let packets = unseen.min(*left);
            (unseen, *left) = (unseen - packets, *left - packets);
            insert(fallen, name, packets, *port, most);
        }
        insert(fallen, "unknown", unseen, *port, most);
    }
    dropped
}

// Drops of a port's sockets beyond the drops seen, and the socket with most drops.
fn unseen<'e>(
    evidence: &'e PacketEvidence,
    fallen: &[PlacedLoss],
    port: u16,
) -> (u64, Option<&'e GrownCounter>) {
    let here = evidence.within.iter().filter(|grown| port == 0 || is_of_port(&grown.place, port));
    let counted = here.clone().map(|grown| grown.packets).fold(0, u64::saturating_add);
    let seen = fallen.iter().filter(|fallen| {
        (fallen.direction, fallen.port) == (PacketDirection::Request, port)
            && BY_SOCKETS.contains(&fallen.loss.name.as_str())
    });
    let seen = seen.map(|fallen| fallen.loss.packets).fold(0, u64::saturating_add);
    (counted.saturating_sub(seen), here.max_by_key(|grown| grown.packets))
}

/// Adds packets to a loss, or creates it.
fn insert(fallen: &mut Vec<PlacedLoss>, name: &str, packets: u64, port: u16, most: Option<&GrownCounter>) {
    if packets == 0 {
        return;
    }
    let at = (PacketDirection::Request, PathStep::Socket, port);
    let same = fallen
        .iter_mut()
        .find(|other| (other.direction, other.step, other.port) == at && other.loss.name == name);
    if let Some(PlacedLoss { loss, .. }) = same {
        loss.packets = loss.packets.saturating_add(packets);
        loss.source = format!("{}, and {packets} more by the socket's own count", loss.source);
        return;
    }
    let cause = causes::named(name).unwrap_or_else(causes::unknown);
    let source = "the socket's own count of drops".to_owned();
    let mut loss = StageLoss::of(cause, packets, LossExactness::Exact, source);
    loss.place = most.map(|grown| grown.place.clone());
    fallen.push(PlacedLoss {
        direction: at.0,
        origin: PacketOrigin::Received,
        step: at.1,
        port,
        has_reason: false,
        loss,
    });
}

// Datagrams that were read, but not seen at delivery and cannot have waited from before.
fn read(evidence: &PacketEvidence) -> u64 {
    let at = |point| evidence.passed(point, PacketDirection::Request).into_value();
    let counts =
        at(PathPoint::Read).zip(at(PathPoint::Delivered)).filter(|_| evidence.waited.sockets_bytes.is_some());
    let (begin, end) = evidence.between(&[PathPoint::Delivered, PathPoint::Read], false);
    counts.map_or(0, |(read, delivered)| {
        let waited = evidence.waited.most_datagrams().saturating_add(begin).saturating_add(end);
        read.saturating_sub(delivered).saturating_sub(waited)
    })
}

/// Adds proved packets to [`PathPoint::Received`], up to the number that later points have more.
fn pass(evidence: &mut PacketEvidence, fallen: &[PlacedLoss], proved: u64) {
    let lost = |steps: &[PathStep]| {
        let these = fallen
            .iter()
            .filter(|fallen| fallen.direction == PacketDirection::Request && steps.contains(&fallen.step));
        these.map(|fallen| fallen.loss.packets).fold(0, u64::saturating_add)
    };
    let at = |evidence: &PacketEvidence, point| evidence.passed(point, PacketDirection::Request).into_value();
    let behind = lost(&[PathStep::Ingress, PathStep::Filter, PathStep::Route, PathStep::Socket]);
    let forwarded = at(evidence, PathPoint::Forwarded).unwrap_or(0);
    let Some((here, left)) = at(evidence, PathPoint::Received).zip(at(evidence, PathPoint::Delivered)) else {
        return;
    };
    let lacking = left.saturating_add(forwarded).saturating_add(behind).saturating_sub(here);
    add(evidence, PathPoint::Received, lacking.min(proved));
}

fn add(evidence: &mut PacketEvidence, point: PathPoint, packets: u64) {
    let passed = &mut evidence.seen.passed;
    let same =
        passed.iter_mut().find(|other| (other.point, other.direction) == (point, PacketDirection::Request));
    match same {
        Some(same) => same.packets = same.packets.saturating_add(packets),
        None if packets > 0 => {
            passed.push(PassedCount { point, direction: PacketDirection::Request, packets });
        }
        None => {}
    }
}
