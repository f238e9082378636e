//! The meaning of each kernel reason.
//!
//! Names are those of `enum skb_drop_reason` (include/net/dropreason-core.h, Linux 6.18;
//! include/linux/skbuff.h from 5.17 to 6.1) that a UDP packet can meet; their numbers differ
//! between kernels. The stage is the most frequent one; `symbols.rs` corrects it for reasons of
//! several stages.

use super::{StagedCause, named};
use crate::drops::ledger::PathStep;

pub(super) fn met(reason: &str) -> Option<StagedCause> {
    let (_, step, cause) = REASONS.iter().find(|(name, ..)| *name == reason)?;
    Some(StagedCause { step: *step, cause: named(cause)? })
}

/// Causes that also depend on function and route. A dropping route has EINVAL for a blackhole, and
/// EACCES for a prohibition (fib_props, net/ipv4/fib_semantics.c; ip6_route_info_create,
/// net/ipv6/route.c; Linux 6.18).
pub(super) fn by_function(
    reason: Option<&str>,
    function: Option<&str>,
    route_error: i32,
) -> Option<StagedCause> {
    const EACCES: i32 = 13;
    const EINVAL: i32 = 22;
    const EHOSTUNREACH: i32 = 113;
    const ON_ROUTES: [&str; 4] = ["ip_error", "dst_discard_out", "dst_discard", "ip6_pkt_drop"];
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
    Some(StagedCause { step: PathStep::Route, cause: named(cause)? })
}

