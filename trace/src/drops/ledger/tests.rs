mod balance;
mod unseen;

use linerate_host::Known;

use super::*;
use crate::drops::seen::{
    EdgeCounts, LostCount, PacketCounts, PacketDirection, PacketOrigin, PassedCount, PathPoint, PortSubject,
};

use PacketDirection::{Reply, Request};

fn passed(point: PathPoint, direction: PacketDirection, packets: u64) -> PassedCount {
    PassedCount { point, direction, packets }
}

fn lost(direction: PacketDirection, reason: &str, function: &str, packets: u64) -> LostCount {
    LostCount {
        direction,
        reason: Some(reason.to_owned()),
        function: Some(function.to_owned()),
        location: format!("{function}+0x1f"),
        network: 1,
        device: Some(2),
        port: 0,
        origin: if direction == Reply { PacketOrigin::Local } else { PacketOrigin::Received },
        route_error: 0,
        hook: None,
        packets,
    }
}

fn grown(place: &str, name: &str, kind: CounterUse, packets: u64) -> GrownCounter {
    let (place, name) = (place.to_owned(), name.to_owned());
    GrownCounter { read_from: format!("/somewhere/{name}"), place, name, kind, packets }
}

/// Counts at each point in packet order: those of requests, then those of replies.
fn evidence(requests: [u64; 3], replies: [u64; 2]) -> PacketEvidence {
    let at = [PathPoint::Received, PathPoint::Delivered, PathPoint::Read];
    let mut counts: Vec<PassedCount> =
        at.into_iter().zip(requests).map(|(point, packets)| passed(point, Request, packets)).collect();
    let at = [PathPoint::Sent, PathPoint::Queued];
    counts.extend(at.into_iter().zip(replies).map(|(point, packets)| passed(point, Reply, packets)));
    let subject = PortSubject { ports: vec![53], ..PortSubject::default() };
    let devices = [(2, "eth0".to_owned())].into();
    PacketEvidence {
        subject,
        seen: PacketCounts { seconds: 1.0, passed: counts, devices, ..PacketCounts::default() },
        ..PacketEvidence::default()
    }
}

fn said(sent: u64, answered: u64) -> GeneratorSaid {
    GeneratorSaid { sent, answered, lost: sent - answered, ..GeneratorSaid::default() }
}

/// The only loss.
fn only(ledger: &PacketAccounting) -> (PathStep, &StageLoss) {
    let all: Vec<_> = ledger.requests.losses().chain(ledger.replies.losses()).collect();
    assert_eq!(all.len(), 1, "{all:#?}");
    all[0]
}

#[test]
fn a_clean_run_balances() {
    let evidence = PacketEvidence { generator: Some(said(1000, 1000)), ..evidence([1000; 3], [1000; 2]) };
    let ledger = PacketAccounting::make(&evidence);
    assert!(ledger.is_balanced(), "{ledger:#?}");
    assert_eq!((ledger.lost(), ledger.requests.losses().count()), (0, 0));
    assert_eq!((ledger.requests.packets_in(), ledger.replies.packets_out()), (Some(1000), Some(1000)));
    assert_eq!(ledger.notes, Vec::<String>::new());
    assert_eq!(ledger.subject, "UDP port 53");
}

#[test]
fn a_rule_of_netfilter_and_a_full_table_are_told_apart() {
    let mut evidence = evidence([100, 70, 70], [70; 2]);
    evidence.seen.lost = vec![lost(Request, "NETFILTER_DROP", "nf_hook_slow", 30)];
    let ledger = PacketAccounting::make(&evidence);
    let (step, loss) = only(&ledger);
    assert_eq!((step, loss.name.as_str(), loss.packets), (PathStep::Filter, "netfilter-rule", 30));
    assert_eq!((loss.symbol.as_deref(), loss.exactness), (Some("nf_hook_slow"), LossExactness::Exact));
    assert!(ledger.is_balanced());

    evidence.grown = vec![
        grown("conntrack", "drop", CounterUse::Other, 20),
        grown("eth0 pfifo", "drop", CounterUse::Other, 9),
    ];
    let ledger = PacketAccounting::make(&evidence);
    let told: Vec<_> = ledger.requests.losses().map(|(_, loss)| (loss.name.as_str(), loss.packets)).collect();
    assert_eq!(told, [("conntrack-full", 20), ("netfilter-rule", 10)]);
    assert!(ledger.is_balanced());
    assert_eq!(ledger.lost(), 30);

    // Rules drop in a function of their own, so connection tracking dropped the rest.
    evidence.seen.lost[0].packets = 18;
    evidence.seen.lost.push(lost(Request, "NETFILTER_DROP", "nft_do_chain", 12));
    let ledger = PacketAccounting::make(&evidence);
    let told: Vec<_> = ledger.requests.losses().map(|(_, loss)| (loss.name.as_str(), loss.packets)).collect();
    assert_eq!(told, [("conntrack-full", 18), ("netfilter-rule", 12)]);
}

