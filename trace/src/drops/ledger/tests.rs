mod balance;
mod untraced_packets;

use linerate_host::Known;

use super::*;
use crate::drops::packet_counts::{
    CountedEvent, EdgeCounts, LossSite, PacketCounts, PacketDirection, PacketOrigin, PassedCounts, PathPoint,
    PortSubject,
};

use PacketDirection::{Reply, Request};

fn site(direction: PacketDirection, reason: &str, function: &str) -> LossSite {
    LossSite {
        address: 0,
        reason: Some(reason.to_owned()),
        network: 1,
        device: Some(2),
        port: 0,
        direction,
        origin: if direction == Reply { PacketOrigin::Local } else { PacketOrigin::Received },
        route_error: 0,
        hook: None,
        function: Some(function.to_owned()),
    }
}

fn grown_counter(place: &str, name: &str, kind: CounterUse, packets: u64) -> GrownCounter {
    let (place, name) = (place.to_owned(), name.to_owned());
    GrownCounter { read_from: format!("/somewhere/{name}"), place, name, kind, packets }
}

/// Counts at each point in packet order: those of requests, then those of replies.
fn evidence(requests: [u64; 3], replies: [u64; 2]) -> PacketEvidence {
    let of_requests =
        [PathPoint::Received, PathPoint::Delivered, PathPoint::Read].map(|point| (point, Request));
    let of_replies = [PathPoint::Sent, PathPoint::Queued].map(|point| (point, Reply));
    let passed = of_requests.into_iter().zip(requests).chain(of_replies.into_iter().zip(replies)).collect();
    let subject = PortSubject { ports: vec![53], ..PortSubject::default() };
    let devices = [(2, "eth0".to_owned())].into();
    PacketEvidence {
        subject,
        seen: PacketCounts { seconds: 1.0, passed, devices, ..PacketCounts::default() },
        ..PacketEvidence::default()
    }
}

fn generator_report(sent: u64, answered: u64) -> GeneratorSaid {
    GeneratorSaid { sent, answered, lost: sent - answered, ..GeneratorSaid::default() }
}

fn balanced(evidence: &PacketEvidence) -> PacketAccounting {
    let ledger = PacketAccounting::make(evidence);
    assert!(ledger.is_balanced(), "{ledger:#?}");
    ledger
}

fn only(ledger: &PacketAccounting) -> (PathStep, &StageLoss) {
    let all: Vec<_> = ledger.requests.losses().chain(ledger.replies.losses()).collect();
    assert_eq!(all.len(), 1, "{all:#?}");
    all[0]
}

fn named(path: &AccountingPath) -> Vec<(&str, u64)> {
    path.losses().map(|(_, loss)| (loss.name.as_str(), loss.packets)).collect()
}

fn placed(path: &AccountingPath) -> Vec<(PathStep, &str, u64)> {
    path.losses().map(|(step, loss)| (step, loss.name.as_str(), loss.packets)).collect()
}

#[test]
fn run_without_losses_balances() {
    let evidence =
        PacketEvidence { generator: Some(generator_report(1000, 1000)), ..evidence([1000; 3], [1000; 2]) };
    let ledger = balanced(&evidence);
    assert_eq!((ledger.lost(), ledger.requests.losses().count()), (0, 0));
    assert_eq!((ledger.requests.packets_in(), ledger.replies.packets_out()), (Some(1000), Some(1000)));
    assert_eq!(ledger.notes, Vec::<String>::new());
    assert_eq!(ledger.subject, "UDP port 53");
}

