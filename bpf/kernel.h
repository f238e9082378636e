// Kernel structures, packet headers and functions that several programs use. The loader resolves
// the offsets in kernel structures (CO-RE).

#pragma once

#include <linux/types.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#define INLINE static __always_inline

#define MSG_PEEK 2
#define MSG_ERRQUEUE 0x2000

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

struct list_head {
    struct list_head *next;
} __attribute__((preserve_access_index));

struct rtnl_link_ops {
    const char *kind;
} __attribute__((preserve_access_index));

struct bpf_xdp_entity {
    void *prog;
    void *link;
} __attribute__((preserve_access_index));

struct net_device {
    char name[16];
    int ifindex;
    unsigned int flags;
    possible_net_t nd_net;
    const struct rtnl_link_ops *rtnl_link_ops;
    struct bpf_xdp_entity xdp_state[3];
    struct {
        struct list_head lower;
    } adj_list;
} __attribute__((preserve_access_index));

struct netdev_adjacent {
    struct net_device *dev;
    struct list_head list;
} __attribute__((preserve_access_index));

struct napi_struct {
    struct net_device *dev;
} __attribute__((preserve_access_index));

struct task_struct {
    int pid;
    int tgid;
    unsigned int flags;
    unsigned int __state;
    int static_prio;
    char comm[16];
} __attribute__((preserve_access_index));

struct sk_buff;

struct sk_buff_head {
    struct sk_buff *next;
    struct sk_buff *prev;
    __u32 qlen;
} __attribute__((preserve_access_index));

struct sock_common {
    __u16 skc_num;
    possible_net_t skc_net;
} __attribute__((preserve_access_index));

struct sock {
    struct sock_common __sk_common;
    struct sk_buff_head sk_receive_queue;
    __u16 sk_protocol;
    int sk_rcvbuf;
} __attribute__((preserve_access_index));

// Readers move all of sk_receive_queue to reader_queue and read from there (since Linux 4.13).
struct udp_sock {
    struct sk_buff_head reader_queue;
    __u16 gso_size;
} __attribute__((preserve_access_index));

struct sk_buff {
    struct net_device *dev;
    struct sock *sk;
    unsigned long _skb_refdst;
    unsigned long _nfct;
    unsigned int len;
    // Bytes outside the linear part.
    unsigned int data_len;
    __u16 mac_len;
    // Set by the first __netif_receive_skb_core, after the tracepoint netif_receive_skb.
    int skb_iif;
    __be16 protocol;
    __u16 transport_header;
    __u16 network_header;
    __u16 mac_header;
    // Offset from `head` on 64-bit kernels.
    unsigned int end;
    unsigned char *head;
    unsigned char *data;
    unsigned int truesize;
} __attribute__((preserve_access_index));

struct skb_shared_info {
    unsigned short gso_size;
    unsigned short gso_segs;
} __attribute__((preserve_access_index));

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

// An empty program. trace/src/call.rs triggers it to measure the call overhead.
#define EMPTY_PROGRAM                                                                                                  \
    SEC("tp_btf/task_rename")                                                                                          \
    int nothing(void *arguments) {                                                                                     \
        (void)arguments;                                                                                               \
        return 0;                                                                                                      \
    }

// Whether a call at sock_recv_length took a datagram out of the receive queue. Reads of the error
// queue (timestamps, MSG_ZEROCOPY) pass the tracepoint, too (sock_recvmsg, net/socket.c, Linux 6.18).
INLINE int is_read(int result, int flags) {
    return result >= 0 && !(flags & (MSG_PEEK | MSG_ERRQUEUE));
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