#[test]
fn what_a_macvtap_takes_is_forwarded_and_what_its_queue_has_no_room_for_is_lost() {
    let mut evidence = evidence([70, 10, 10], [10; 2]);
    evidence.seen.lost = vec![lost(Request, "FULL_RING", "tap_handle_frame", 40)];
    evidence.ports = [("eth0".to_owned(), "macvtap eth0 of web1 (7)".to_owned())].into();
    // Five of these packets belong to other ports.
    evidence.grown = vec![grown("eth0", "rx_taken", CounterUse::MacvtapTaken, 25)];
    let ledger = PacketAccounting::make(&evidence);
    let (step, loss) = only(&ledger);
    assert_eq!((step, loss.name.as_str(), loss.packets), (PathStep::Ingress, "tap-full", 40));
    assert_eq!(loss.place.as_deref(), Some("macvtap eth0 of web1 (7)"));
    assert_eq!((ledger.requests.forwarded(), ledger.is_balanced()), (20, true), "{ledger:#?}");
    assert!(ledger.notes[0].starts_with("20 requests are counted as taken by macvtap eth0"), "{ledger:#?}");
}

#[test]
fn the_flow_limit_is_part_of_the_backlog() {
    let mut evidence = evidence([60, 60, 60], [60; 2]);
    evidence.seen.lost = vec![lost(Request, "CPU_BACKLOG", "enqueue_to_backlog", 40)];
    evidence.grown = vec![grown("cpu 1", "flow_limit", CounterUse::Other, 40)];
    let ledger = PacketAccounting::make(&evidence);
    let (step, loss) = only(&ledger);
    assert_eq!((step, loss.name.as_str(), loss.packets), (PathStep::Softirq, "flow-limit", 40));
    assert_eq!(loss.place.as_deref(), Some("eth0"));
    assert!(ledger.is_balanced());
}

#[test]
fn what_xdp_drops_before_there_is_a_socket_buffer_is_the_devices() {
    let mut evidence = evidence([900; 3], [900; 2]);
    evidence.generator = Some(said(1000, 900));
    evidence.grown = vec![grown("eth0", "rx_queue_0_xdp_drops", CounterUse::XdpDropped, 103)];
    let ledger = PacketAccounting::make(&evidence);
    let (step, loss) = only(&ledger);
    // Three of these packets belong to other ports.
    assert_eq!((step, loss.name.as_str(), loss.packets), (PathStep::Xdp, "xdp-drop", 100));
    assert_eq!((loss.exactness, ledger.lost()), (LossExactness::OfDevice, 100));
    assert!(loss.source.contains("100 of 103"), "{}", loss.source);
    assert!(ledger.is_balanced());
}

#[test]
fn a_drop_that_a_driver_counts_and_a_tracepoint_sees_is_one() {
    let mut evidence = evidence([900; 3], [900; 2]);
    evidence.generator = Some(said(1000, 900));
    evidence.seen.lost = vec![lost(Request, "NOT_SPECIFIED", "veth_xdp_rcv_skb", 100)];
    evidence.grown = vec![grown("eth0", "rx_queue_0_xdp_drops", CounterUse::XdpDropped, 100)];
    let ledger = PacketAccounting::make(&evidence);
    let (step, loss) = only(&ledger);
    assert_eq!((step, loss.name.as_str(), loss.packets), (PathStep::Xdp, "xdp-drop", 100));
    assert_eq!(loss.exactness, LossExactness::Exact);
    assert!(ledger.is_balanced());
}