#[test]
fn conntrack_drops_are_separated_from_netfilter_rule_drops() {
    let mut evidence = evidence([100, 70, 70], [70; 2]);
    evidence.seen.lost = [(site(Request, "NETFILTER_DROP", "nf_hook_slow"), 30)].into();
    let ledger = balanced(&evidence);
    let (step, loss) = only(&ledger);
    assert_eq!((step, loss.name.as_str(), loss.packets), (PathStep::Filter, "netfilter-rule", 30));
    assert_eq!((loss.symbol.as_deref(), loss.exactness), (Some("nf_hook_slow"), LossExactness::Exact));

    evidence.grown = vec![
        grown_counter("conntrack", "drop", CounterUse::Other, 20),
        grown_counter("eth0 pfifo", "drop", CounterUse::Other, 9),
    ];
    let ledger = balanced(&evidence);
    assert_eq!(named(&ledger.requests), [("conntrack-full", 20), ("netfilter-rule", 10)]);
    assert_eq!(ledger.lost(), 30);

    // Rules drop in a function of their own, so connection tracking dropped the rest.
    let functions = [("nf_hook_slow", 18), ("nft_do_chain", 12)];
    evidence.seen.lost =
        functions.map(|(name, packets)| (site(Request, "NETFILTER_DROP", name), packets)).into();
    let ledger = PacketAccounting::make(&evidence);
    assert_eq!(named(&ledger.requests), [("conntrack-full", 18), ("netfilter-rule", 12)]);
}

#[test]
fn macvtap_packets_are_forwarded_or_lost_to_a_full_queue() {
    let mut evidence = evidence([70, 10, 10], [10; 2]);
    evidence.seen.lost = [(site(Request, "FULL_RING", "tap_handle_frame"), 40)].into();
    evidence.ports = [("eth0".to_owned(), "macvtap eth0 of web1 (7)".to_owned())].into();
    // Five of these packets belong to other ports.
    evidence.grown = vec![grown_counter("eth0", "rx_taken", CounterUse::MacvtapTaken, 25)];
    let ledger = PacketAccounting::make(&evidence);
    let (step, loss) = only(&ledger);
    assert_eq!((step, loss.name.as_str(), loss.packets), (PathStep::Ingress, "tap-full", 40));
    assert_eq!(loss.place.as_deref(), Some("macvtap eth0 of web1 (7)"));
    assert_eq!((ledger.requests.forwarded(), ledger.is_balanced()), (20, true), "{ledger:#?}");
    assert!(ledger.notes[0].starts_with("20 requests are counted as taken by macvtap eth0"), "{ledger:#?}");
}

#[test]
fn single_losses_have_step_name_number_and_exactness() {
    let xdp = |packets| grown_counter("eth0", "rx_queue_0_xdp_drops", CounterUse::XdpDropped, packets);
    let flow_limit = grown_counter("cpu 1", "flow_limit", CounterUse::Other, 40);
    let in_backlog = (site(Request, "CPU_BACKLOG", "enqueue_to_backlog"), 40);
    let in_xdp = (site(Request, "NOT_SPECIFIED", "veth_xdp_rcv_skb"), 100);
    let in_qdisc = (site(Reply, "QDISC_DROP", "__dev_queue_xmit"), 55);
    let generator = Some(generator_report(1000, 900));
    for (counts, generator, lost, grown, waiting_packets, expected) in [
        // The counter names the loss.
        (
            ([60; 3], [60; 2]),
            None,
            vec![in_backlog],
            vec![flow_limit],
            0,
            (PathStep::Softirq, "flow-limit", 40, LossExactness::Exact),
        ),
        // Without an skb only the device counts. Three of these packets belong to other ports.
        (
            ([900; 3], [900; 2]),
            generator,
            Vec::new(),
            vec![xdp(103)],
            0,
            (PathStep::Xdp, "xdp-drop", 100, LossExactness::OfDevice),
        ),
        // Driver and tracepoint count the same packets.
        (
            ([900; 3], [900; 2]),
            generator,
            vec![in_xdp],
            vec![xdp(100)],
            0,
            (PathStep::Xdp, "xdp-drop", 100, LossExactness::Exact),
        ),
        // Five packets wait in the qdisc.
        (
            ([100; 3], [100; 2]),
            None,
            vec![in_qdisc],
            Vec::new(),
            5,
            (PathStep::Transmit, "qdisc-drop", 55, LossExactness::Exact),
        ),
    ] {
        let mut evidence = evidence(counts.0, counts.1);
        (evidence.generator, evidence.grown) = (generator, grown);
        evidence.seen.lost = lost.into_iter().collect();
        evidence.waiting.disciplines_packets = waiting_packets;
        let ledger = balanced(&evidence);
        let (step, loss) = only(&ledger);
        assert_eq!((step, loss.name.as_str(), loss.packets, loss.exactness), expected);
        let is_part = expected.3 == LossExactness::OfDevice;
        assert_eq!(loss.source.contains("100 of 103"), is_part, "{}", loss.source);
        let waiting = ledger.replies.entry(PathStep::Transmit).map(|entry| entry.waiting);
        assert_eq!(waiting, Some(waiting_packets.cast_signed()), "{expected:?}");
        // An event that was not counted may have been one of these drops.
        evidence.seen.events = [(CountedEvent::Missed, 3)].into();
        let ledger = PacketAccounting::make(&evidence);
        if expected.3 == LossExactness::Exact {
            assert_eq!(only(&ledger).1.exactness, LossExactness::Sampled);
        }
        assert!(ledger.notes[0].starts_with("3 events were not counted"));
    }
}

