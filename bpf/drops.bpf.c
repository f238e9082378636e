// Counts UDP packets at points of the network stack, and dropped packets by location and drop
// reason. Can be limited to a network namespace, ports and a peer. Reads packet headers but no
// payload, and changes nothing.
//
// Tracepoints: include/trace/events/net.h, skb.h and sock.h, Linux 5.15 to 6.18. Some came after
// 5.15: see trace/src/drops/packet_counts/program.rs. Each program adds time to every packet, so there are
// only the programs that the accounting requires, and they look up maps by packet only for dropped
// packets.
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/in6.h>

#include <bpf/bpf_endian.h>

#include "drops.h"
#include "drops_packet.h"
#include "stacked.h"

struct lost_key {
    __u64 location;
    __u32 reason;
    __u32 network;
    __u32 device;
    __u16 port;
    __u8 direction;
    __u8 origin;
    // `error` of the packet's dst_entry: zero or a negative errno.
    __s32 route_error;
    // enum hook. Valid only if netfilter dropped the packet.
    __u32 hook;
};

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_HASH);
    __uint(max_entries, 4096);
    __type(key, struct lost_key);
    __type(value, __u64);
} lost SEC(".maps");

// Addresses of the network namespace, IPv4 as IPv4-mapped IPv6; empty if unknown. The loader sets
// the number of entries.
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 1);
    __type(key, struct address);
    __type(value, __u8);
} addresses SEC(".maps");

// Per CPU, so that CPUs do not write to the same cache lines.
struct counters {
    __u64 passed[POINTS][DIRECTIONS];
    __u64 notes[NOTES];
    // `head` of the last forwarded packet; zero if another packet was received since.
    __u64 last;
};

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct counters);
} counters SEC(".maps");

INLINE struct counters *here(void) {
    __u32 only = 0;
    struct counters *all = bpf_map_lookup_elem(&counters, &only);
    if (all)
        all->notes[NOTE_RUN]++;
    return all;
}

INLINE int is_elsewhere(struct net *net) {
    return network && net->ns.inum != network;
}

// Counts a forwarded packet. A packet with the same `head` as the previous one is a clone (a bridge
// floods). `received` did not count clones, or packets whose ports NAT changed to counted ports
// (`is_new`), so both count here as received.
INLINE void forwards(struct counters *all, struct sk_buff *skb, const struct packet *packet) {
    __u64 packets = datagrams(skb), head = (__u64)skb->head;
    __u32 direction = packet->direction & 1;
    if (all->last == head) {
        all->passed[POINT_RECEIVED][direction] += packets;
        all->notes[NOTE_COPY] += packets;
    } else if (packet->is_new) {
        all->passed[POINT_RECEIVED][direction] += packets;
    }
    all->last = head;
    all->passed[POINT_FORWARDED][direction] += packets;
}

// A packet enters the network namespace. The kernel sets `skb_iif` after this tracepoint
// (__netif_receive_skb_core, net/core/dev.c, Linux 6.18), so a packet that a bridge or a VLAN
// device passes up again counts once.
SEC("tp_btf/netif_receive_skb")
int received(__u64 *arguments) {
    struct sk_buff *skb = (void *)arguments[0];
    struct counters *all = here();
    if (!all || skb->skb_iif)
        return 0;
    all->last = 0;
    if (is_elsewhere(skb->dev->nd_net.net))
        return 0;
    struct packet packet = {};
    int what = look_at(skb, data_offset(skb), 0, &packet);
    if (what == PACKET_OURS)
        all->passed[POINT_RECEIVED][packet.direction & 1] += datagrams(skb);
    else if (what == PACKET_FRAGMENT)
        all->notes[NOTE_FRAGMENT]++;
    else if (what == PACKET_UNPARSED)
        all->notes[NOTE_UNPARSED]++;
    return 0;
}

SEC("tp_btf/net_dev_queue")
int queued(__u64 *arguments) {
    struct sk_buff *skb = (void *)arguments[0];
    struct net_device *device = skb->dev;
    struct counters *all = here();
    if (!all || is_elsewhere(device->nd_net.net))
        return 0;
    struct packet packet = {};
    int came = skb->skb_iif != 0;
    int what = look_translated(skb, skb->network_header, !came, &packet);
    enum stacking stacking = stacking_of(device);
    if (what != PACKET_OURS || stacking == STACKING_UPPER)
        return 0;
    __u64 identity = (__u64)packet.destination.words[3] << 32 | packet.port;
    if (was_seen_above(skb, stacking, identity))
        return 0;
    if (came)
        forwards(all, skb, &packet);
    else
        all->passed[POINT_QUEUED][packet.direction & 1] += datagrams(skb);
    return 0;
}

