// Definitions that drops.bpf.c shares with program.rs and count.rs of trace/src/drops/packet_counts,
// and the kernel structures that only drops.bpf.c reads.

#pragma once

#include "kernel.h"

#define EAGAIN 11
// Interface index of lo in every network namespace (LOOPBACK_IFINDEX, include/net/flow.h).
#define LOOPBACK 1

// Points that packets pass, in the order of `POINTS` in trace/src/drops/packet_counts/count.rs.
enum point {
    POINT_RECEIVED,
    POINT_DELIVERED,
    POINT_WOKEN,
    POINT_READ,
    POINT_TRUNCATED,
    POINT_LENGTH_UNKNOWN,
    POINT_SENT,
    POINT_SEND_FAILED,
    POINT_QUEUED,
    POINT_FORWARDED,
    POINTS,
};

// In the order of `PacketOrigin` in count.rs.
enum origin {
    ORIGIN_LOCAL,
    ORIGIN_RECEIVED,
    ORIGIN_ARRIVING,
};

enum direction {
    DIRECTION_REQUEST,
    DIRECTION_REPLY,
    DIRECTIONS,
};

// Netfilter hooks (include/uapi/linux/netfilter.h), in the order of `HOOKS` in count.rs.
// HOOK_INGRESS is any hook before the IP layer.
enum hook {
    HOOK_NONE,
    HOOK_INGRESS,
    HOOK_PREROUTING,
    HOOK_INPUT,
    HOOK_FORWARD,
    HOOK_OUTPUT,
    HOOK_POSTROUTING,
};

enum note {
    NOTE_MISSED,
    NOTE_FRAGMENT,
    NOTE_UNPARSED,
    NOTE_LOST_FRAGMENT,
    NOTE_LOST_UNPARSED,
    NOTE_COPY,
    // A run of any program.
    NOTE_RUN,
    NOTES,
};

struct dst_entry {
    struct net_device *dev;
    short error;
} __attribute__((preserve_access_index));

// If nf_conntrack is a module, the kernel's BTF lacks these structures. Then the programs use only
// the ports in the packet.
union nf_conntrack_man_proto {
    __be16 all;
} __attribute__((preserve_access_index));

struct nf_conntrack_man {
    union nf_conntrack_man_proto u;
} __attribute__((preserve_access_index));

struct nf_conntrack_tuple {
    struct nf_conntrack_man src;
    struct {
        union {
            __be16 all;
        } u;
    } dst;
} __attribute__((preserve_access_index));

struct nf_conntrack_tuple_hash {
    struct nf_conntrack_tuple tuple;
} __attribute__((preserve_access_index));

struct nf_conn {
    struct nf_conntrack_tuple_hash tuplehash[2];
    unsigned long status;
} __attribute__((preserve_access_index));

// Set before the programs are loaded.
// Inode of the network namespace; 0: all network namespaces.
const volatile __u32 network = 0;
// 0: count all UDP ports except `ports`. 1: count only `ports`, which has one bit per port.
const volatile __u32 some_ports = 0;
const volatile __u8 ports[8192] = {};
// 4 or 6: count only packets from or to the address `peer` of this IP version. 0: no peer. The
// address is in network byte order; an IPv4 address is in peer[0].
const volatile __u32 peer_version = 0;
const volatile __u32 peer[4] = {};

INLINE int has_port(__u16 port) {
    return contains_port(ports, port);
}