/// A client on this host that does not read its replies.
#[test]
fn losses_outside_the_request_and_reply_paths_are_elsewhere() {
    let mut evidence = evidence([100; 3], [100; 2]);
    let reply_site = site(Reply, "SOCKET_RCVBUFF", "udp_queue_rcv_one_skb");
    evidence.seen.lost = [(LossSite { origin: PacketOrigin::Received, ..reply_site }, 10)].into();
    let ledger = PacketAccounting::make(&evidence);
    assert_eq!((ledger.elsewhere.len(), ledger.elsewhere[0].packets, ledger.lost()), (1, 10, 0));
}

#[test]
fn device_losses_are_listed_but_not_added_without_a_generator() {
    let mut evidence = evidence([900; 3], [900; 2]);
    evidence.grown = vec![grown_counter("eth0", "rx_missed_errors", CounterUse::DeviceLost, 50)];
    let ledger = PacketAccounting::make(&evidence);
    let (step, loss) = only(&ledger);
    assert_eq!((step, loss.name.as_str(), loss.packets), (PathStep::Link, "device-lost", 50));
    assert_eq!((ledger.lost(), ledger.is_balanced()), (0, true));
}

#[test]
fn unexplained_losses_are_unaccounted_with_likely_counters() {
    let mut evidence = evidence([1000, 800, 800], [800; 2]);
    evidence.grown = vec![grown_counter("host", "Ip.InDiscards", CounterUse::Other, 200)];
    let ledger = PacketAccounting::make(&evidence);
    let socket = ledger.requests.entry(PathStep::Socket).expect("an entry");
    assert_eq!(socket.unaccounted, Known::Value(200));
    assert_eq!(socket.likely[0], "host: /somewhere/Ip.InDiscards grew by 200");
    assert!(!ledger.is_balanced());
    assert_eq!((ledger.requests.unaccounted(), ledger.lost()), (200, 0));
}

#[test]
fn unread_datagrams_in_the_socket_are_waiting() {
    let mut evidence = evidence([10, 10, 7], [7; 2]);
    evidence.waiting.sockets_bytes = Some(3 * 768);
    let ledger = PacketAccounting::make(&evidence);
    let entry = ledger.requests.entry(PathStep::Application).expect("an entry");
    assert_eq!((entry.waiting, &entry.unaccounted), (3, &Known::Value(0)));
    // If the socket were empty, these datagrams would be missing.
    evidence.waiting.sockets_bytes = Some(0);
    assert_eq!(PacketAccounting::make(&evidence).requests.unaccounted(), 3);
    // One buffer has up to three datagrams.
    evidence.waiting.sockets_bytes = Some(512);
    assert_eq!(PacketAccounting::make(&evidence).requests.unaccounted(), 2);
    evidence.seen.buffer_datagrams = 3;
    balanced(&evidence);
    // Later, the waiting datagrams are read.
    let mut later = evidence;
    later.waited.sockets_bytes = Some(3 * 768);
    later.seen.passed.extend([PathPoint::Received, PathPoint::Delivered].map(|point| ((point, Request), 4)));
    let ledger = balanced(&later);
    assert_eq!(ledger.requests.entry(PathStep::Application).map(|entry| entry.waiting), Some(-3));
}

