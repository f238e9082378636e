// Counts UDP packets at the points that they pass, and where and why the kernel throws them away. Looks at headers only, of
// the network namespace, ports and peer asked for, and changes nothing.
//
// The tracepoints are those of include/trace/events/net.h, skb.h, sock.h and udp.h, Linux 5.15 to 6.18; which came later is in
// trace/src/drops/seen/program.rs.
//
// Numbers are kept a CPU, so that nothing is shared while packets pass.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/types.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "drops.h"
#include "drops_packet.h"

struct passed_key {
    __u32 network;
    // Zero at sockets.
    __u32 device;
    __u32 point;
    __u32 direction;
};

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_HASH);
    __uint(max_entries, 4096);
    __type(key, struct passed_key);
    __type(value, __u64);
} passed SEC(".maps");

struct lost_key {
    __u64 location;
    __u32 reason;
    __u32 network;
    __u32 device;
    __u16 port;
    __u16 direction;
};

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_HASH);
    __uint(max_entries, 4096);
    __type(key, struct lost_key);
    __type(value, __u64);
} lost SEC(".maps");

// The datagram that a socket's reader gets next.
struct next {
    // UNSEEN where it was not in the queue when that was looked at.
    __u32 length;
    __u32 datagrams;
};

#define UNSEEN 0xffffffff

// By the socket's cookie. The least used make room.
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 16384);
    __type(key, __u64);
    __type(value, struct next);
} nexts SEC(".maps");

// By NOTE_*.
struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, NOTES);
    __type(key, __u32);
    __type(value, __u64);
} notes SEC(".maps");

INLINE void note(__u32 which, __u64 packets) {
    __u64 *count = bpf_map_lookup_elem(&notes, &which);
    if (count)
        *count += packets;
}

INLINE void count(void *map, const void *key, __u64 packets) {
    __u64 *number = bpf_map_lookup_elem(map, key);
    if (number)
        *number += packets;
    else if (bpf_map_update_elem(map, key, &packets, BPF_NOEXIST))
        note(NOTE_MISSED, 1);
}

INLINE void passes(struct sk_buff *skb, __u32 point, __u32 outgoing) {
    struct packet packet = {};
    struct net_device *device = skb->dev;
    __u32 inode = device->nd_net.net->ns.inum;
    if (network && inode != network)
        return;
    int what = look(skb, outgoing, &packet);
    if (what == PACKET_OURS) {
        struct passed_key key = {inode, device->ifindex, point, packet.direction};
        count(&passed, &key, datagrams(skb));
    } else if (point == POINT_RECEIVED && what == PACKET_FRAGMENT) {
        note(NOTE_FRAGMENT, 1);
    } else if (point == POINT_RECEIVED && what == PACKET_UNPARSED) {
        note(NOTE_UNPARSED, 1);
    }
}

// What drivers call. All are before the backlog; a device's packets pass one of them.
SEC("tp_btf/napi_gro_receive_entry")
int arrives_gro(__u64 *arguments) {
    passes((void *)arguments[0], POINT_ARRIVED, 0);
    return 0;
}

SEC("tp_btf/napi_gro_frags_entry")
int arrives_frags(__u64 *arguments) {
    passes((void *)arguments[0], POINT_ARRIVED, 0);
    return 0;
}

SEC("tp_btf/netif_receive_skb_entry")
int arrives_one(__u64 *arguments) {
    passes((void *)arguments[0], POINT_ARRIVED, 0);
    return 0;
}

SEC("tp_btf/netif_receive_skb_list_entry")
int arrives_list(__u64 *arguments) {
    passes((void *)arguments[0], POINT_ARRIVED, 0);
    return 0;
}

SEC("tp_btf/netif_rx")
int arrives_rx(__u64 *arguments) {
    passes((void *)arguments[0], POINT_ARRIVED, 0);
    return 0;
}

SEC("tp_btf/netif_receive_skb")
int received(__u64 *arguments) {
    passes((void *)arguments[0], POINT_RECEIVED, 0);
    return 0;
}

SEC("tp_btf/net_dev_queue")
int queued(__u64 *arguments) {
    passes((void *)arguments[0], POINT_QUEUED, 1);
    return 0;
}

SEC("tp_btf/net_dev_start_xmit")
int started(__u64 *arguments) {
    passes((void *)arguments[0], POINT_STARTED, 1);
    return 0;
}

// Once the driver has taken it, it may be gone.
SEC("tp_btf/net_dev_xmit")
int busy(__u64 *arguments) {
    int result = arguments[1];
    if (result == NETDEV_TX_BUSY)
        passes((void *)arguments[0], POINT_BUSY, 1);
    return 0;
}

INLINE void loses(struct sk_buff *skb, __u64 location, __u32 reason) {
    struct packet packet = {};
    struct place place = {};
    locate(skb, &place);
    if (network && place.network && place.network != network)
        return;
    int what = look(skb, place.outgoing, &packet);
    if (what == PACKET_FRAGMENT)
        note(NOTE_LOST_FRAGMENT, 1);
    if (what == PACKET_UNPARSED)
        note(NOTE_LOST_UNPARSED, 1);
    if (what != PACKET_OURS)
        return;
    struct lost_key key = {
        .location = location,
        .reason = reason,
        .network = place.network,
        .device = place.device,
        .port = packet.port,
        .direction = packet.direction,
    };
    count(&lost, &key, datagrams(skb));
}