#[test]
fn without_a_generator_what_a_device_lost_is_told_and_not_added() {
    let mut evidence = evidence([900; 3], [900; 2]);
    evidence.grown = vec![grown("eth0", "rx_missed_errors", CounterUse::DeviceLost, 50)];
    let ledger = PacketAccounting::make(&evidence);
    let (step, loss) = only(&ledger);
    assert_eq!((step, loss.name.as_str(), loss.packets), (PathStep::Link, "device-lost", 50));
    assert_eq!((ledger.lost(), ledger.is_balanced()), (0, true));
}

#[test]
fn what_no_count_explains_is_unaccounted_with_what_may_be_behind_it() {
    let mut evidence = evidence([1000, 800, 800], [800; 2]);
    evidence.grown = vec![grown("host", "Ip.InDiscards", CounterUse::Other, 200)];
    let ledger = PacketAccounting::make(&evidence);
    let socket = ledger.requests.entry(PathStep::Socket).expect("an entry");
    assert_eq!(socket.unaccounted, Known::Value(200));
    assert_eq!(socket.likely[0], "host: /somewhere/Ip.InDiscards grew by 200");
    assert!(!ledger.is_balanced());
    assert_eq!((ledger.requests.unaccounted(), ledger.lost()), (200, 0));
}

#[test]
fn datagrams_that_are_not_read_yet_wait() {
    let mut evidence = evidence([10, 10, 7], [7; 2]);
    evidence.waiting.sockets_bytes = Some(3 * 768);
    let ledger = PacketAccounting::make(&evidence);
    let entry = ledger.requests.entry(PathStep::Application).expect("an entry");
    assert_eq!((entry.waiting, &entry.unaccounted), (3, &Known::Value(0)));
    // If the socket were empty, these datagrams would be missing.
    evidence.waiting.sockets_bytes = Some(0);
    assert_eq!(PacketAccounting::make(&evidence).requests.unaccounted(), 3);
    // Later, the waiting datagrams are read.
    let mut later = evidence;
    later.waited.sockets_bytes = Some(3 * 768);
    later.seen.passed[0].packets = 4;
    later.seen.passed[1].packets = 4;
    let ledger = PacketAccounting::make(&later);
    assert_eq!(ledger.requests.entry(PathStep::Application).map(|entry| entry.waiting), Some(-3));
    assert!(ledger.is_balanced());
}

#[test]
fn what_the_application_cuts_or_does_not_answer_is_its_loss() {
    let mut evidence = evidence([100; 3], [80; 2]);
    evidence.seen.passed.push(passed(PathPoint::Truncated, Request, 5));
    let ledger = PacketAccounting::make(&evidence);
    let told: Vec<_> = ledger.requests.losses().chain(ledger.replies.losses()).collect();
    let told: Vec<_> = told.iter().map(|(step, loss)| (*step, loss.name.as_str(), loss.packets)).collect();
    assert_eq!(told, [(PathStep::Application, "truncated", 5), (PathStep::Application, "not-answered", 15)]);
    assert!(ledger.is_balanced(), "{ledger:#?}");
}

#[test]
fn a_reply_that_a_rule_drops_is_not_a_failed_send_too() {
    let mut evidence = evidence([100; 3], [60, 60]);
    evidence.seen.passed.push(passed(PathPoint::SendFailed, Reply, 40));
    evidence.seen.lost = vec![lost(Reply, "NETFILTER_DROP", "nf_hook_slow", 30)];
    let ledger = PacketAccounting::make(&evidence);
    let told: Vec<_> =
        ledger.replies.losses().map(|(step, loss)| (step, loss.name.as_str(), loss.packets)).collect();
    assert_eq!(told, [(PathStep::Application, "send-failed", 10), (PathStep::Filter, "netfilter-rule", 30)]);
    assert!(ledger.is_balanced(), "{ledger:#?}");
}