#[test]
fn truncated_and_unanswered_requests_are_application_losses() {
    let mut evidence = evidence([100; 3], [80; 2]);
    evidence.seen.passed.insert((PathPoint::Truncated, Request), 5);
    let ledger = balanced(&evidence);
    assert_eq!(
        [placed(&ledger.requests), placed(&ledger.replies)].concat(),
        [(PathStep::Application, "truncated", 5), (PathStep::Application, "not-answered", 15)]
    );
}

#[test]
fn reply_dropped_by_a_rule_is_not_counted_as_failed_send() {
    let mut evidence = evidence([100; 3], [60, 60]);
    evidence.seen.passed.insert((PathPoint::SendFailed, Reply), 40);
    evidence.seen.lost = [(site(Reply, "NETFILTER_DROP", "nf_hook_slow"), 30)].into();
    let ledger = balanced(&evidence);
    assert_eq!(
        placed(&ledger.replies),
        [(PathStep::Application, "send-failed", 10), (PathStep::Filter, "netfilter-rule", 30)]
    );
}

#[test]
fn missing_replies_are_lost_on_the_wire_or_late() {
    let generator = GeneratorSaid { late: 2, ..generator_report(100, 90) };
    let evidence = PacketEvidence { generator: Some(generator), ..evidence([100; 3], [100; 2]) };
    let ledger = balanced(&evidence);
    assert_eq!(
        placed(&ledger.replies),
        [(PathStep::Wire, "reply-lost", 8), (PathStep::Generator, "reply-late", 2)]
    );
    assert_eq!(ledger.replies.packets_out(), Some(90));
}

#[test]
fn replies_to_others_than_the_generator_are_not_lost() {
    let generator = Some(generator_report(10_000, 10_000));
    let evidence = PacketEvidence { generator, ..evidence([60_000; 3], [60_000; 2]) };
    let replies = PacketAccounting::make(&evidence).replies;
    let wire = replies.entry(PathStep::Wire).expect("an entry");
    assert_eq!((replies.lost(), &wire.unaccounted), (0, &Known::Value(50_000)));
    assert_eq!(wire.likely[0], "replies to others than the generator");
}

#[test]
fn calls_that_send_several_packets_are_neither_lost_nor_unaccounted() {
    // Replies of three packets each; then a protocol that sends less often than it reads.
    for (requests, calls, packets) in [(100, 100, 300), (900, 300, 1000)] {
        let ledger = PacketAccounting::make(&evidence([requests; 3], [calls, packets]));
        assert!(ledger.is_clean(), "{ledger:#?}");
        assert_eq!(ledger.replies.packets_out(), Some(packets));
    }
}

#[test]
fn missing_tracepoint_is_replaced_by_the_next_count() {
    let mut evidence = evidence([100, 0, 90], [90; 2]);
    evidence.seen.passed.remove(&(PathPoint::Delivered, Request));
    evidence.seen.lacking = vec!["tracepoint sk_data_ready, which came with Linux 6.3".to_owned()];
    evidence.seen.lost = [(site(Request, "SOCKET_RCVBUFF", "udp_queue_rcv_one_skb"), 10)].into();
    let ledger = balanced(&evidence);
    let socket = ledger.requests.entry(PathStep::Socket).expect("an entry");
    assert_eq!(socket.packets_out, Known::Value(90));
    assert!(socket.unaccounted.why().is_some_and(|why| why.contains("sk_data_ready")));
    assert!(ledger.notes[0].contains("sk_data_ready"));
}

