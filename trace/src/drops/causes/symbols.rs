//! Causes by the function that dropped the packet: all there is before Linux 5.17, and for
//! ambiguous reasons.
//!
//! Names are those of the functions that call `kfree_skb` in Linux 4.18 to 6.18; after inlining
//! only the outer function is visible.

use super::{StagedCause, named};
use crate::drops::ledger::PathStep;

/// The most frequent cause in this function.
pub(super) fn met(function: &str) -> Option<StagedCause> {
    let (_, step, cause) = FUNCTIONS.iter().find(|(name, ..)| *name == function)?;
    Some(StagedCause { step: *step, cause: named(cause)? })
}

/// A cause of several stages, at the stage of this function; `None` for other causes and unknown
/// functions.
pub(super) fn moved(cause: &str, function: &str) -> Option<StagedCause> {
    let step = met(function)?.step;
    let cause = match cause {
        "bad-checksum" if step == PathStep::Application => "bad-checksum-read",
        cause if AMBIGUOUS.contains(&cause) => cause,
        _ => return None,
    };
    Some(StagedCause { step, cause: named(cause)? })
}

/// Causes whose reason occurs at more than one stage.
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

pub(super) const FUNCTIONS: &[(&str, PathStep, &str)] = &[
    // Drivers.
    ("veth_xmit", PathStep::Link, "transmit-ring"),
    ("tun_net_xmit", PathStep::Link, "transmit-ring"),
    ("__dev_kfree_skb_any", PathStep::Link, "driver-dropped"),
    ("dev_kfree_skb_any_reason", PathStep::Link, "driver-dropped"),
    ("__dev_forward_skb", PathStep::Link, "device-down"),
    ("__dev_forward_skb2", PathStep::Link, "device-down"),
    ("dev_forward_skb", PathStep::Link, "device-down"),
    ("veth_xdp_rcv_skb", PathStep::Xdp, "xdp-drop"),
    ("veth_convert_skb_to_xdp_buff", PathStep::Xdp, "memory"),
    // net/core/dev.c.
    ("enqueue_to_backlog", PathStep::Softirq, "backlog-full"),
    ("netif_rx_internal", PathStep::Softirq, "backlog-full"),
    ("do_xdp_generic", PathStep::Ingress, "xdp-drop"),
    ("netif_receive_generic_xdp", PathStep::Ingress, "xdp-drop"),
    ("sch_handle_ingress", PathStep::Ingress, "tc-ingress"),
    ("tcf_qevent_handle", PathStep::Transmit, "qdisc-drop"),
    ("__netif_receive_skb_core", PathStep::Ingress, "no-protocol"),
    ("sch_handle_egress", PathStep::Ingress, "tc-egress"),
    // Netfilter.
    ("nf_hook_slow", PathStep::Filter, "netfilter-rule"),
    ("nf_hook_slow_list", PathStep::Filter, "netfilter-rule"),
    ("nft_do_chain", PathStep::Filter, "netfilter-rule"),
    // IPv4 and IPv6.
    ("ip_rcv", PathStep::Route, "bad-header"),
    ("ip_rcv_core", PathStep::Route, "bad-header"),
    ("ip6_rcv_core", PathStep::Route, "bad-header"),
    ("ipv6_rcv", PathStep::Route, "bad-header"),
    ("ip_rcv_finish", PathStep::Route, "martian"),
    ("ip_rcv_finish_core", PathStep::Route, "martian"),
    ("ip6_mc_input", PathStep::Route, "not-for-us"),
    ("ip_error", PathStep::Route, "no-route"),
    ("ip_forward", PathStep::Route, "no-route"),
    ("ip6_forward", PathStep::Route, "no-route"),
    ("ip6_pkt_drop", PathStep::Route, "no-route"),
    ("ip_local_deliver_finish", PathStep::Route, "no-transport"),
    ("ip_protocol_deliver_rcu", PathStep::Route, "no-transport"),
    ("ip6_protocol_deliver_rcu", PathStep::Route, "no-transport"),
    ("ip_defrag", PathStep::Route, "fragment"),
    ("ip_expire", PathStep::Route, "fragment"),
    ("ip_frag_queue", PathStep::Route, "fragment"),
    ("ip6_frag_queue", PathStep::Route, "fragment"),
    ("inet_frag_rbtree_purge", PathStep::Route, "fragment"),
    // UDP.
    ("__udp4_lib_rcv", PathStep::Socket, "no-socket"),
    ("__udp6_lib_rcv", PathStep::Socket, "no-socket"),
    ("udp_queue_rcv_skb", PathStep::Socket, "receive-buffer"),
    ("__udp_queue_rcv_skb", PathStep::Socket, "receive-buffer"),
    ("udp_queue_rcv_one_skb", PathStep::Socket, "receive-buffer"),
    ("udpv6_queue_rcv_skb", PathStep::Socket, "receive-buffer"),
    ("__udpv6_queue_rcv_skb", PathStep::Socket, "receive-buffer"),
    ("udpv6_queue_rcv_one_skb", PathStep::Socket, "receive-buffer"),
    ("udp_recvmsg", PathStep::Application, "bad-checksum-read"),
    ("udpv6_recvmsg", PathStep::Application, "bad-checksum-read"),
    ("first_packet_length", PathStep::Application, "bad-checksum-read"),
    ("__first_packet_length", PathStep::Application, "bad-checksum-read"),
    ("skb_queue_purge", PathStep::Application, "unread"),
    ("skb_queue_purge_reason", PathStep::Application, "unread"),
    ("__skb_queue_purge_reason", PathStep::Application, "unread"),
    ("inet_sock_destruct", PathStep::Application, "unread"),
    ("udp_destruct_common", PathStep::Application, "unread"),
    ("udp_destruct_sock", PathStep::Application, "unread"),
    // Transmit.
    ("ip_finish_output", PathStep::Filter, "cgroup-program"),
    ("ip6_finish_output", PathStep::Filter, "cgroup-program"),
    ("ip_finish_output2", PathStep::Route, "no-neighbour"),
    ("ip6_finish_output2", PathStep::Route, "no-neighbour"),
    ("__neigh_event_send", PathStep::Route, "no-neighbour"),
    ("neigh_invalidate", PathStep::Route, "no-neighbour"),
    ("arp_error_report", PathStep::Route, "no-neighbour"),
    ("ndisc_error_report", PathStep::Route, "no-neighbour"),
    ("ip_fragment", PathStep::Route, "too-big"),
    ("ip6_fragment", PathStep::Route, "too-big"),
    ("__dev_queue_xmit", PathStep::Transmit, "qdisc-drop"),
    ("__dev_xmit_skb", PathStep::Transmit, "qdisc-drop"),
    ("dev_queue_xmit", PathStep::Transmit, "qdisc-drop"),
    ("kfree_skb_list", PathStep::Transmit, "qdisc-drop"),
    ("kfree_skb_list_reason", PathStep::Transmit, "qdisc-drop"),
    ("rtnl_kfree_skbs", PathStep::Transmit, "qdisc-drop"),
    ("validate_xmit_skb", PathStep::Transmit, "segmentation"),
    ("validate_xmit_skb_list", PathStep::Transmit, "segmentation"),
    ("sch_direct_xmit", PathStep::Transmit, "device-down"),
];