#[test]
fn replies_that_do_not_reach_the_generator_are_lost_on_the_way() {
    let generator = GeneratorSaid { late: 2, ..said(100, 90) };
    let evidence = PacketEvidence { generator: Some(generator), ..evidence([100; 3], [100; 2]) };
    let ledger = PacketAccounting::make(&evidence);
    let told: Vec<_> =
        ledger.replies.losses().map(|(step, loss)| (step, loss.name.as_str(), loss.packets)).collect();
    assert_eq!(told, [(PathStep::Wire, "reply-lost", 8), (PathStep::Generator, "reply-late", 2)]);
    assert!(ledger.is_balanced());
    assert_eq!(ledger.replies.packets_out(), Some(90));
}

#[test]
fn a_full_qdisc_loses_replies() {
    let mut evidence = evidence([100; 3], [100, 100]);
    evidence.seen.lost = vec![lost(Reply, "QDISC_DROP", "__dev_queue_xmit", 55)];
    evidence.waiting.disciplines_packets = 5;
    let ledger = PacketAccounting::make(&evidence);
    let (step, loss) = only(&ledger);
    assert_eq!((step, loss.name.as_str(), loss.packets), (PathStep::Transmit, "qdisc-drop", 55));
    assert_eq!(ledger.replies.entry(PathStep::Transmit).map(|entry| entry.waiting), Some(5));
    assert!(ledger.is_balanced());
}

#[test]
fn where_the_kernel_has_no_tracepoint_the_next_count_is_what_is_compared() {
    let mut evidence = evidence([100, 0, 90], [90; 2]);
    evidence.seen.passed.remove(1);
    evidence.seen.lacking = vec!["tracepoint sk_data_ready, which came with Linux 6.3".to_owned()];
    evidence.seen.lost = vec![lost(Request, "SOCKET_RCVBUFF", "udp_queue_rcv_one_skb", 10)];
    let ledger = PacketAccounting::make(&evidence);
    let socket = ledger.requests.entry(PathStep::Socket).expect("an entry");
    assert_eq!(socket.packets_out, Known::Value(90));
    assert!(socket.unaccounted.why().is_some_and(|why| why.contains("sk_data_ready")));
    assert!(ledger.is_balanced());
    assert!(ledger.notes[0].contains("sk_data_ready"));
}

#[test]
fn a_reason_in_no_table_goes_by_its_own_name() {
    let mut evidence = evidence([100, 90, 90], [90; 2]);
    evidence.seen.lost =
        vec![lost(Request, "BRAND_NEW", "brand_new", 7), lost(Request, "NOT_SPECIFIED", "brand_new", 3)];
    let ledger = PacketAccounting::make(&evidence);
    let told: Vec<_> = ledger.requests.losses().map(|(_, loss)| (loss.name.as_str(), loss.packets)).collect();
    assert_eq!(told, [("brand-new", 7), ("unknown", 3)]);
    assert!(ledger.is_balanced());
}

#[test]
fn counters_that_disagree_with_what_was_seen_are_noted() {
    let mut evidence = evidence([100, 90, 90], [90; 2]);
    evidence.seen.lost = vec![lost(Request, "SOCKET_RCVBUFF", "udp_queue_rcv_one_skb", 10)];
    // Other ports may have lost more.
    evidence.grown = vec![grown("host", "Udp.RcvbufErrors", CounterUse::Other, 12)];
    assert_eq!(PacketAccounting::make(&evidence).notes, Vec::<String>::new());
    evidence.subject.ports.clear();
    assert_eq!(
        PacketAccounting::make(&evidence).notes,
        ["Udp.RcvbufErrors and Udp6RcvbufErrors grew by 12, but 10 packets were seen lost as receive-buffer"]
    );
}