#[test]
fn broadcasts_that_no_socket_wants_are_not_lost() {
    let mut evidence = evidence([100, 63, 63], [63; 2]);
    evidence.subject.ports.clear();
    for function in ["__udp4_lib_rcv", "__udp4_lib_mcast_deliver.isra.0"] {
        evidence.seen.lost = [(site(Request, "NOT_SPECIFIED", function), 37)].into();
        evidence.grown = vec![grown_counter("host", "Udp.IgnoredMulti", CounterUse::Other, 37)];
        let ledger = PacketAccounting::make(&evidence);
        assert!(ledger.is_clean(), "{ledger:#?}");
        assert_eq!(ledger.requests.packets_in(), Some(63));
        assert!(ledger.notes[0].starts_with("37 broadcasts and multicasts"), "{:?}", ledger.notes);
        evidence.grown[0].packets = 30;
        assert_eq!(PacketAccounting::make(&evidence).requests.lost(), 7);
        evidence.seen.lost = [(site(Request, "NO_SOCKET", function), 37)].into();
        assert_eq!(PacketAccounting::make(&evidence).requests.lost(), 37);
    }
}

#[test]
fn unlisted_drop_reasons_keep_their_own_name() {
    let mut evidence = evidence([100, 90, 90], [90; 2]);
    let reasons = [("BRAND_NEW", 7), ("NOT_SPECIFIED", 3)];
    evidence.seen.lost =
        reasons.map(|(reason, packets)| (site(Request, reason, "brand_new"), packets)).into();
    let ledger = balanced(&evidence);
    assert_eq!(named(&ledger.requests), [("brand-new", 7), ("unknown", 3)]);
}

#[test]
fn counters_below_the_traced_losses_are_noted() {
    let mut evidence = evidence([100, 90, 90], [90; 2]);
    evidence.seen.lost = [(site(Request, "SOCKET_RCVBUFF", "udp_queue_rcv_one_skb"), 10)].into();
    evidence.subject.ports.clear();
    // The counter is of a longer time.
    evidence.grown = vec![grown_counter("host", "Udp.RcvbufErrors", CounterUse::Other, 12)];
    assert_eq!(PacketAccounting::make(&evidence).notes, Vec::<String>::new());
    evidence.grown[0].packets = 8;
    assert_eq!(
        PacketAccounting::make(&evidence).notes,
        ["Udp.RcvbufErrors and Udp6RcvbufErrors grew by 8, but 10 packets were seen lost as receive-buffer"]
    );
}

#[test]
fn receive_buffer_loss_names_the_socket_with_grown_drops() {
    let mut evidence = evidence([100, 90, 90], [90; 2]);
    let site = LossSite { port: 53, ..site(Request, "SOCKET_RCVBUFF", "udp_queue_rcv_one_skb") };
    evidence.seen.lost = [(site, 10)].into();
    let place = |evidence: &PacketEvidence| only(&PacketAccounting::make(evidence)).1.place.clone();
    assert_eq!(place(&evidence).as_deref(), Some("port 53"));
    let drops = |socket: &str, packets| grown_counter(socket, "drops", CounterUse::Other, packets);
    evidence.grown =
        vec![drops("udp 0.0.0.0:53 (named) ino 812", 3), drops("udp 0.0.0.0:530 (other) ino 9", 90)];
    assert_eq!(place(&evidence).as_deref(), Some("udp 0.0.0.0:53 (named) ino 812"));
    evidence.grown.push(drops("udp 0.0.0.0:53 (named) ino 813", 7));
    assert_eq!(place(&evidence).as_deref(), Some("udp 0.0.0.0:53 (named) ino 813 (7 of them) and 1 more"));
}