INLINE int is_ours(const struct packet *packet) {
    const struct address *to = &packet->destination;
    struct address some = {.words = {0, 0, bpf_htonl(0xffff), bpf_htonl(0x7f000001)}};
    // All of 127.0.0.0/8 is local. If the map lacks 127.0.0.1, addresses are unknown: count all.
    if (!to->words[0] && !to->words[1] && to->words[2] == some.words[2] && (__u8)to->words[3] == 127)
        return 1;
    // Link-local addresses (fe80::/10) do not identify a network namespace: count all.
    if ((to->words[0] & bpf_htonl(0xffc00000)) == bpf_htonl(0xfe800000))
        return 1;
    return bpf_map_lookup_elem(&addresses, to) || !bpf_map_lookup_elem(&addresses, &some);
}

INLINE void lose(struct counters *all, struct sk_buff *skb, __u64 location, __u32 reason) {
    struct packet packet = {};
    struct place place = {};
    locate(skb, &place);
    if (network && place.network && place.network != network)
        return;
    int what = look(skb, place.is_local, &packet);
    if (what == PACKET_FRAGMENT)
        all->notes[NOTE_LOST_FRAGMENT]++;
    if (what == PACKET_UNPARSED)
        all->notes[NOTE_LOST_UNPARSED]++;
    // A datagram in the receive queue of a destroyed socket has no network namespace any more, so
    // its destination address decides.
    if (what != PACKET_OURS || (network && !place.network && !is_ours(&packet)))
        return;
    struct lost_key key = {
        .location = location,
        .reason = reason,
        .network = place.network,
        .device = place.device,
        .port = packet.port,
        .direction = packet.direction,
        .origin = place.is_local ? ORIGIN_LOCAL : skb->skb_iif ? ORIGIN_RECEIVED : ORIGIN_ARRIVING,
        .route_error = route_error(skb),
        .hook = hook(skb, &place),
    };
    __u64 packets = datagrams(skb);
    if (packet.is_new && !place.is_local)
        all->passed[POINT_RECEIVED][packet.direction & 1] += packets;
    __u64 *number = bpf_map_lookup_elem(&lost, &key);
    if (!number) {
        // Another CPU may add the key at the same time.
        __u64 none = 0;
        bpf_map_update_elem(&lost, &key, &none, BPF_NOEXIST);
        number = bpf_map_lookup_elem(&lost, &key);
    }
    if (number)
        *number += packets;
    else
        all->notes[NOTE_MISSED]++;
}

SEC("tp_btf/kfree_skb")
int loses_with_reason(__u64 *arguments) {
    struct counters *all = here();
    if (all)
        lose(all, (void *)arguments[0], arguments[1], arguments[2]);
    return 0;
}

// Before Linux 5.17, kfree_skb has no drop reason.
SEC("tp_btf/kfree_skb")
int loses_without_reason(__u64 *arguments) {
    struct counters *all = here();
    if (all)
        lose(all, (void *)arguments[0], arguments[1], 0);
    return 0;
}

// Whether it is a UDP socket whose local port is counted. The tracepoints at sockets do not show
// the peer of a datagram, so nothing is counted there if a peer is set.
INLINE int is_asked_for(struct sock *socket) {
    if (peer_version || !socket || socket->sk_protocol != IPPROTO_UDP)
        return 0;
    if ((__u32)has_port(socket->__sk_common.skc_num) != some_ports)
        return 0;
    return !is_elsewhere(socket->__sk_common.skc_net.net);
}

// Reads of one socket, to find truncated datagrams. A truncated read returns the size of the
// program's buffer, so no other read returns more. If two threads read, a read may return a shorter
// datagram than the one recorded as next and seem truncated. It does not count if another read was
// longer.
struct reader {
    __u64 socket;
    // Length of the datagram that is read next, and whether it is known.
    __u32 next;
    __u32 is_known;
    // Length of the longest read, and how many reads of that length seemed truncated.
    __u32 most;
    __u32 cut;
};

