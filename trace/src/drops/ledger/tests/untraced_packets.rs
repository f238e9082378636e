//! Packets without tracepoint events.

use super::*;

/// A run in which the socket dropped 40 of 100 packets. `hidden` of them were seen at no point, so
/// `points` packets are missing.
fn hiding(hidden: u64, points: u64) -> PacketEvidence {
    let mut evidence = evidence([100 - points, 60, 60], [60; 2]);
    evidence.generator = Some(generator_report(100, 60));
    let site = LossSite { port: 53, ..site(Request, "SOCKET_RCVBUFF", "udp_queue_rcv_one_skb") };
    evidence.seen.lost = [(site, 40 - hidden)].into();
    let place = "udp 0.0.0.0:53 (named) ino 812";
    evidence.within = vec![grown_counter(place, "drops", CounterUse::Other, 40)];
    evidence.grown = vec![
        grown_counter(place, "drops", CounterUse::Other, 45),
        grown_counter("host", "Udp.RcvbufErrors", CounterUse::Other, 50),
    ];
    evidence
}

#[test]
fn untraced_socket_drops_are_counted_by_the_socket() {
    // 30 of the 40 drops are unseen, then all of them.
    for (hidden, points) in [(30, 30), (40, 40)] {
        let ledger = balanced(&hiding(hidden, points));
        let (step, loss) = only(&ledger);
        assert_eq!((step, loss.name.as_str(), loss.packets), (PathStep::Socket, "receive-buffer", 40));
        assert_eq!(loss.exactness, LossExactness::Exact);
        assert!(loss.source.contains("the socket's own count"), "{}", loss.source);
        assert_eq!(loss.place.as_deref(), Some("udp 0.0.0.0:53 (named) ino 812"));
        assert_eq!(ledger.notes.len(), 1, "{:?}", ledger.notes);
        assert!(ledger.notes[0].contains(&format!("dropped {hidden} packets that no tracepoint")));
    }
}

#[test]
fn untraced_drops_are_named_by_the_udp_counters_or_unknown() {
    let mut evidence = hiding(30, 30);
    evidence.grown = vec![
        grown_counter("host", "Udp.RcvbufErrors", CounterUse::Other, 18),
        grown_counter("host", "Udp6MemErrors", CounterUse::Other, 15),
    ];
    let ledger = balanced(&evidence);
    let mut losses = named(&ledger.requests);
    losses.sort_unstable();
    assert_eq!(losses, [("receive-buffer", 18), ("udp-memory", 15), ("unknown", 7)]);
}

#[test]
fn gap_not_covered_by_socket_counters_stays_unaccounted() {
    // Sockets count 10 of 30 missing packets, and those of another port do not matter.
    let mut evidence = hiding(30, 30);
    evidence.within[0].packets = 20;
    evidence.within.push(grown_counter("udp 0.0.0.0:530 (other) ino 9", "drops", CounterUse::Other, 500));
    let ledger = PacketAccounting::make(&evidence);
    assert_eq!(only(&ledger).1.packets, 20);
    assert_eq!(
        ledger.requests.entry(PathStep::Softirq).map(|entry| &entry.unaccounted),
        Some(&Known::Value(20))
    );
    // If others send to the same sockets, their counters prove nothing.
    evidence.subject.peer = Some(std::net::Ipv4Addr::LOCALHOST.into());
    assert_eq!(only(&PacketAccounting::make(&evidence)).1.packets, 10);
}

#[test]
fn read_packets_count_as_delivered() {
    // Forty packets were hidden, of which five may have waited since before.
    let mut evidence = evidence([60, 60, 100], [100; 2]);
    evidence.waited.sockets_bytes = Some(5 * 512);
    evidence.generator = Some(generator_report(95, 95));
    let ledger = PacketAccounting::make(&evidence);
    let socket = ledger.requests.entry(PathStep::Socket).expect("an entry");
    assert_eq!((socket.packets_in.value(), socket.packets_out.value()), (Some(&95), Some(&95)));
    assert_eq!(ledger.requests.entry(PathStep::Application).map(|entry| entry.waiting), Some(-5));
    assert_eq!(ledger.requests.unaccounted(), 0, "{ledger:#?}");
    assert!(ledger.notes[0].starts_with("35 packets were read"), "{:?}", ledger.notes);
    // The number of waiting packets is unknown, so all forty may have waited.
    evidence.waited.sockets_bytes = None;
    assert_eq!(
        PacketAccounting::make(&evidence).requests.entry(PathStep::Socket).unwrap().packets_out,
        Known::Value(60)
    );
}

#[test]
fn socket_counters_add_nothing_if_all_drops_were_traced() {
    let ledger = balanced(&hiding(0, 0));
    assert_eq!((only(&ledger).1.packets, ledger.notes.len()), (40, 0));
}