/// The numbers were captured on Linux 6.18: an nftables rule, a socket without a reader, a port
/// without a socket, and a server that reads eight bytes of each request.
#[test]
fn captured_evidence_balances() {
    let mut evidence = evidence([251, 110, 101], [101; 2]);
    evidence.subject.ports = (4001..=4004).collect();
    evidence.seen.passed.insert((PathPoint::Truncated, Request), 100);
    evidence.seen.lost = [
        ("NETFILTER_DROP", "nft_do_chain", 4004, 30),
        ("SOCKET_RCVBUFF", "udp_queue_rcv_one_skb", 4002, 61),
        ("NO_SOCKET", "__udp4_lib_rcv", 4003, 50),
    ]
    .map(|(reason, function, port, packets)| (LossSite { port, ..site(Request, reason, function) }, packets))
    .into();
    evidence.grown = [
        ("cpu 0", "processed", 16_210),
        ("cpu 1", "processed", 2016),
        ("cpu 1", "received_rps", 1),
        ("eth0", "rx_packets", 252),
        ("eth0", "tx_packets", 108),
        ("host", "Ip.InDelivers", 221),
        ("host", "Ip.InReceives", 251),
        ("host", "Ip6InReceives", 1),
        ("host", "Udp.NoPorts", 50),
        ("host", "Udp.RcvbufErrors", 61),
        ("udp 198.18.0.1:4002 (server) ino 1120096", "drops", 61),
    ]
    .map(|(place, name, packets)| grown_counter(place, name, CounterUse::Other, packets))
    .into();
    (evidence.waited.sockets_bytes, evidence.waiting.sockets_bytes) = (Some(0), Some(7488));
    evidence.generator = Some(generator_report(251, 101));
    let ledger = balanced(&evidence);
    assert_eq!(ledger.notes, Vec::<String>::new());
    assert_eq!(
        named(&ledger.requests),
        [("netfilter-rule", 30), ("receive-buffer", 61), ("no-socket", 50), ("truncated", 100)]
    );
    let read = ledger.requests.entry(PathStep::Application).expect("an entry");
    assert_eq!((read.waiting, ledger.replies.packets_out(), ledger.replies.lost()), (9, Some(101), 0));
}

#[test]
fn socket_counts_are_ignored_for_a_single_peer() {
    let mut evidence = evidence([100, 0, 0], [0, 90]);
    evidence.subject.peer = Some(std::net::Ipv4Addr::LOCALHOST.into());
    evidence.seen.lost = [(site(Request, "SOCKET_RCVBUFF", "udp_queue_rcv_one_skb"), 10)].into();
    let ledger = balanced(&evidence);
    let losses = named(&ledger.requests);
    assert_eq!((losses, ledger.replies.packets_out()), (vec![("receive-buffer", 10)], Some(90)));
}

#[test]
fn packets_with_unreadable_ports_are_added_from_later_points() {
    let mut evidence = evidence([40, 100, 100], [100; 2]);
    assert!(!PacketAccounting::make(&evidence).is_balanced());
    // Packets of other ports are among them.
    evidence.seen.events.insert(CountedEvent::Unparsed, 70);
    let ledger = balanced(&evidence);
    assert_eq!(ledger.requests.packets_in(), Some(100));
    evidence.seen.events.extend([(CountedEvent::LostUnparsed, 4), (CountedEvent::LostFragment, 5)]);
    let notes = PacketAccounting::make(&evidence).notes;
    assert!(notes.iter().any(|note| note.starts_with("4 packets were dropped")), "{notes:?}");
    assert!(notes.iter().any(|note| note.starts_with("5 fragments without ports were dropped")), "{notes:?}");
}

