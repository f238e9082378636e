//! Checks of losses against the kernel's own counters of the same packets.

use super::divide::PlacedLoss;
use super::evidence::PacketEvidence;
use crate::drops::seen::{NamespaceScope, PacketDirection, PathPoint};

/// A counter that should agree with losses.
struct CounterCheck {
    counters: &'static [&'static str],
    losses: &'static [&'static str],
    // Whether it only counts UDP, so that it agrees when all UDP is observed.
    udp_only: bool,
}

const CHECKS: &[CounterCheck] = &[
    CounterCheck {
        counters: &["Udp.RcvbufErrors", "Udp6RcvbufErrors"],
        losses: &["receive-buffer"],
        udp_only: true,
    },
    CounterCheck { counters: &["Udp.MemErrors", "Udp6MemErrors"], losses: &["udp-memory"], udp_only: true },
    CounterCheck { counters: &["Udp.NoPorts", "Udp6NoPorts"], losses: &["no-socket"], udp_only: true },
    CounterCheck {
        counters: &["Udp.InCsumErrors", "Udp6InCsumErrors"],
        losses: &["bad-checksum", "bad-checksum-read"],
        udp_only: true,
    },
    CounterCheck { counters: &["TcpExt.IPReversePathFilter"], losses: &["rp-filter"], udp_only: false },
];

/// Notes about the quality of the evidence.
pub(super) fn notes(evidence: &PacketEvidence, fallen: &[PlacedLoss]) -> Vec<String> {
    let mut notes = evidence.unread.clone();
    notes.extend(seen_badly(evidence));
    // Counters belong to one namespace, and an unreadable counter is not zero.
    if evidence.unread.is_empty() && evidence.subject.network != NamespaceScope::All {
        notes.extend(CHECKS.iter().filter_map(|check| disagrees(evidence, fallen, check)));
    }
    notes.extend(clashes(evidence, fallen));
    notes.extend(of_generator(evidence));
    notes
}

fn disagrees(evidence: &PacketEvidence, fallen: &[PlacedLoss], check: &CounterCheck) -> Option<String> {
    let counted = check.counters.iter().map(|name| evidence.grown(name)).fold(0, u64::saturating_add);
    let seen = lost(fallen, check.losses);
    let all_counted = check.udp_only && !evidence.is_narrowed();
    let differ = if all_counted { counted != seen } else { counted < seen };
    let (counters, losses) = (check.counters.join(" and "), check.losses.join(" and "));
    differ.then(|| format!("{counters} grew by {counted}, but {seen} packets were seen lost as {losses}"))
}

fn lost(fallen: &[PlacedLoss], names: &[&str]) -> u64 {
    let these = fallen.iter().filter(|fallen| names.contains(&fallen.loss.name.as_str()));
    these.map(|fallen| fallen.loss.packets).fold(0, u64::saturating_add)
}

// The counter of clashes shows how many drops of connection tracking were not for lack of room; it
// includes resolved ones (nf_ct_resolve_clash, net/netfilter/nf_conntrack_core.c, Linux 6.18).
fn clashes(evidence: &PacketEvidence, fallen: &[PlacedLoss]) -> Option<String> {
    let clashes = evidence.grown("conntrack insert_failed");
    let seen = lost(fallen, &["conntrack-full"]);
    (clashes > 0 && seen > 0).then(|| {
        format!("up to {clashes} of the packets lost as conntrack-full may have clashed with another of their flow instead")
    })
}

/// Limits of the tracepoints.
fn seen_badly(evidence: &PacketEvidence) -> Vec<String> {
    let seen = &evidence.seen;
    let mut notes: Vec<String> =
        seen.lacking.iter().map(|lacking| format!("this kernel lacks {lacking}")).collect();
    notes.extend(seen.notes.iter().cloned());
    if seen.missed > 0 {
        notes.push(format!("{} events were not counted: the packet counts are lower bounds", seen.missed));
    }
    if seen.fragments_packets > 0 {
        let fragments = seen.fragments_packets;
        notes.push(format!(
            "{fragments} fragments without ports passed; they are in no count, because their port is unknown"
        ));
    }
    if seen.unparsed_packets > 0 {
        let packets = seen.unparsed_packets;
        notes.push(format!(
            "the ports of {packets} packets could not be read on arrival, so only those that later points saw are counted"
        ));
    }
    if seen.copies_packets > 0 {
        let copies = seen.copies_packets;
        notes.push(format!("a bridge made {copies} copies of packets; each counts as a packet"));
    }
    if let Some(unknown) = evidence
        .passed(PathPoint::LengthUnknown, PacketDirection::Request)
        .value()
        .filter(|count| **count > 0)
    {
        notes.push(format!(
            "for {unknown} datagrams it is unknown whether the buffer of the program was too short"
        ));
    }
    notes
}

fn of_generator(evidence: &PacketEvidence) -> Vec<String> {
    let Some(said) = &evidence.generator else { return Vec::new() };
    let mut notes = Vec::new();
    if said.duplicate > 0 {
        notes
            .push(format!("the generator got {} replies to requests that had been answered", said.duplicate));
    }
    if said.unsolicited > 0 {
        notes.push(format!("the generator got {} replies that matched no request", said.unsolicited));
    }
    notes
}