#define READERS 4096

// By hash of the socket's address. On a collision, the later socket replaces the earlier one.
struct reader readers[READERS] = {};

INLINE struct reader *reader(struct sock *socket) {
    __u64 address = (__u64)socket;
    __u32 place = (address >> 6 ^ address >> 18) & (READERS - 1);
    struct reader *reader = &readers[place];
    if (reader->socket != address) {
        *reader = (struct reader){};
        reader->socket = address;
    }
    return reader;
}

// The kernel wakes readers once per socket buffer (__udp_enqueue_schedule_skb, net/ipv4/udp.c,
// Linux 6.18): a datagram, or a UDP_GRO aggregate of several.
SEC("tp_btf/sk_data_ready")
int delivered(__u64 *arguments) {
    struct sock *socket = (void *)arguments[0];
    struct counters *all = here();
    if (!all || !is_asked_for(socket))
        return 0;
    struct sk_buff *last = socket->sk_receive_queue.prev;
    int is_there = last && (void *)last != (void *)&socket->sk_receive_queue;
    all->passed[POINT_DELIVERED][DIRECTION_REQUEST] += is_there && last->data_len ? datagrams(last) : 1;
    all->passed[POINT_WOKEN][DIRECTION_REQUEST]++;
    // If more datagrams wait, `look_ahead` records this length when the previous one is read.
    if (is_there && socket->sk_receive_queue.qlen == 1) {
        struct reader *its = reader(socket);
        if (!its->is_known) {
            its->next = last->len;
            its->is_known = 1;
        }
    }
    return 0;
}

INLINE void look_ahead(struct sock *socket, struct reader *reader) {
    struct udp_sock *udp = (void *)socket;
    struct sk_buff *first = BPF_CORE_READ(udp, reader_queue.next);
    reader->is_known = 0;
    if (first && (void *)first != (void *)&udp->reader_queue) {
        reader->next = BPF_CORE_READ(first, len);
        reader->is_known = 1;
        return;
    }
    first = socket->sk_receive_queue.next;
    if (first && (void *)first != (void *)&socket->sk_receive_queue) {
        reader->next = first->len;
        reader->is_known = 1;
    }
}

SEC("tp_btf/sock_recv_length")
int reads(__u64 *arguments) {
    struct sock *socket = (void *)arguments[0];
    int result = arguments[1], flags = arguments[2];
    struct counters *all = here();
    if (!all || !is_read(result, flags) || !is_asked_for(socket))
        return 0;
    __u32 length = result;
    struct reader *its = reader(socket);
    all->passed[POINT_READ][DIRECTION_REQUEST]++;
    if (length > its->most) {
        // The buffer is larger than all earlier reads, so they were not truncated.
        all->passed[POINT_TRUNCATED][DIRECTION_REQUEST] -= its->cut;
        its->most = length;
        its->cut = 0;
    }
    if (!its->is_known || its->next < length) {
        all->passed[POINT_LENGTH_UNKNOWN][DIRECTION_REQUEST]++;
    } else if (its->next > length && length == its->most) {
        all->passed[POINT_TRUNCATED][DIRECTION_REQUEST]++;
        its->cut++;
    }
    look_ahead(socket, its);
    return 0;
}

SEC("tp_btf/sock_send_length")
int sends(__u64 *arguments) {
    struct sock *socket = (void *)arguments[0];
    int result = arguments[1];
    struct counters *all = here();
    if (!all || result == -EAGAIN || !is_asked_for(socket))
        return 0;
    if (result < 0) {
        all->passed[POINT_SEND_FAILED][DIRECTION_REPLY]++;
        return 0;
    }
    // UDP_SEGMENT as a socket option. UDP_SEGMENT as a control message of the call is not visible,
    // so `replies` of trace/src/drops/ledger/make.rs uses the packets that leave, if there are more.
    struct udp_sock *udp = (void *)socket;
    __u32 size = BPF_CORE_READ(udp, gso_size);
    __u32 length = result;
    all->passed[POINT_SENT][DIRECTION_REPLY] += size && length > size ? (length + size - 1) / size : 1;
    return 0;
}

EMPTY_PROGRAM

char _license[] SEC("license") = "Dual MIT/GPL";
