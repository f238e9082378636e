// Counts UDP packets at the points that they pass, and where and why the kernel throws them away. Looks at headers only, of
// the network namespace, ports and peer asked for, and changes nothing.
//
// The tracepoints are those of include/trace/events/net.h, skb.h and sock.h, Linux 5.15 to 6.18; which came later is in
// trace/src/drops/seen/program.rs. Each program costs every packet time: there are as few as the
// ledger needs, and none looks anything up by packet until a packet is lost.
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/in6.h>

#include <bpf/bpf_endian.h>

#include "drops.h"
#include "drops_packet.h"

struct lost_key {
    __u64 location;
    __u32 reason;
    __u32 network;
    __u32 device;
    __u16 port;
    __u8 direction;
    __u8 origin;
    // Of the packet's route, as a dst_entry has it: zero or a negative errno.
    __s32 route_error;
    // At which hook of netfilter it was, if it was at one.
    __u32 hook;
};

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_HASH);
    __uint(max_entries, 4096);
    __type(key, struct lost_key);
    __type(value, __u64);
} lost SEC(".maps");

// Addresses of the network namespace, as IPv6 has them; empty where they are not known.
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 4096);
    __type(key, struct address);
    __type(value, __u8);
} addresses SEC(".maps");

// Per CPU, so that nothing is shared while packets pass.
struct counters {
    __u64 passed[POINTS][DIRECTIONS];
    __u64 notes[NOTES];
    // The buffer of the packet that was forwarded last; zero when another packet came since.
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
    return bpf_map_lookup_elem(&counters, &only);
}

INLINE int is_elsewhere(struct net *net) {
    return network && net->ns.inum != network;
}

// Counts a packet that goes on. One whose buffer the one before had as well is its copy (a bridge that floods), and one whose
// ports were others when it came was not counted then: both came in here.
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

// Where a packet enters the network namespace: `skb_iif` is set behind this point (__netif_receive_skb_core, net/core/dev.c,
// Linux 6.18), so that one that a bridge or a VLAN hands up again is counted once.
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

// A device on top of others of the same network namespace (bridge, VLAN, bond) hands on to them, and they count.
INLINE int is_upper(struct net_device *device) {
    struct list_head *lower = device->adj_list.lower.next;
    if (lower == &device->adj_list.lower)
        return 0;
    struct netdev_adjacent *first = (void *)lower - bpf_core_field_offset(struct netdev_adjacent, list);
    return BPF_CORE_READ(first, dev, nd_net.net) == device->nd_net.net;
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
    if (what != PACKET_OURS || is_upper(device))
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
    // Of 127.0.0.0/8 all; and where none is known, that of loopback is not, either.
    if (!to->words[0] && !to->words[1] && to->words[2] == some.words[2] && (__u8)to->words[3] == 127)
        return 1;
    // Those that are good on a link only are not told apart.
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
    // What waits in a socket that is destroyed belongs to no network namespace any more, but to an address.
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
    if (number)
        *number += packets;
    else if (bpf_map_update_elem(&lost, &key, &packets, BPF_NOEXIST))
        all->notes[NOTE_MISSED]++;
}

SEC("tp_btf/kfree_skb")
int loses_with_reason(__u64 *arguments) {
    struct counters *all = here();
    if (all)
        lose(all, (void *)arguments[0], arguments[1], arguments[2]);
    return 0;
}

// Before Linux 5.17 there is no reason.
SEC("tp_btf/kfree_skb")
int loses_without_reason(__u64 *arguments) {
    struct counters *all = here();
    if (all)
        lose(all, (void *)arguments[0], arguments[1], 0);
    return 0;
}

// Whether it is a server's socket of those asked for. Whose the datagrams are that it gets is not seen, so that with a peer
// none is counted here.
INLINE int is_asked_for(struct sock *socket) {
    if (peer_version || !socket || socket->sk_protocol != IPPROTO_UDP)
        return 0;
    if (some_ports && !has_port(socket->__sk_common.skc_num))
        return 0;
    return !is_elsewhere(socket->__sk_common.skc_net.net);
}

// What is known of a socket's readers. A datagram that was cut off is as long as the program's buffer, so that no other that
// was read whole is longer. Where two threads read, each may find the other's datagram at the head of the queue; whoever
// seems cut off by it has read less than another, and is not.
struct reader {
    __u64 socket;
    // Of the datagram that is read next: length, and whether it is known.
    __u32 next;
    __u32 is_known;
    // The most that was read at once, and how many of that length seemed cut off.
    __u32 most;
    __u32 cut;
};

#define READERS 4096

// By socket. Who comes last has the place.
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

// The kernel wakes readers once for each datagram (net/ipv4/udp.c, Linux 6.18; once for those that came together of UDP_GRO,
// which are one to it).
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
    // Where more wait, its reader sees it when it has read the one before.
    if (is_there && socket->sk_receive_queue.qlen == 1) {
        struct reader *its = reader(socket);
        if (!its->is_known) {
            its->next = last->len;
            its->is_known = 1;
        }
    }
    return 0;
}

// Readers take all of the queue that others fill, and then read from theirs (Linux 4.13).
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
    if (!all || result < 0 || flags & (MSG_PEEK | MSG_ERRQUEUE) || !is_asked_for(socket))
        return 0;
    __u32 length = result;
    struct reader *its = reader(socket);
    all->passed[POINT_READ][DIRECTION_REQUEST]++;
    if (length > its->most) {
        // There was room for this one, and so for those before.
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
    // UDP_SEGMENT as an option of the socket; not where it is given with the call.
    struct udp_sock *udp = (void *)socket;
    __u32 size = BPF_CORE_READ(udp, gso_size);
    __u32 length = result;
    all->passed[POINT_SENT][DIRECTION_REPLY] += size && length > size ? (length + size - 1) / size : 1;
    return 0;
}

// At a tracepoint that user space passes by itself, to see what the call of a program takes that does nothing.
SEC("tp_btf/task_rename")
int nothing(void *context) {
    (void)context;
    return 0;
}

char _license[] SEC("license") = "Dual MIT/GPL";
