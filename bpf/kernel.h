// Kernel structures and packet headers that several programs read. The loader resolves the offsets in kernel structures.

#pragma once

#include <linux/types.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#define INLINE static __always_inline

#define MSG_PEEK 2

// Of enum in include/linux/interrupt.h.
#define NET_TX_SOFTIRQ 2
#define NET_RX_SOFTIRQ 3

struct ns_common {
    unsigned int inum;
} __attribute__((preserve_access_index));

struct net {
    struct ns_common ns;
} __attribute__((preserve_access_index));

typedef struct {
    struct net *net;
} __attribute__((preserve_access_index)) possible_net_t;

struct ipv4 {
    __u8 version_ihl;
    __u8 tos;
    __be16 length;
    __be16 id;
    __be16 fragment;
    __u8 ttl;
    __u8 protocol;
    __be16 check;
    __be32 source;
    __be32 destination;
};

struct ipv6 {
    __be32 version;
    __be16 length;
    __u8 next;
    __u8 hops;
    __be32 source[4];
    __be32 destination[4];
};

// Whether a set with one bit per port contains a port.
INLINE int contains_port(const volatile __u8 *ports, __u16 port) {
    return ports[port >> 3] >> (port & 7) & 1;
}

// Times by length, eight classes each octave, as host/src/landing/waits.rs reads them. A unit is 1024 ns.
#define WAIT_CLASSES 256

INLINE __u32 wait_class(__u32 units) {
    __u32 octave = 0, rest = units;
    for (int bit = 0; bit < 32 && rest >= 16; bit++) {
        rest >>= 1;
        octave++;
    }
    return octave * 8 + rest;
}
