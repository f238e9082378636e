//! The ledger balances exactly if all losses were counted, wherever they occur.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// Losses at each stage between two points: reason and function.
type Way = &'static [&'static [(&'static str, &'static str)]];

/// Receive, before XDP, `Received`, `Delivered` and `Read`.
const IN: Way = &[
    &[("NOT_SPECIFIED", "veth_xdp_rcv_skb"), ("NOMEM", "veth_convert_skb_to_xdp_buff")],
    &[("CPU_BACKLOG", "enqueue_to_backlog")],
    &[
        ("XDP", "do_xdp_generic"),
        ("TC_INGRESS", "__netif_receive_skb_core"),
        ("NETFILTER_DROP", "nf_hook_slow"),
        ("IP_RPFILTER", "ip_rcv_finish_core"),
        ("NO_SOCKET", "__udp4_lib_rcv"),
        ("SOCKET_RCVBUFF", "udp_queue_rcv_one_skb"),
        ("PROTO_MEM", "udp_queue_rcv_one_skb"),
        ("OF_THE_FUTURE", "of_the_future"),
    ],
    &[("UDP_CSUM", "udp_recvmsg"), ("QUEUE_PURGE", "inet_sock_destruct")],
];

/// Transmit, before `Queued` and after it.
const OUT: Way = &[
    &[
        ("NETFILTER_DROP", "nf_hook_slow"),
        ("NEIGH_FAILED", "arp_error_report"),
        ("TC_EGRESS", "__dev_queue_xmit"),
    ],
    &[("QDISC_DROP", "__dev_queue_xmit"), ("FQ_FLOW_LIMIT", "__dev_queue_xmit")],
];

/// Numbers of losses at each place.
fn losses(way: Way) -> impl Strategy<Value = Vec<Vec<u64>>> {
    let of_leg = |leg: &&'static [_]| {
        prop::collection::vec(prop_oneof![3 => Just(0), 1 => 1_u64..1_000_000], leg.len())
    };
    way.iter().map(of_leg).collect::<Vec<_>>()
}

/// The packets that remain after each leg, and the losses as the tracepoint sees them.
fn travel(
    way: Way,
    direction: PacketDirection,
    mut remaining: u64,
    losses: &[Vec<u64>],
) -> (Vec<u64>, BTreeMap<LossSite, u64>) {
    let mut counts = Vec::new();
    let mut drops = BTreeMap::new();
    for (leg, losses) in way.iter().zip(losses) {
        for ((reason, function), packets) in leg.iter().zip(losses) {
            remaining -= packets;
            drops.insert(site(direction, reason, function), *packets);
        }
        counts.push(remaining);
    }
    (counts, drops)
}

/// A run with everything known.
#[derive(Debug, Clone)]
struct Run {
    evidence: PacketEvidence,
    lost: u64,
}

fn run() -> impl Strategy<Value = Run> {
    let parts = (0_u64..1_000_000, 0_u64..1_000_000, 0_u64..1_000_000, 0_u64..1_000_000);
    (100_000_000_u64..1_000_000_000, losses(IN), losses(OUT), parts).prop_map(
        |(sent, of_in, of_out, parts)| {
            let (hardware, silent, on_wire, conntrack) = parts;
            let (counts, mut drops) = travel(IN, Request, sent - hardware, &of_in);
            let (replies, reply_drops) = travel(OUT, Reply, counts[3] - silent, &of_out);
            drops.extend(reply_drops);
            let mut evidence = evidence([counts[1], counts[2], counts[3]], [counts[3] - silent, replies[0]]);
            let answered = replies[1] - on_wire;
            evidence.generator = Some(generator_report(sent, answered));
            evidence.seen.lost = drops;
            evidence.grown = vec![
                grown_counter("eth0", "rx_missed_errors", CounterUse::DeviceLost, hardware),
                grown_counter("conntrack", "drop", CounterUse::Other, conntrack),
                // Counts the same packets again.
                grown_counter("host", "Udp.RcvbufErrors", CounterUse::Other, of_in[2][5]),
                grown_counter("eth0", "rx_queue_0_xdp_drops", CounterUse::XdpDropped, of_in[0][0]),
            ];
            Run { evidence, lost: sent - answered }
        },
    )
}