SEC("tp_btf/kfree_skb")
int loses_with_reason(__u64 *arguments) {
    loses((void *)arguments[0], arguments[1], arguments[2]);
    return 0;
}

// Before Linux 5.17 there is no reason.
SEC("tp_btf/kfree_skb")
int loses_without_reason(__u64 *arguments) {
    loses((void *)arguments[0], arguments[1], 0);
    return 0;
}

// Whose a datagram is that a socket gets is not seen, so that with a peer none is counted here.
INLINE int is_asked_for(struct sock *socket) {
    if (peer_version || !socket || socket->sk_protocol != IPPROTO_UDP)
        return 0;
    if (some_ports && !has_port(socket->__sk_common.skc_num))
        return 0;
    return !network || socket->__sk_common.skc_net.net->ns.inum == network;
}

INLINE void at_socket(struct sock *socket, __u32 point, __u64 packets) {
    __u32 direction = point == POINT_SENT || point == POINT_SEND_FAILED;
    struct passed_key key = {socket->__sk_common.skc_net.net->ns.inum, 0, point, direction};
    count(&passed, &key, packets);
}

// What is at the head of a queue, if anything.
INLINE int peek(struct sk_buff_head *queue, struct next *next) {
    struct sk_buff *first = BPF_CORE_READ(queue, next);
    if ((void *)first == (void *)queue || !first)
        return 0;
    next->length = BPF_CORE_READ(first, len);
    next->datagrams = datagrams(first);
    return 1;
}

// Readers take all of the queue that others fill, and then read from theirs (Linux 4.13).
INLINE struct next head(struct sock *socket) {
    struct next next = {UNSEEN, 1};
    struct udp_sock *udp = (void *)socket;
    if (!peek(&udp->reader_queue, &next))
        peek(&socket->sk_receive_queue, &next);
    return next;
}

SEC("tp_btf/sk_data_ready")
int delivered(__u64 *arguments) {
    struct sock *socket = (void *)arguments[0];
    if (!is_asked_for(socket))
        return 0;
    __u64 cookie = bpf_get_socket_cookie(socket);
    struct next *next = bpf_map_lookup_elem(&nexts, &cookie);
    if (!next || next->length == UNSEEN) {
        struct next first = head(socket);
        bpf_map_update_elem(&nexts, &cookie, &first, BPF_ANY);
    }
    struct sk_buff *last = BPF_CORE_READ(socket, sk_receive_queue.prev);
    int is_there = last && (void *)last != (void *)&socket->sk_receive_queue;
    at_socket(socket, POINT_DELIVERED, is_there ? datagrams(last) : 1);
    return 0;
}

SEC("tp_btf/udp_fail_queue_rcv_skb")
int refused(__u64 *arguments) {
    struct sock *socket = (void *)arguments[1];
    if (is_asked_for(socket))
        at_socket(socket, POINT_REFUSED, 1);
    return 0;
}

SEC("tp_btf/sock_recv_length")
int reads(__u64 *arguments) {
    struct sock *socket = (void *)arguments[0];
    int result = arguments[1], flags = arguments[2];
    if (result < 0 || flags & (MSG_PEEK | MSG_ERRQUEUE) || !is_asked_for(socket))
        return 0;
    __u64 cookie = bpf_get_socket_cookie(socket);
    struct next *next = bpf_map_lookup_elem(&nexts, &cookie);
    __u32 length = next ? next->length : UNSEEN;
    __u32 datagrams = next ? next->datagrams : 1;
    // Another was read than that which was at the head: by a second thread, or before it was looked at.
    if (length != UNSEEN && (__u32)result > length)
        length = UNSEEN;
    at_socket(socket, POINT_READ, length == UNSEEN ? 1 : datagrams);
    if (length == UNSEEN)
        at_socket(socket, POINT_LENGTH_UNKNOWN, 1);
    else if ((__u32)result < length)
        at_socket(socket, POINT_TRUNCATED, datagrams);
    struct next first = head(socket);
    bpf_map_update_elem(&nexts, &cookie, &first, BPF_ANY);
    return 0;
}

SEC("tp_btf/sock_send_length")
int sends(__u64 *arguments) {
    struct sock *socket = (void *)arguments[0];
    int result = arguments[1];
    if (result == -EAGAIN || !is_asked_for(socket))
        return 0;
    if (result < 0) {
        at_socket(socket, POINT_SEND_FAILED, 1);
        return 0;
    }
    // UDP_SEGMENT as an option of the socket; not where it is given with the call.
    __u32 size = BPF_CORE_READ((struct udp_sock *)socket, gso_size);
    __u32 length = result;
    at_socket(socket, POINT_SENT, size && length > size ? (length + size - 1) / size : 1);
    return 0;
}

char _license[] SEC("license") = "Dual MIT/GPL";
