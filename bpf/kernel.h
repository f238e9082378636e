// Kernel structures, packet headers and functions that several programs use. The loader resolves
// the offsets in kernel structures (CO-RE).

#pragma once

#include <linux/types.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#define INLINE static __always_inline

#define MSG_PEEK 2

// Softirq numbers (enum in include/linux/interrupt.h).
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

// Distance in bytes of two pointers into one buffer. The verifier rejects a 32-bit subtraction of
// pointers, so inline assembly keeps the subtraction at 64 bits.
INLINE __u32 distance(const void *to, const void *from) {
    __u64 bytes = (__u64)to, start = (__u64)from;
    asm volatile("%0 -= %1" : "+r"(bytes) : "r"(start));
    return bytes;
}

// `ports` has one bit per port.
INLINE int contains_port(const volatile __u8 *ports, __u16 port) {
    return ports[port >> 3] >> (port & 7) & 1;
}

// Histogram of wait times and reply times, in units of 1024 ns: one class per unit below 16 units,
// eight classes per octave above. host/src/delivery/waits.rs converts classes back to times.
#define WAIT_CLASSES 256

INLINE __u32 wait_class(__u32 units) {
    __u32 octave = 0, rest = units;
    for (int bit = 0; bit < 32 && rest >= 16; bit++) {
        rest >>= 1;
        octave++;
    }
    return octave * 8 + rest;
}
