//! Checks of losses against the kernel's own counters of the same packets.

use super::divide::{PlacedLoss, packets};
use super::evidence::PacketEvidence;
use crate::drops::packet_counts::{CountedEvent, PacketDirection, PathPoint};

/// Counters, and the losses that they count.
type CounterCheck = (&'static [&'static str], &'static [&'static str]);

const CHECKS: &[CounterCheck] = &[
    (&["Udp.RcvbufErrors", "Udp6RcvbufErrors"], &["receive-buffer"]),
    (&["Udp.MemErrors", "Udp6MemErrors"], &["udp-memory"]),
    (&["Udp.NoPorts", "Udp6NoPorts"], &["no-socket"]),
    (&["Udp.InCsumErrors", "Udp6InCsumErrors"], &["bad-checksum", "bad-checksum-read"]),
    (&["TcpExt.IPReversePathFilter"], &["rp-filter"]),
];

pub(super) fn notes(evidence: &PacketEvidence, placed_losses: &[PlacedLoss]) -> Vec<String> {
    let mut notes = [&evidence.unread[..], &evidence.resets].concat();
    notes.extend(tracepoint_notes(evidence));
    // An unreadable counter is not zero.
    if evidence.unread.is_empty() {
        notes.extend(CHECKS.iter().filter_map(|check| counter_mismatch(evidence, placed_losses, check)));
    }
    notes.extend(clash_note(evidence, placed_losses));
    notes.extend(generator_notes(evidence));
    notes
}

fn counter_mismatch(
    evidence: &PacketEvidence,
    placed_losses: &[PlacedLoss],
    (counters, losses): &CounterCheck,
) -> Option<String> {
    let counter_growth = evidence.growth_of(counters);
    let seen_packets = lost_packets(placed_losses, losses);
    let (counters, losses) = (counters.join(" and "), losses.join(" and "));
    // A counter can have more: it is read before the tracepoints begin and after they end, and counts
    // other ports as well.
    (counter_growth < seen_packets).then(|| {
        format!("{counters} grew by {counter_growth}, but {seen_packets} packets were seen lost as {losses}")
    })
}

fn lost_packets(placed_losses: &[PlacedLoss], names: &[&str]) -> u64 {
    packets(placed_losses.iter().filter(|placed| names.contains(&placed.loss.name.as_str())))
}

// The counter of clashes shows how many drops of connection tracking were not for lack of room; it
// includes resolved ones (nf_ct_resolve_clash, net/netfilter/nf_conntrack_core.c, Linux 6.18).
fn clash_note(evidence: &PacketEvidence, placed_losses: &[PlacedLoss]) -> Option<String> {
    let clashes = evidence.growth_of(&["conntrack insert_failed"]);
    let seen_packets = lost_packets(placed_losses, &["conntrack-full"]);
    (clashes > 0 && seen_packets > 0).then(|| {
        format!("up to {clashes} of the packets lost as conntrack-full may have clashed with another of their flow instead")
    })
}

fn tracepoint_notes(evidence: &PacketEvidence) -> Vec<String> {
    let counts = &evidence.seen;
    let unknown_lengths = evidence.passed(PathPoint::LengthUnknown, PacketDirection::Request);
    let mut notes: Vec<String> =
        counts.lacking.iter().map(|lacking| format!("this kernel lacks {lacking}")).collect();
    notes.extend(counts.notes.iter().cloned());
    notes.extend(notes_of_counts(&[
        (counts.event_count(CountedEvent::Missed), "{} events were not counted: the packet counts are lower bounds"),
        (
            counts.event_count(CountedEvent::Fragment),
            "{} fragments without ports passed; they are not counted, because their port is unknown",
        ),
        (
            counts.event_count(CountedEvent::Unparsed),
            "the ports of {} packets could not be read on arrival, so only those that later points saw are counted",
        ),
        (
            counts.event_count(CountedEvent::LostFragment),
            "{} fragments without ports were dropped; they are not counted, because their port is unknown",
        ),
        (
            counts.event_count(CountedEvent::LostUnparsed),
            "{} packets were dropped whose ports could not be read; they are not counted",
        ),
        (counts.event_count(CountedEvent::Copy), "a bridge made {} copies of packets; each counts as a packet"),
        (
            unknown_lengths.into_value().unwrap_or_default(),
            "for {} datagrams it is unknown whether the buffer of the program was too short",
        ),
    ]));
    notes
}

fn generator_notes(evidence: &PacketEvidence) -> Vec<String> {
    let generator = evidence.generator.unwrap_or_default();
    notes_of_counts(&[
        (generator.duplicate, "the generator got {} replies to requests that had been answered"),
        (generator.unsolicited, "the generator got {} replies that matched no request"),
    ])
}

/// The texts of counts that are not zero, with the count for `{}`.
fn notes_of_counts(counts: &[(u64, &str)]) -> Vec<String> {
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    counts.map(|(count, text)| text.replace("{}", &count.to_string())).collect()
}
