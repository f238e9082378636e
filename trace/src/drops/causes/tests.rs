use std::collections::BTreeSet;

use super::*;

fn cause_of(reason: Option<&str>, function: Option<&str>) -> (&'static str, PathStep) {
    let result = of_skb(reason, function, 0).expect("known");
    (result.cause.name, result.step)
}

#[test]
fn cause_tables_have_unique_names_and_known_causes() {
    let names: BTreeSet<&str> = CAUSES.iter().map(|cause| cause.name).collect();
    assert_eq!(names.len(), CAUSES.len());
    for table in [tables::REASONS, tables::FUNCTIONS] {
        let mut keys = BTreeSet::new();
        for (_, cause, names) in table {
            assert!(find_cause(cause).is_some(), "{names} have the unknown cause {cause}");
            for name in names.split_whitespace() {
                assert!(keys.insert(name), "{name} is in two rows");
            }
        }
    }
}

#[test]
fn findings_of_causes_are_doctor_rules() {
    let rules: BTreeSet<&str> =
        linerate_host::stage::STAGES.iter().flat_map(|stage| stage.rules).map(|rule| rule.id).collect();
    for cause in CAUSES {
        assert!(cause.finding.is_none_or(|id| rules.contains(id)), "{}: {:?}", cause.name, cause.finding);
    }
}

#[test]
fn drop_reason_determines_cause_and_step() {
    assert_eq!(
        cause_of(Some("SOCKET_RCVBUFF"), Some("udp_queue_rcv_one_skb")),
        ("receive-buffer", PathStep::Socket)
    );
    assert_eq!(cause_of(Some("NETFILTER_DROP"), Some("nf_hook_slow")), ("netfilter-rule", PathStep::Filter));
    assert_eq!(cause_of(Some("IP_RPFILTER"), None), ("rp-filter", PathStep::Route));
    assert_eq!(cause_of(Some("NO_TX_TARGET"), Some("br_flood")), ("bridge", PathStep::Ingress));
    assert_eq!(cause_of(Some("FULL_RING"), Some("tun_net_xmit")), ("tap-full", PathStep::Link));
    assert_eq!(cause_of(Some("FULL_RING"), Some("tap_handle_frame.part.0")), ("tap-full", PathStep::Ingress));
    assert_eq!(cause_of(Some("FULL_RING"), Some("other_xmit")), ("transmit-ring", PathStep::Link));
}

#[test]
fn function_selects_the_step_of_an_ambiguous_drop_reason() {
    assert_eq!(cause_of(Some("UDP_CSUM"), Some("__udp4_lib_rcv")), ("bad-checksum", PathStep::Socket));
    assert_eq!(cause_of(Some("UDP_CSUM"), Some("udp_recvmsg")), ("bad-checksum-read", PathStep::Application));
    assert_eq!(cause_of(Some("XDP"), Some("do_xdp_generic")), ("xdp-drop", PathStep::Ingress));
    assert_eq!(cause_of(Some("XDP"), Some("veth_xdp_rcv_skb")), ("xdp-drop", PathStep::Xdp));
    assert_eq!(cause_of(Some("PKT_TOO_SMALL"), Some("ip_rcv_core.isra.0")), ("bad-length", PathStep::Route));
    // A reason of a single stage keeps its stage, even if the function was inlined into another
    // one.
    assert_eq!(cause_of(Some("CPU_BACKLOG"), Some("nf_hook_slow")), ("backlog-full", PathStep::Softirq));
}

#[test]
fn function_determines_the_cause_without_a_drop_reason() {
    for reason in [None, Some("NOT_SPECIFIED")] {
        assert_eq!(
            cause_of(reason, Some("udp_queue_rcv_one_skb.part.0")),
            ("receive-buffer", PathStep::Socket)
        );
        assert_eq!(cause_of(reason, Some("br_handle_frame_finish")), ("bridge", PathStep::Ingress));
        assert_eq!(cause_of(reason, Some("nf_hook_slow")), ("netfilter-rule", PathStep::Filter));
        assert_eq!(cause_of(reason, Some("enqueue_to_backlog")), ("backlog-full", PathStep::Softirq));
    }
    assert_eq!(of_skb(Some("NOT_SPECIFIED"), Some("no_such_function"), 0), None);
    assert_eq!(of_skb(None, None, 0), None);
}

#[test]
fn forwarding_drops_are_named_by_function_and_route_error() {
    let name =
        |reason, function, error| of_skb(Some(reason), Some(function), error).expect("known").cause.name;
    assert_eq!(name("IP_INHDR", "ip_forward", 0), "hops-used-up");
    assert_eq!(name("IP_INHDR", "ip_rcv_core.isra.0", 0), "bad-header");
    assert_eq!(name("NOT_SPECIFIED", "ip_error", 22), "blackhole-route");
    assert_eq!(name("NOT_SPECIFIED", "ip6_pkt_drop", -22), "blackhole-route");
    assert_eq!(name("NOT_SPECIFIED", "ip_error", 13), "prohibit-route");
    assert_eq!(name("IP_INNOROUTES", "ip_error", 101), "no-route");
}
