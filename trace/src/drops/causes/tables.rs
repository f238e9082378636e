//! The meaning of the kernel's drop reasons, and of the functions that drop packets.
//!
//! Names of reasons are those of `enum skb_drop_reason` (include/net/dropreason-core.h, Linux 6.18;
//! include/linux/skbuff.h from 5.17 to 6.1) that a UDP packet can meet; their numbers differ
//! between kernels. The stage is the most frequent one; the function corrects it for reasons of
//! several stages.
//!
//! Functions are the callers of `kfree_skb` in Linux 4.18 to 6.18. Before Linux 5.17 there is no
//! other information. After inlining only the outer function is visible.

use super::{StagedCause, find_cause};
use crate::drops::ledger::PathStep;

/// Stage, cause, and the names of its reasons or functions, separated by spaces.
type CauseRow = (PathStep, &'static str, &'static str);

// The most frequent cause for this reason or function.
pub(super) fn by_name(table: &[CauseRow], name: &str) -> Option<StagedCause> {
    let contains_name = |names: &str| names.split_whitespace().any(|candidate| candidate == name);
    let (step, cause, _) = table.iter().find(|(_, _, names)| contains_name(names))?;
    Some(StagedCause { step: *step, cause: find_cause(cause)? })
}

// Causes that also depend on function and route. A dropping route has EINVAL for a blackhole, and
// EACCES for a prohibition (fib_props, net/ipv4/fib_semantics.c; ip6_route_info_create,
// net/ipv6/route.c; Linux 6.18).
pub(super) fn by_function(
    reason: Option<&str>,
    function: Option<&str>,
    route_error: i32,
) -> Option<StagedCause> {
    const EACCES: i32 = 13;
    const EINVAL: i32 = 22;
    const EHOSTUNREACH: i32 = 113;
    const ON_ROUTES: [&str; 4] = ["ip_error", "dst_discard_out", "dst_discard", "ip6_pkt_drop"];
    // tun_net_xmit (drivers/net/tun.c), and a macvtap's receive handler (drivers/net/tap.c), Linux 6.18.
    let step = match (reason, function) {
        (Some("FULL_RING"), Some("tun_net_xmit")) => Some(PathStep::Link),
        (Some("FULL_RING"), Some("tap_handle_frame")) => Some(PathStep::Ingress),
        _ => None,
    };
    if let Some(step) = step {
        return Some(StagedCause { step, cause: find_cause(super::TAP_FULL)? });
    }
    // Positive for IPv4 on receive (ip_route_input_slow, net/ipv4/route.c).
    let cause = match (reason, function?, route_error.saturating_abs()) {
        (Some("IP_INHDR"), "ip_forward" | "ip6_forward", _) => "hops-used-up",
        (_, function, EINVAL) if ON_ROUTES.contains(&function) => "blackhole-route",
        (_, function, EACCES) if ON_ROUTES.contains(&function) => "prohibit-route",
        (Some("NOT_SPECIFIED") | None, function, EHOSTUNREACH) if ON_ROUTES.contains(&function) => {
            "unreachable-route"
        }
        _ => return None,
    };
    Some(StagedCause { step: PathStep::Route, cause: find_cause(cause)? })
}

// A cause of several stages, at the stage of this function; `None` for other causes and unknown
// functions.
pub(super) fn moved_cause(cause: &str, function: &str) -> Option<StagedCause> {
    let step = by_name(FUNCTIONS, function)?.step;
    let cause = match cause {
        "bad-checksum" if step == PathStep::Application => "bad-checksum-read",
        cause if AMBIGUOUS.split_whitespace().any(|candidate| candidate == cause) => cause,
        _ => return None,
    };
    Some(StagedCause { step, cause: find_cause(cause)? })
}

/// Causes whose reason occurs at more than one stage.
const AMBIGUOUS: &str = "bad-checksum bad-length device-down driver-dropped memory no-route policy security-module \
    segmentation xdp-drop";

