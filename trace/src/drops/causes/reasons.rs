//! What each reason of the kernel means.
//!
//! Names are those of `enum skb_drop_reason` (include/net/dropreason-core.h, Linux 6.18; include/linux/skbuff.h from 5.17 to
//! 6.1) as far as a UDP packet can meet them; their numbers differ between kernels. The stage is the one that most often
//! gives it; `symbols.rs` moves those that several give.

use super::{Met, named};
use crate::drops::ledger::Step;

pub(super) fn met(reason: &str) -> Option<Met> {
    let (_, step, cause) = REASONS.iter().find(|(name, ..)| *name == reason)?;
    Some(Met { step: *step, cause: named(cause)? })
}

/// What says more than its reason: where it fell, and on which route. A route that drops has EINVAL where it is a blackhole, and
/// EACCES where it is a prohibition (fib_props, net/ipv4/fib_semantics.c; ip6_route_info_create, net/ipv6/route.c; Linux 6.18).
pub(super) fn by_function(reason: Option<&str>, function: Option<&str>, route_error: i32) -> Option<Met> {
    const EACCES: i32 = 13;
    const EINVAL: i32 = 22;
    const EHOSTUNREACH: i32 = 113;
    const ON_ROUTES: [&str; 4] = ["ip_error", "dst_discard_out", "dst_discard", "ip6_pkt_drop"];
    // Of IPv4 on the way in it is positive (ip_route_input_slow, net/ipv4/route.c).
    let cause = match (reason, function?, route_error.saturating_abs()) {
        (Some("IP_INHDR"), "ip_forward" | "ip6_forward", _) => "hops-used-up",
        (_, function, EINVAL) if ON_ROUTES.contains(&function) => "blackhole-route",
        (_, function, EACCES) if ON_ROUTES.contains(&function) => "prohibit-route",
        (Some("NOT_SPECIFIED") | None, function, EHOSTUNREACH) if ON_ROUTES.contains(&function) => {
            "unreachable-route"
        }
        _ => return None,
    };
    Some(Met { step: Step::Route, cause: named(cause)? })
}

