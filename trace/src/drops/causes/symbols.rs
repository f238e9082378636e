//! What the function says in which a packet fell: all there is before Linux 5.17, and where reasons are ambiguous.
//!
//! Names are those of the functions that call `kfree_skb` in Linux 4.18 to 6.18; the compiler may have put one into another,
//! of which only the outer one is seen.

use super::{Met, named};
use crate::drops::ledger::Step;

/// What a packet that fell in this function most often met.
pub(super) fn met(function: &str) -> Option<Met> {
    let (_, step, cause) = FUNCTIONS.iter().find(|(name, ..)| *name == function)?;
    Some(Met { step: *step, cause: named(cause)? })
}

/// A cause that several stages give, at the stage of this function; none for other causes, and functions not known here.
pub(super) fn moved(cause: &str, function: &str) -> Option<Met> {
    let step = met(function)?.step;
    let cause = match cause {
        "bad-checksum" if step == Step::Application => "bad-checksum-read",
        cause if AMBIGUOUS.contains(&cause) => cause,
        _ => return None,
    };
    Some(Met { step, cause: named(cause)? })
}

/// Causes whose reason is given at more than one stage.
const AMBIGUOUS: &[&str] = &[
    "bad-checksum",
    "bad-length",
    "device-down",
    "driver-dropped",
    "memory",
    "no-route",
    "policy",
    "security-module",
    "segmentation",
    "xdp-drop",
];

pub(super) const FUNCTIONS: &[(&str, Step, &str)] = &[
    // Drivers.
    ("veth_xmit", Step::Link, "transmit-ring"),
    ("tun_net_xmit", Step::Link, "transmit-ring"),
    ("__dev_kfree_skb_any", Step::Link, "driver-dropped"),
    ("dev_kfree_skb_any_reason", Step::Link, "driver-dropped"),
    ("__dev_forward_skb", Step::Link, "device-down"),
    ("__dev_forward_skb2", Step::Link, "device-down"),
    ("dev_forward_skb", Step::Link, "device-down"),
    ("veth_xdp_rcv_skb", Step::Xdp, "xdp-drop"),
    ("veth_convert_skb_to_xdp_buff", Step::Xdp, "memory"),
    // net/core/dev.c.
    ("enqueue_to_backlog", Step::Softirq, "backlog-full"),
    ("netif_rx_internal", Step::Softirq, "backlog-full"),
    ("do_xdp_generic", Step::Ingress, "xdp-drop"),
    ("netif_receive_generic_xdp", Step::Ingress, "xdp-drop"),
    ("sch_handle_ingress", Step::Ingress, "tc-ingress"),
    ("tcf_qevent_handle", Step::Transmit, "qdisc-drop"),
    ("__netif_receive_skb_core", Step::Ingress, "no-protocol"),
    ("sch_handle_egress", Step::Ingress, "tc-egress"),
    // Netfilter.
    ("nf_hook_slow", Step::Filter, "netfilter-rule"),
    ("nf_hook_slow_list", Step::Filter, "netfilter-rule"),
    ("nft_do_chain", Step::Filter, "netfilter-rule"),
    // IPv4 and IPv6.
    ("ip_rcv", Step::Route, "bad-header"),
    ("ip_rcv_core", Step::Route, "bad-header"),
    ("ip6_rcv_core", Step::Route, "bad-header"),
    ("ipv6_rcv", Step::Route, "bad-header"),
    ("ip_rcv_finish", Step::Route, "martian"),
    ("ip_rcv_finish_core", Step::Route, "martian"),
    ("ip6_mc_input", Step::Route, "not-for-us"),
    ("ip_error", Step::Route, "no-route"),
    ("ip_forward", Step::Route, "no-route"),
    ("ip6_forward", Step::Route, "no-route"),
    ("ip6_pkt_drop", Step::Route, "no-route"),
    ("ip_local_deliver_finish", Step::Route, "no-transport"),
    ("ip_protocol_deliver_rcu", Step::Route, "no-transport"),
    ("ip6_protocol_deliver_rcu", Step::Route, "no-transport"),
    ("ip_defrag", Step::Route, "fragment"),
    ("ip_expire", Step::Route, "fragment"),
    ("ip_frag_queue", Step::Route, "fragment"),
    ("ip6_frag_queue", Step::Route, "fragment"),
    ("inet_frag_rbtree_purge", Step::Route, "fragment"),
    // UDP.
    ("__udp4_lib_rcv", Step::Socket, "no-socket"),
    ("__udp6_lib_rcv", Step::Socket, "no-socket"),
    ("udp_queue_rcv_skb", Step::Socket, "receive-buffer"),
    ("__udp_queue_rcv_skb", Step::Socket, "receive-buffer"),
    ("udp_queue_rcv_one_skb", Step::Socket, "receive-buffer"),
    ("udpv6_queue_rcv_skb", Step::Socket, "receive-buffer"),
    ("__udpv6_queue_rcv_skb", Step::Socket, "receive-buffer"),
    ("udpv6_queue_rcv_one_skb", Step::Socket, "receive-buffer"),
    ("udp_recvmsg", Step::Application, "bad-checksum-read"),
    ("udpv6_recvmsg", Step::Application, "bad-checksum-read"),
    ("first_packet_length", Step::Application, "bad-checksum-read"),
    ("__first_packet_length", Step::Application, "bad-checksum-read"),
    ("skb_queue_purge", Step::Application, "unread"),
    ("skb_queue_purge_reason", Step::Application, "unread"),
    ("__skb_queue_purge_reason", Step::Application, "unread"),
    ("inet_sock_destruct", Step::Application, "unread"),
    ("udp_destruct_common", Step::Application, "unread"),
    ("udp_destruct_sock", Step::Application, "unread"),
    // The way out.
    ("ip_finish_output", Step::Filter, "cgroup-program"),
    ("ip6_finish_output", Step::Filter, "cgroup-program"),
    ("ip_finish_output2", Step::Route, "no-neighbour"),
    ("ip6_finish_output2", Step::Route, "no-neighbour"),
    ("__neigh_event_send", Step::Route, "no-neighbour"),
    ("neigh_invalidate", Step::Route, "no-neighbour"),
    ("arp_error_report", Step::Route, "no-neighbour"),
    ("ndisc_error_report", Step::Route, "no-neighbour"),
    ("ip_fragment", Step::Route, "too-big"),
    ("ip6_fragment", Step::Route, "too-big"),
    ("__dev_queue_xmit", Step::Transmit, "qdisc-drop"),
    ("__dev_xmit_skb", Step::Transmit, "qdisc-drop"),
    ("dev_queue_xmit", Step::Transmit, "qdisc-drop"),
    ("kfree_skb_list", Step::Transmit, "qdisc-drop"),
    ("kfree_skb_list_reason", Step::Transmit, "qdisc-drop"),
    ("rtnl_kfree_skbs", Step::Transmit, "qdisc-drop"),
    ("validate_xmit_skb", Step::Transmit, "segmentation"),
    ("validate_xmit_skb_list", Step::Transmit, "segmentation"),
    ("sch_direct_xmit", Step::Transmit, "device-down"),
];