#[test]
fn packets_in_flight_at_start_or_end_are_not_losses() {
    let mut evidence = evidence([1000, 998, 980], [975, 976]);
    assert!(PacketAccounting::make(&evidence).requests.unaccounted() > 0);
    let rows = |counts: [u64; 5]| -> PassedCounts {
        let at =
            [PathPoint::Received, PathPoint::Delivered, PathPoint::Read, PathPoint::Sent, PathPoint::Queued];
        at.map(|point| (point, Request)).into_iter().zip(counts).collect()
    };
    let edge = EdgeCounts { meanwhile: rows([1, 1, 0, 0, 0]), after: rows([40; 5]), at_work_packets: 128 };
    evidence.seen.edges = vec![edge.clone(), edge];
    let ledger = PacketAccounting::make(&evidence);
    assert!(ledger.is_balanced() && ledger.lost() == 0, "{ledger:#?}");
    // Packets in progress cannot exceed what the CPUs handle at a time.
    evidence.seen.passed.insert((PathPoint::Received, Request), 1500);
    for edge in &mut evidence.seen.edges {
        edge.after = rows([1000; 5]);
    }
    assert_eq!(PacketAccounting::make(&evidence).requests.unaccounted(), 502 - 2 * (128 + 2));
}

#[test]
fn forwarded_packets_are_neither_lost_nor_unaccounted() {
    let mut evidence = evidence([100, 0, 0], [0, 0]);
    evidence
        .seen
        .passed
        .extend([(Request, 60), (Reply, 50)].map(|(to, count)| ((PathPoint::Forwarded, to), count)));
    evidence.seen.lost = [
        (Request, "NETFILTER_DROP", "nft_do_chain", 30),
        (Request, "IP_INHDR", "ip_forward", 10),
        (Reply, "NETFILTER_DROP", "nft_do_chain", 5),
        (Request, "QDISC_DROP", "__dev_queue_xmit", 7),
    ]
    .map(|(direction, reason, function, packets)| {
        (LossSite { origin: PacketOrigin::Received, ..site(direction, reason, function) }, packets)
    })
    .into();
    let ledger = PacketAccounting::make(&evidence);
    assert!(ledger.is_balanced() && ledger.elsewhere.is_empty(), "{ledger:#?}");
    assert_eq!((ledger.requests.packets_in(), ledger.requests.forwarded()), (Some(100), 60));
    assert_eq!((ledger.requests.lost(), ledger.forwarded.lost()), (40, 12));
    assert_eq!((ledger.forwarded.packets_in(), ledger.forwarded.packets_out()), (Some(115), Some(103)));
    let names: Vec<_> = ledger.requests.losses().map(|(_, loss)| loss.name.as_str()).collect();
    assert_eq!(names, ["netfilter-rule", "hops-used-up"]);
}

#[test]
fn incoming_packets_include_xdp_drops() {
    let mut evidence = evidence([900; 3], [900; 2]);
    evidence.seen.lost = [(site(Request, "NOT_SPECIFIED", "veth_xdp_rcv_skb"), 100)].into();
    let ledger = PacketAccounting::make(&evidence);
    assert_eq!((ledger.requests.packets_in(), ledger.requests.lost()), (Some(1000), 100));
}

#[test]
fn netfilter_rule_loss_names_the_chains_of_its_hook() {
    let mut evidence = evidence([100, 60, 60], [60; 2]);
    evidence.chains =
        ["chain inet t a hook input", "chain inet t b hook prerouting", "chain ip u c hook input"]
            .map(str::to_owned)
            .into();
    let at = |hook| LossSite { hook: Some(hook), ..site(Request, "NETFILTER_DROP", "nft_do_chain") };
    evidence.seen.lost = [(at("prerouting"), 30), (at("input"), 9), (at("forward"), 1)].into();
    let ledger = PacketAccounting::make(&evidence);
    let places: Vec<_> = ledger.requests.losses().map(|(_, loss)| loss.place.as_deref()).collect();
    let both = "chain inet t a hook input or chain ip u c hook input";
    assert_eq!(places, [Some("chain inet t b hook prerouting"), Some(both), Some("hook forward")]);
}