#[test]
fn a_full_buffer_is_that_of_the_socket_that_counted_losses() {
    let mut evidence = evidence([100, 90, 90], [90; 2]);
    evidence.seen.lost =
        vec![LostCount { port: 53, ..lost(Request, "SOCKET_RCVBUFF", "udp_queue_rcv_one_skb", 10) }];
    let place = |evidence: &PacketEvidence| only(&PacketAccounting::make(evidence)).1.place.clone();
    assert_eq!(place(&evidence).as_deref(), Some("port 53"));
    let drops = |socket: &str, packets| grown(socket, "drops", CounterUse::Other, packets);
    evidence.grown =
        vec![drops("udp 0.0.0.0:53 (named) ino 812", 3), drops("udp 0.0.0.0:530 (other) ino 9", 90)];
    assert_eq!(place(&evidence).as_deref(), Some("udp 0.0.0.0:53 (named) ino 812"));
    evidence.grown.push(drops("udp 0.0.0.0:53 (named) ino 813", 7));
    assert_eq!(place(&evidence).as_deref(), Some("udp 0.0.0.0:53 (named) ino 813 (7 of them) and 1 more"));
}

/// Captured on Linux 6.18: an nftables rule, a socket without a reader, a port without a socket,
/// and a server that reads eight bytes of each request.
#[test]
fn the_books_of_captured_evidence_balance() {
    let evidence: PacketEvidence =
        serde_json::from_str(include_str!("tests/captured.json")).expect("evidence");
    let ledger = PacketAccounting::make(&evidence);
    assert!(ledger.is_balanced(), "{ledger:#?}");
    assert_eq!(ledger.notes, Vec::<String>::new());
    let told: Vec<_> = ledger.requests.losses().map(|(_, loss)| (loss.name.as_str(), loss.packets)).collect();
    assert_eq!(told, [("netfilter-rule", 30), ("receive-buffer", 61), ("no-socket", 50), ("truncated", 100)]);
    let read = ledger.requests.entry(PathStep::Application).expect("an entry");
    assert_eq!((read.waiting, ledger.replies.packets_out(), ledger.replies.lost()), (9, Some(101), 0));
}

#[test]
fn what_a_socket_tells_is_not_of_a_peer() {
    let mut evidence = evidence([100, 0, 0], [0, 90]);
    evidence.subject.peer = Some(std::net::Ipv4Addr::LOCALHOST.into());
    evidence.seen.lost = vec![lost(Request, "SOCKET_RCVBUFF", "udp_queue_rcv_one_skb", 10)];
    let ledger = PacketAccounting::make(&evidence);
    assert!(ledger.is_balanced(), "{ledger:#?}");
    let told: Vec<_> = ledger.requests.losses().map(|(_, loss)| (loss.name.as_str(), loss.packets)).collect();
    assert_eq!((told, ledger.replies.packets_out()), (vec![("receive-buffer", 10)], Some(90)));
}

#[test]
fn events_that_were_not_counted_make_a_number_a_sample() {
    let mut evidence = evidence([100, 90, 90], [90; 2]);
    evidence.seen.lost = vec![lost(Request, "NO_SOCKET", "__udp4_lib_rcv", 10)];
    evidence.seen.missed = 3;
    let ledger = PacketAccounting::make(&evidence);
    assert_eq!(only(&ledger).1.exactness, LossExactness::Sampled);
    assert!(ledger.notes[0].starts_with("3 events were not counted"));
}

#[test]
fn packets_with_unreadable_ports_are_counted_where_later_points_saw_them() {
    let mut evidence = evidence([40, 100, 100], [100; 2]);
    assert!(!PacketAccounting::make(&evidence).is_balanced());
    // Packets of other ports are among them.
    evidence.seen.unparsed_packets = 70;
    let ledger = PacketAccounting::make(&evidence);
    assert!(ledger.is_balanced(), "{ledger:#?}");
    assert_eq!(ledger.requests.packets_in(), Some(100));
}

#[test]
fn losses_that_are_on_neither_way_are_elsewhere() {
    let mut evidence = evidence([100; 3], [100; 2]);
    // A client on this host that does not read its replies.
    evidence.seen.lost = vec![LostCount {
        origin: PacketOrigin::Received,
        ..lost(Reply, "SOCKET_RCVBUFF", "udp_queue_rcv_one_skb", 10)
    }];
    let ledger = PacketAccounting::make(&evidence);
    assert_eq!(ledger.elsewhere.len(), 1);
    assert_eq!((ledger.elsewhere[0].packets, ledger.lost()), (10, 0));
}