pub(super) const REASONS: &[(&str, PathStep, &str)] = &[
    // Drivers: drivers/net/tun.c, tap.c, veth.c.
    ("DEV_HDR", PathStep::Link, "driver-dropped"),
    ("DEV_READY", PathStep::Link, "device-down"),
    ("FULL_RING", PathStep::Link, "transmit-ring"),
    ("HDR_TRUNC", PathStep::Link, "bad-length"),
    ("TAP_FILTER", PathStep::Link, "driver-dropped"),
    ("TAP_TXFILTER", PathStep::Link, "driver-dropped"),
    ("NO_TX_TARGET", PathStep::Link, "transmit-ring"),
    ("PSP_INPUT", PathStep::Link, "policy"),
    ("PSP_OUTPUT", PathStep::Link, "policy"),
    // net/core/dev.c: do_xdp_generic, enqueue_to_backlog, sch_handle_ingress, __netif_receive_skb_core.
    ("XDP", PathStep::Ingress, "xdp-drop"),
    ("CPU_BACKLOG", PathStep::Softirq, "backlog-full"),
    ("TC_INGRESS", PathStep::Ingress, "tc-ingress"),
    ("TC_EGRESS", PathStep::Ingress, "tc-egress"),
    ("QDISC_EGRESS", PathStep::Ingress, "tc-egress"),
    ("TC_COOKIE_ERROR", PathStep::Ingress, "tc-ingress"),
    ("TC_CHAIN_NOTFOUND", PathStep::Ingress, "tc-ingress"),
    ("TC_RECLASSIFY_LOOP", PathStep::Ingress, "tc-ingress"),
    ("UNHANDLED_PROTO", PathStep::Ingress, "no-protocol"),
    ("PTYPE_ABSENT", PathStep::Ingress, "no-protocol"),
    ("RECURSION_LIMIT", PathStep::Transmit, "loop"),
    // net/bridge, drivers/net/vxlan, net/ipv4/ip_tunnel.c.
    ("BRIDGE_INGRESS_STP_STATE", PathStep::Ingress, "bridge"),
    ("MAC_IEEE_MAC_CONTROL", PathStep::Ingress, "bridge"),
    ("MAC_INVALID_SOURCE", PathStep::Ingress, "bridge"),
    ("LOCAL_MAC", PathStep::Ingress, "bridge"),
    ("VXLAN_INVALID_HDR", PathStep::Ingress, "bridge"),
    ("VXLAN_VNI_NOT_FOUND", PathStep::Ingress, "bridge"),
    ("VXLAN_ENTRY_EXISTS", PathStep::Ingress, "bridge"),
    ("IP_TUNNEL_ECN", PathStep::Ingress, "bridge"),
    ("TUNNEL_TXINFO", PathStep::Route, "no-route"),
    // Netfilter, policies: net/netfilter/core.c, net/xfrm, kernel/bpf/cgroup.c, security hooks.
    ("NETFILTER_DROP", PathStep::Filter, "netfilter-rule"),
    ("XFRM_POLICY", PathStep::Filter, "policy"),
    ("SECURITY_HOOK", PathStep::Filter, "security-module"),
    ("BPF_CGROUP_EGRESS", PathStep::Filter, "cgroup-program"),
    // net/ipv4/ip_input.c, route.c, net/ipv6/ip6_input.c, route.c.
    ("OTHERHOST", PathStep::Route, "not-for-us"),
    ("UNICAST_IN_L2_MULTICAST", PathStep::Route, "not-for-us"),
    ("IP_CSUM", PathStep::Route, "bad-ip-checksum"),
    ("IP_INHDR", PathStep::Route, "bad-header"),
    ("IPV6_BAD_EXTHDR", PathStep::Route, "bad-header"),
    ("PKT_TOO_SMALL", PathStep::Socket, "bad-length"),
    ("IP_RPFILTER", PathStep::Route, "rp-filter"),
    ("IP_LOCAL_SOURCE", PathStep::Route, "martian"),
    ("IP_INVALID_SOURCE", PathStep::Route, "martian"),
    ("IP_LOCALNET", PathStep::Route, "martian"),
    ("IP_INVALID_DEST", PathStep::Route, "martian"),
    ("IP_INADDRERRORS", PathStep::Route, "no-route"),
    ("IP_INNOROUTES", PathStep::Route, "no-route"),
    ("IP_OUTNOROUTES", PathStep::Route, "no-route"),
    ("PKT_TOO_BIG", PathStep::Route, "too-big"),
    ("DUP_FRAG", PathStep::Route, "fragment"),
    ("FRAG_REASM_TIMEOUT", PathStep::Route, "fragment"),
    ("FRAG_TOO_FAR", PathStep::Route, "fragment"),
    ("IPV6DISABLED", PathStep::Route, "no-ipv6"),
    ("IP_NOPROTO", PathStep::Route, "no-transport"),
    ("INVALID_PROTO", PathStep::Route, "no-transport"),
    // net/ipv4/udp.c, net/ipv6/udp.c, net/core/filter.c, sock.c, datagram.c.
    ("NO_SOCKET", PathStep::Socket, "no-socket"),
    ("UDP_CSUM", PathStep::Socket, "bad-checksum"),
    ("SKB_CSUM", PathStep::Socket, "bad-checksum"),
    ("SKB_GSO_SEG", PathStep::Socket, "segmentation"),
    ("SOCKET_FILTER", PathStep::Socket, "socket-filter"),
    ("SOCKET_RCVBUFF", PathStep::Socket, "receive-buffer"),
    ("SOCKET_BACKLOG", PathStep::Socket, "receive-buffer"),
    ("PROTO_MEM", PathStep::Socket, "udp-memory"),
    ("PFMEMALLOC", PathStep::Socket, "memory"),
    ("NOMEM", PathStep::Socket, "memory"),
    ("SOCKET_CLOSE", PathStep::Application, "unread"),
    ("QUEUE_PURGE", PathStep::Application, "unread"),
    ("SKB_UCOPY_FAULT", PathStep::Application, "copy-failed"),
    // net/core/neighbour.c, net/ipv4/ip_output.c.
    ("NEIGH_CREATEFAIL", PathStep::Route, "no-neighbour"),
    ("NEIGH_FAILED", PathStep::Route, "no-neighbour"),
    ("NEIGH_QUEUEFULL", PathStep::Route, "no-neighbour"),
    ("NEIGH_DEAD", PathStep::Route, "no-neighbour"),
    ("NEIGH_HH_FILLFAIL", PathStep::Route, "no-neighbour"),
    // net/sched.
    ("QDISC_DROP", PathStep::Transmit, "qdisc-drop"),
    ("QDISC_OVERLIMIT", PathStep::Transmit, "qdisc-limit"),
    ("QDISC_CONGESTED", PathStep::Transmit, "qdisc-drop"),
    ("CAKE_FLOOD", PathStep::Transmit, "qdisc-drop"),
    ("FQ_BAND_LIMIT", PathStep::Transmit, "qdisc-limit"),
    ("FQ_HORIZON_LIMIT", PathStep::Transmit, "qdisc-drop"),
    ("FQ_FLOW_LIMIT", PathStep::Transmit, "qdisc-limit"),
    ("DUALPI2_STEP_DROP", PathStep::Transmit, "qdisc-drop"),
];