pub(super) const REASONS: &[CauseRow] = &[
    // Drivers: drivers/net/tun.c, tap.c, veth.c.
    (PathStep::Link, "driver-dropped", "DEV_HDR TAP_FILTER TAP_TXFILTER"),
    (PathStep::Link, "device-down", "DEV_READY"),
    (PathStep::Link, "transmit-ring", "FULL_RING"),
    (PathStep::Link, "bad-length", "HDR_TRUNC"),
    (PathStep::Link, "policy", "PSP_INPUT PSP_OUTPUT"),
    // net/core/dev.c: do_xdp_generic, enqueue_to_backlog, sch_handle_ingress, __netif_receive_skb_core.
    (PathStep::Ingress, "xdp-drop", "XDP"),
    (PathStep::Softirq, "backlog-full", "CPU_BACKLOG"),
    (PathStep::Ingress, "tc-ingress", "TC_INGRESS TC_COOKIE_ERROR TC_CHAIN_NOTFOUND TC_RECLASSIFY_LOOP"),
    (PathStep::Ingress, "tc-egress", "TC_EGRESS QDISC_EGRESS"),
    (PathStep::Ingress, "no-protocol", "UNHANDLED_PROTO PTYPE_ABSENT"),
    (PathStep::Transmit, "loop", "RECURSION_LIMIT"),
    // net/bridge, drivers/net/vxlan, net/ipv4/ip_tunnel.c. NO_TX_TARGET: br_flood and vxlan_xmit.
    (
        PathStep::Ingress,
        "bridge",
        "BRIDGE_INGRESS_STP_STATE MAC_IEEE_MAC_CONTROL MAC_INVALID_SOURCE LOCAL_MAC VXLAN_INVALID_HDR \
         VXLAN_VNI_NOT_FOUND VXLAN_ENTRY_EXISTS IP_TUNNEL_ECN NO_TX_TARGET",
    ),
    (PathStep::Route, "no-route", "TUNNEL_TXINFO"),
    // Netfilter, policies: net/netfilter/core.c, net/xfrm, kernel/bpf/cgroup.c, security hooks.
    (PathStep::Filter, "netfilter-rule", "NETFILTER_DROP"),
    (PathStep::Filter, "policy", "XFRM_POLICY"),
    (PathStep::Filter, "security-module", "SECURITY_HOOK"),
    (PathStep::Filter, "cgroup-program", "BPF_CGROUP_EGRESS"),
    // net/ipv4/ip_input.c, route.c, net/ipv6/ip6_input.c, route.c.
    (PathStep::Route, "not-for-us", "OTHERHOST UNICAST_IN_L2_MULTICAST"),
    (PathStep::Route, "bad-ip-checksum", "IP_CSUM"),
    (PathStep::Route, "bad-header", "IP_INHDR IPV6_BAD_EXTHDR"),
    (PathStep::Socket, "bad-length", "PKT_TOO_SMALL"),
    (PathStep::Route, "rp-filter", "IP_RPFILTER"),
    (PathStep::Route, "martian", "IP_LOCAL_SOURCE IP_INVALID_SOURCE IP_LOCALNET IP_INVALID_DEST"),
    (PathStep::Route, "no-route", "IP_INADDRERRORS IP_INNOROUTES IP_OUTNOROUTES"),
    (PathStep::Route, "too-big", "PKT_TOO_BIG"),
    (PathStep::Route, "fragment", "DUP_FRAG FRAG_REASM_TIMEOUT FRAG_TOO_FAR"),
    (PathStep::Route, "no-ipv6", "IPV6DISABLED"),
    (PathStep::Route, "no-transport", "IP_NOPROTO INVALID_PROTO"),
    // net/ipv4/udp.c, net/ipv6/udp.c, net/core/filter.c, sock.c, datagram.c.
    (PathStep::Socket, "no-socket", "NO_SOCKET"),
    (PathStep::Socket, "bad-checksum", "UDP_CSUM SKB_CSUM"),
    (PathStep::Socket, "segmentation", "SKB_GSO_SEG"),
    (PathStep::Socket, "socket-filter", "SOCKET_FILTER"),
    (PathStep::Socket, "receive-buffer", "SOCKET_RCVBUFF SOCKET_BACKLOG"),
    (PathStep::Socket, "udp-memory", "PROTO_MEM"),
    (PathStep::Socket, "memory", "PFMEMALLOC NOMEM"),
    (PathStep::Application, "unread", "SOCKET_CLOSE QUEUE_PURGE"),
    (PathStep::Application, "copy-failed", "SKB_UCOPY_FAULT"),
    // net/core/neighbour.c, net/ipv4/ip_output.c.
    (
        PathStep::Route,
        "no-neighbour",
        "NEIGH_CREATEFAIL NEIGH_FAILED NEIGH_QUEUEFULL NEIGH_DEAD NEIGH_HH_FILLFAIL",
    ),
    // net/sched.
    (
        PathStep::Transmit,
        "qdisc-drop",
        "QDISC_DROP QDISC_CONGESTED CAKE_FLOOD FQ_HORIZON_LIMIT DUALPI2_STEP_DROP",
    ),
    (PathStep::Transmit, "qdisc-limit", "QDISC_OVERLIMIT FQ_BAND_LIMIT FQ_FLOW_LIMIT"),
];