#[test]
fn what_is_on_its_way_when_counting_begins_or_ends_is_not_lost() {
    let mut evidence = evidence([1000, 998, 980], [975, 976]);
    assert!(PacketAccounting::make(&evidence).requests.unaccounted() > 0);
    let rows = |counts: [u64; 5]| {
        let at =
            [PathPoint::Received, PathPoint::Delivered, PathPoint::Read, PathPoint::Sent, PathPoint::Queued];
        at.into_iter().zip(counts).map(|(point, packets)| passed(point, Request, packets)).collect()
    };
    let edge = EdgeCounts { meanwhile: rows([1, 1, 0, 0, 0]), after: rows([40; 5]), at_work_packets: 128 };
    evidence.seen.edges = vec![edge.clone(), edge];
    let ledger = PacketAccounting::make(&evidence);
    assert!(ledger.is_balanced() && ledger.lost() == 0, "{ledger:#?}");
    // Packets in progress cannot exceed what the CPUs handle at a time.
    evidence.seen.passed[0].packets = 1500;
    for edge in &mut evidence.seen.edges {
        edge.after = rows([1000; 5]);
    }
    assert_eq!(PacketAccounting::make(&evidence).requests.unaccounted(), 502 - 2 * (128 + 2));
}

#[test]
fn what_is_forwarded_is_neither_lost_nor_missing() {
    let mut evidence = evidence([100, 0, 0], [0, 0]);
    evidence.seen.passed.push(passed(PathPoint::Forwarded, Request, 60));
    evidence.seen.passed.push(passed(PathPoint::Forwarded, Reply, 50));
    let of = |direction, reason, function, packets| LostCount {
        origin: PacketOrigin::Received,
        ..lost(direction, reason, function, packets)
    };
    evidence.seen.lost = vec![
        of(Request, "NETFILTER_DROP", "nft_do_chain", 30),
        of(Request, "IP_INHDR", "ip_forward", 10),
        of(Reply, "NETFILTER_DROP", "nft_do_chain", 5),
        of(Request, "QDISC_DROP", "__dev_queue_xmit", 7),
    ];
    let ledger = PacketAccounting::make(&evidence);
    assert!(ledger.is_balanced() && ledger.elsewhere.is_empty(), "{ledger:#?}");
    assert_eq!((ledger.requests.packets_in(), ledger.requests.forwarded()), (Some(100), 60));
    assert_eq!((ledger.requests.lost(), ledger.forwarded.lost()), (40, 12));
    assert_eq!((ledger.forwarded.packets_in(), ledger.forwarded.packets_out()), (Some(115), Some(103)));
    let names: Vec<_> = ledger.requests.losses().map(|(_, loss)| loss.name.as_str()).collect();
    assert_eq!(names, ["netfilter-rule", "hops-used-up"]);
}

#[test]
fn what_comes_in_has_what_xdp_dropped() {
    let mut evidence = evidence([900; 3], [900; 2]);
    evidence.seen.lost = vec![lost(Request, "NOT_SPECIFIED", "veth_xdp_rcv_skb", 100)];
    let ledger = PacketAccounting::make(&evidence);
    assert_eq!((ledger.requests.packets_in(), ledger.requests.lost()), (Some(1000), 100));
}

#[test]
fn a_rule_is_of_the_chains_at_its_hook() {
    let mut evidence = evidence([100, 60, 60], [60; 2]);
    evidence.chains =
        ["chain inet t a hook input", "chain inet t b hook prerouting", "chain ip u c hook input"]
            .map(str::to_owned)
            .into();
    let at = |hook: &str, packets| LostCount {
        hook: Some(hook.to_owned()),
        ..lost(Request, "NETFILTER_DROP", "nft_do_chain", packets)
    };
    evidence.seen.lost = vec![at("prerouting", 30), at("input", 9), at("forward", 1)];
    let ledger = PacketAccounting::make(&evidence);
    let places: Vec<_> = ledger.requests.losses().map(|(_, loss)| loss.place.as_deref()).collect();
    let both = "chain inet t a hook input or chain ip u c hook input";
    assert_eq!(places, [Some("chain inet t b hook prerouting"), Some(both), Some("hook forward")]);
}