pub(super) const REASONS: &[(&str, Step, &str)] = &[
    // Drivers: drivers/net/tun.c, tap.c, veth.c.
    ("DEV_HDR", Step::Link, "driver-dropped"),
    ("DEV_READY", Step::Link, "device-down"),
    ("FULL_RING", Step::Link, "transmit-ring"),
    ("HDR_TRUNC", Step::Link, "bad-length"),
    ("TAP_FILTER", Step::Link, "driver-dropped"),
    ("TAP_TXFILTER", Step::Link, "driver-dropped"),
    ("NO_TX_TARGET", Step::Link, "transmit-ring"),
    ("PSP_INPUT", Step::Link, "policy"),
    ("PSP_OUTPUT", Step::Link, "policy"),
    // net/core/dev.c: do_xdp_generic, enqueue_to_backlog, sch_handle_ingress, __netif_receive_skb_core.
    ("XDP", Step::Ingress, "xdp-drop"),
    ("CPU_BACKLOG", Step::Softirq, "backlog-full"),
    ("TC_INGRESS", Step::Ingress, "tc-ingress"),
    ("TC_EGRESS", Step::Ingress, "tc-egress"),
    ("QDISC_EGRESS", Step::Ingress, "tc-egress"),
    ("TC_COOKIE_ERROR", Step::Ingress, "tc-ingress"),
    ("TC_CHAIN_NOTFOUND", Step::Ingress, "tc-ingress"),
    ("TC_RECLASSIFY_LOOP", Step::Ingress, "tc-ingress"),
    ("UNHANDLED_PROTO", Step::Ingress, "no-protocol"),
    ("PTYPE_ABSENT", Step::Ingress, "no-protocol"),
    ("RECURSION_LIMIT", Step::Transmit, "loop"),
    // net/bridge, drivers/net/vxlan, net/ipv4/ip_tunnel.c.
    ("BRIDGE_INGRESS_STP_STATE", Step::Ingress, "bridge"),
    ("MAC_IEEE_MAC_CONTROL", Step::Ingress, "bridge"),
    ("MAC_INVALID_SOURCE", Step::Ingress, "bridge"),
    ("LOCAL_MAC", Step::Ingress, "bridge"),
    ("VXLAN_INVALID_HDR", Step::Ingress, "bridge"),
    ("VXLAN_VNI_NOT_FOUND", Step::Ingress, "bridge"),
    ("VXLAN_ENTRY_EXISTS", Step::Ingress, "bridge"),
    ("IP_TUNNEL_ECN", Step::Ingress, "bridge"),
    ("TUNNEL_TXINFO", Step::Route, "no-route"),
    // Netfilter, policies: net/netfilter/core.c, net/xfrm, kernel/bpf/cgroup.c, security hooks.
    ("NETFILTER_DROP", Step::Filter, "netfilter-rule"),
    ("XFRM_POLICY", Step::Filter, "policy"),
    ("SECURITY_HOOK", Step::Filter, "security-module"),
    ("BPF_CGROUP_EGRESS", Step::Filter, "cgroup-program"),
    // net/ipv4/ip_input.c, route.c, net/ipv6/ip6_input.c, route.c.
    ("OTHERHOST", Step::Route, "not-for-us"),
    ("UNICAST_IN_L2_MULTICAST", Step::Route, "not-for-us"),
    ("IP_CSUM", Step::Route, "bad-ip-checksum"),
    ("IP_INHDR", Step::Route, "bad-header"),
    ("IPV6_BAD_EXTHDR", Step::Route, "bad-header"),
    ("PKT_TOO_SMALL", Step::Socket, "bad-length"),
    ("IP_RPFILTER", Step::Route, "rp-filter"),
    ("IP_LOCAL_SOURCE", Step::Route, "martian"),
    ("IP_INVALID_SOURCE", Step::Route, "martian"),
    ("IP_LOCALNET", Step::Route, "martian"),
    ("IP_INVALID_DEST", Step::Route, "martian"),
    ("IP_INADDRERRORS", Step::Route, "no-route"),
    ("IP_INNOROUTES", Step::Route, "no-route"),
    ("IP_OUTNOROUTES", Step::Route, "no-route"),
    ("PKT_TOO_BIG", Step::Route, "too-big"),
    ("DUP_FRAG", Step::Route, "fragment"),
    ("FRAG_REASM_TIMEOUT", Step::Route, "fragment"),
    ("FRAG_TOO_FAR", Step::Route, "fragment"),
    ("IPV6DISABLED", Step::Route, "no-ipv6"),
    ("IP_NOPROTO", Step::Route, "no-transport"),
    ("INVALID_PROTO", Step::Route, "no-transport"),
    // net/ipv4/udp.c, net/ipv6/udp.c, net/core/filter.c, sock.c, datagram.c.
    ("NO_SOCKET", Step::Socket, "no-socket"),
    ("UDP_CSUM", Step::Socket, "bad-checksum"),
    ("SKB_CSUM", Step::Socket, "bad-checksum"),
    ("SKB_GSO_SEG", Step::Socket, "segmentation"),
    ("SOCKET_FILTER", Step::Socket, "socket-filter"),
    ("SOCKET_RCVBUFF", Step::Socket, "receive-buffer"),
    ("SOCKET_BACKLOG", Step::Socket, "receive-buffer"),
    ("PROTO_MEM", Step::Socket, "udp-memory"),
    ("PFMEMALLOC", Step::Socket, "memory"),
    ("NOMEM", Step::Socket, "memory"),
    ("SOCKET_CLOSE", Step::Application, "unread"),
    ("QUEUE_PURGE", Step::Application, "unread"),
    ("SKB_UCOPY_FAULT", Step::Application, "copy-failed"),
    // net/core/neighbour.c, net/ipv4/ip_output.c.
    ("NEIGH_CREATEFAIL", Step::Route, "no-neighbour"),
    ("NEIGH_FAILED", Step::Route, "no-neighbour"),
    ("NEIGH_QUEUEFULL", Step::Route, "no-neighbour"),
    ("NEIGH_DEAD", Step::Route, "no-neighbour"),
    ("NEIGH_HH_FILLFAIL", Step::Route, "no-neighbour"),
    // net/sched.
    ("QDISC_DROP", Step::Transmit, "qdisc-drop"),
    ("QDISC_OVERLIMIT", Step::Transmit, "qdisc-limit"),
    ("QDISC_CONGESTED", Step::Transmit, "qdisc-drop"),
    ("CAKE_FLOOD", Step::Transmit, "qdisc-drop"),
    ("FQ_BAND_LIMIT", Step::Transmit, "qdisc-limit"),
    ("FQ_HORIZON_LIMIT", Step::Transmit, "qdisc-drop"),
    ("FQ_FLOW_LIMIT", Step::Transmit, "qdisc-limit"),
    ("DUALPI2_STEP_DROP", Step::Transmit, "qdisc-drop"),
];