/// In each stage with known numbers: in equals out plus lost plus waiting plus unaccounted; and out
/// of a stage is in of the next.
fn adds_up(ledger: &PacketAccounting) -> Result<(), TestCaseError> {
    for way in [&ledger.requests, &ledger.replies] {
        for entry in &way.stages {
            let known = entry.packets_in.value().zip(entry.packets_out.value());
            let Some((packets_in, packets_out)) = known else { continue };
            let gap = entry.unaccounted.value().copied().unwrap_or_default();
            let total = i128::from(*packets_out)
                + i128::from(entry.lost_or_forwarded())
                + i128::from(entry.waiting)
                + i128::from(gap);
            prop_assert_eq!(i128::from(*packets_in), total, "{:?}", entry);
        }
        for pair in way.stages.windows(2) {
            prop_assert_eq!(&pair[0].packets_out, &pair[1].packets_in);
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn complete_evidence_balances_and_counts_nothing_twice(run in run()) {
        let ledger = PacketAccounting::make(&run.evidence);
        adds_up(&ledger)?;
        prop_assert!(ledger.is_balanced(), "{:#?}", ledger);
        prop_assert_eq!(ledger.lost(), run.lost);
        prop_assert!(ledger.elsewhere.is_empty());
    }

    #[test]
    fn joined_windows_balance(first in run(), second in run()) {
        let mut report = first.evidence.generator.expect("a report");
        let second_report = second.evidence.generator.expect("a report");
        report.sent += second_report.sent;
        report.answered += second_report.answered;
        report.lost += second_report.lost;
        let mut evidence = first.evidence.joined(&second.evidence);
        evidence.generator = Some(report);
        let ledger = PacketAccounting::make(&evidence);
        adds_up(&ledger)?;
        prop_assert!(ledger.is_balanced(), "{:#?}", ledger);
        prop_assert_eq!(ledger.lost(), first.lost + second.lost);
    }

    #[test]
    fn removed_losses_are_unaccounted(run in run(), index in any::<prop::sample::Index>()) {
        let mut evidence = run.evidence;
        let site = evidence.seen.lost.keys().nth(index.index(evidence.seen.lost.len())).cloned();
        let (site, packets) = site.and_then(|site| evidence.seen.lost.remove_entry(&site)).expect("a loss");
        // Without tracepoint losses, the counter of the same packets replaces them.
        evidence.grown.retain(|grown| grown.kind == CounterUse::DeviceLost);
        let ledger = PacketAccounting::make(&evidence);
        adds_up(&ledger)?;
        // The counter of a driver or of a failed call may replace the removed loss.
        prop_assert!(ledger.lost() + ledger.requests.unaccounted() + ledger.replies.unaccounted() == run.lost);
        // After the qdisc only the generator counts, so these are lost on the wire.
        let after_qdisc = ["QDISC_DROP", "FQ_FLOW_LIMIT"].map(Some).contains(&site.reason.as_deref());
        let missing = if after_qdisc { 0 } else { packets };
        prop_assert_eq!(ledger.requests.unaccounted() + ledger.replies.unaccounted(), missing);
    }

    #[test]
    fn stages_add_up_for_arbitrary_evidence(
        counts in prop::array::uniform5(0_u64..1000),
        sent in 0_u64..1000,
        answered in 0_u64..1000,
        drops in prop::collection::vec((any::<bool>(), 0_usize..6, 0_u64..500), 0..12),
        waits in (0_u64..9, 0_u64..9, 0_u64..9000, 0_u64..9000),
    ) {
        const REASONS: [(&str, &str); 6] = [
            ("NETFILTER_DROP", "nf_hook_slow"), ("SOCKET_RCVBUFF", "x"), ("CPU_BACKLOG", "y"),
            ("QDISC_DROP", "z"), ("NOT_SPECIFIED", "veth_xdp_rcv_skb"), ("NEW", "new"),
        ];
        let [a, b, c, d, e] = counts;
        let mut evidence = evidence([a, b, c], [d, e]);
        evidence.generator = Some(GeneratorSaid { sent, answered, late: answered / 3, ..GeneratorSaid::default() });
        // Losses at several addresses of one function are added up.
        for (address, (is_reply, reason, packets)) in (0..).zip(&drops) {
            let (reason, function) = REASONS[*reason];
            let direction = if *is_reply { Reply } else { Request };
            let site = LossSite { address, ..site(direction, reason, function) };
            evidence.seen.lost.insert(site, *packets);
        }
        evidence.waited.disciplines_packets = waits.0;
        evidence.waiting.backlogs_packets = waits.1;
        evidence.waited.sockets_bytes = Some(waits.2);
        evidence.waiting.sockets_bytes = Some(waits.3);
        let ledger = PacketAccounting::make(&evidence);
        adds_up(&ledger)?;
        let traced_losses: u64 = ledger.requests.losses().chain(ledger.replies.losses()).map(|(_, loss)| loss)
            .chain(&ledger.elsewhere).filter(|loss| loss.source.starts_with("kfree_skb"))
            .map(|loss| loss.packets).sum();
        prop_assert_eq!(traced_losses, drops.iter().map(|(.., packets)| packets).sum::<u64>());
    }
}