pub(super) const FUNCTIONS: &[CauseRow] = &[
    // Drivers.
    (PathStep::Link, "transmit-ring", "veth_xmit tun_net_xmit"),
    (PathStep::Link, "driver-dropped", "__dev_kfree_skb_any dev_kfree_skb_any_reason"),
    (PathStep::Link, "device-down", "__dev_forward_skb __dev_forward_skb2 dev_forward_skb"),
    (PathStep::Xdp, "xdp-drop", "veth_xdp_rcv_skb"),
    (PathStep::Xdp, "memory", "veth_convert_skb_to_xdp_buff"),
    // net/core/dev.c.
    (PathStep::Softirq, "backlog-full", "enqueue_to_backlog netif_rx_internal"),
    (PathStep::Ingress, "xdp-drop", "do_xdp_generic netif_receive_generic_xdp"),
    (PathStep::Ingress, "tc-ingress", "sch_handle_ingress"),
    (PathStep::Transmit, "qdisc-drop", "tcf_qevent_handle"),
    (PathStep::Ingress, "no-protocol", "__netif_receive_skb_core"),
    // net/bridge: br_input.c, br_forward.c.
    (
        PathStep::Ingress,
        "bridge",
        "br_handle_frame br_handle_frame_finish br_forward __br_forward br_flood br_dev_queue_push_xmit",
    ),
    (PathStep::Ingress, "tc-egress", "sch_handle_egress"),
    // Netfilter.
    (PathStep::Filter, "netfilter-rule", "nf_hook_slow nf_hook_slow_list nft_do_chain"),
    // IPv4 and IPv6.
    (PathStep::Route, "bad-header", "ip_rcv ip_rcv_core ip6_rcv_core ipv6_rcv"),
    (PathStep::Route, "martian", "ip_rcv_finish ip_rcv_finish_core"),
    (PathStep::Route, "not-for-us", "ip6_mc_input"),
    (PathStep::Route, "no-route", "ip_error ip_forward ip6_forward ip6_pkt_drop"),
    (
        PathStep::Route,
        "no-transport",
        "ip_local_deliver_finish ip_protocol_deliver_rcu ip6_protocol_deliver_rcu",
    ),
    (PathStep::Route, "fragment", "ip_defrag ip_expire ip_frag_queue ip6_frag_queue inet_frag_rbtree_purge"),
    // UDP.
    (PathStep::Socket, "no-socket", "__udp4_lib_rcv __udp6_lib_rcv"),
    (
        PathStep::Socket,
        "receive-buffer",
        "udp_queue_rcv_skb __udp_queue_rcv_skb udp_queue_rcv_one_skb udpv6_queue_rcv_skb \
         __udpv6_queue_rcv_skb udpv6_queue_rcv_one_skb",
    ),
    (
        PathStep::Application,
        "bad-checksum-read",
        "udp_recvmsg udpv6_recvmsg first_packet_length __first_packet_length",
    ),
    (
        PathStep::Application,
        "unread",
        "skb_queue_purge skb_queue_purge_reason __skb_queue_purge_reason inet_sock_destruct \
         udp_destruct_common udp_destruct_sock",
    ),
    // Transmit.
    (PathStep::Filter, "cgroup-program", "ip_finish_output ip6_finish_output"),
    (
        PathStep::Route,
        "no-neighbour",
        "ip_finish_output2 ip6_finish_output2 __neigh_event_send neigh_invalidate arp_error_report \
         ndisc_error_report",
    ),
    (PathStep::Route, "too-big", "ip_fragment ip6_fragment"),
    (
        PathStep::Transmit,
        "qdisc-drop",
        "__dev_queue_xmit __dev_xmit_skb dev_queue_xmit kfree_skb_list kfree_skb_list_reason \
         rtnl_kfree_skbs",
    ),
    (PathStep::Transmit, "segmentation", "validate_xmit_skb validate_xmit_skb_list"),
    (PathStep::Transmit, "device-down", "sch_direct_xmit"),
];
