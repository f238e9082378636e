// What a socket buffer holds, wherever in the kernel it is met.

#pragma once

#include "drops.h"

// Not UDP over IP, or not asked for.
#define PACKET_OTHER 0
#define PACKET_OURS 1
// A fragment but the first.
#define PACKET_FRAGMENT 2
// Its ports are behind extension headers or not in the linear part.
#define PACKET_UNPARSED 3
// UDP over IP of other ports.
#define PACKET_UNASKED 4

struct address {
    __be32 words[4];
};

struct packet {
    __u32 direction;
    // Of those asked for.
    __u16 port;
    // Its ports were others when it came (NAT), so that it was not counted then.
    __u16 is_new;
    struct address destination;
};

struct udp_ports {
    __be16 source;
    __be16 destination;
};

// Where a packet is that is thrown away.
struct place {
    __u32 network;
    __u32 device;
    // Made on this host, and on its way out.
    __u32 is_local;
};

INLINE __u64 datagrams(struct sk_buff *skb) {
    struct skb_shared_info *shared = (void *)(skb->head + skb->end);
    __u32 size = BPF_CORE_READ(shared, gso_size);
    if (!size)
        return 1;
    __u32 segments = BPF_CORE_READ(shared, gso_segs);
    // Not told where the packet came from a guest (SKB_GSO_DODGY).
    if (!segments)
        segments = (skb->len + size - 1) / size;
    return segments ? segments : 1;
}

// While it waits in a socket, a datagram has its length where its device was (dev_scratch of include/linux/skbuff.h). Before
// protocols see it, one that came by veth still has the socket of its sender, of another network namespace.
INLINE void locate(struct sk_buff *skb, struct place *place) {
    __u64 device = 0;
    __u32 sender = 0;
    bpf_core_read(&device, sizeof(device), &skb->dev);
    struct sock *socket = BPF_CORE_READ(skb, sk);
    int came_by = skb->skb_iif;
    if (socket)
        sender = BPF_CORE_READ(socket, __sk_common.skc_net.net, ns.inum);
    if (device >> 56 == 0xff) {
        struct net_device *real = (void *)device;
        place->device = BPF_CORE_READ(real, ifindex);
        place->network = BPF_CORE_READ(real, nd_net.net, ns.inum);
    } else {
        place->device = came_by;
        place->network = sender;
    }
    place->is_local = sender && !came_by && sender == place->network;
}

// Of the route that it has: bit 0 says whether that is counted (include/linux/skbuff.h).
INLINE int route_error(struct sk_buff *skb) {
    struct dst_entry *route = (void *)(skb->_skb_refdst & ~1UL);
    return route ? BPF_CORE_READ(route, error) : 0;
}

// Where the network header may be, as an offset, each 0 if it is not known: what is set may be left over from before, or not
// yet be set, so that each is tried.
INLINE __u32 candidate(struct sk_buff *skb, int number, __u32 data) {
    if (number == 0)
        return BPF_CORE_READ(skb, network_header);
    if (number == 1)
        return data;
    __u16 link = BPF_CORE_READ(skb, mac_header);
    return link == 0xffff ? 0 : link + ETH_HLEN;
}

// Where a packet is that netfilter may have thrown away; its hooks are told apart by what the kernel does between them
// (ip_rcv, ip_forward, ip_output and __ip_local_out of net/ipv4, their like of net/ipv6, and net/bridge; Linux 6.18).
INLINE __u32 hook(struct sk_buff *skb, const struct place *place) {
    struct dst_entry *route = (void *)(skb->_skb_refdst & ~1UL);
    if (place->is_local)
        return place->device ? HOOK_POSTROUTING : HOOK_OUTPUT;
    if (!route)
        return skb->transport_header == skb->network_header ? HOOK_INGRESS : HOOK_PREROUTING;
    if (place->device != (__u32)skb->skb_iif)
        return HOOK_POSTROUTING;
    return BPF_CORE_READ(route, dev, ifindex) == LOOPBACK ? HOOK_INPUT : HOOK_FORWARD;
}

INLINE int is_peer(__u32 version, const __be32 *address) {
    for (int word = 0; word < (version == 4 ? 1 : 4); word++)
        if (address[word] != peer[word])
            return 0;
    return 1;
}

// Whether these ports are asked for, and which way the packet goes. Where both are a server's, as with NTP, it is requests
// that come and replies that go.
INLINE int judge(const struct udp_ports *found, __u32 outgoing, struct packet *packet) {
    if (!some_ports) {
        packet->direction = outgoing ? DIRECTION_REPLY : DIRECTION_REQUEST;
        return PACKET_OURS;
    }
    __u16 source = bpf_ntohs(found->source), destination = bpf_ntohs(found->destination);
    int from = has_port(source), to = has_port(destination);
    if (!from && !to)
        return PACKET_UNASKED;
    int is_reply = from && (!to || outgoing);
    packet->direction = is_reply ? DIRECTION_REPLY : DIRECTION_REQUEST;
    packet->port = is_reply ? source : destination;
    return PACKET_OURS;
}

// -1 if it is none.
INLINE int look4(void *at, __u32 space, __u32 outgoing, struct packet *packet) {
    struct {
        struct ipv4 ip;
        struct udp_ports ports;
    } found;
    struct ipv4 *ip = &found.ip;
    if (space < sizeof(found) || bpf_probe_read_kernel(&found, sizeof(found), at))
        return -1;
    __u32 length = (ip->version_ihl & 15) * 4;
    if (ip->version_ihl >> 4 != 4 || length < sizeof(*ip) || (ip->length && bpf_ntohs(ip->length) < length))
        return -1;
    if (ip->protocol != IPPROTO_UDP)
        return PACKET_OTHER;
    if (peer_version == 6 || (peer_version == 4 && !is_peer(4, &ip->source) && !is_peer(4, &ip->destination)))
        return PACKET_OTHER;
    if (ip->fragment & bpf_htons(0x1fff))
        return PACKET_FRAGMENT;
    if (length > sizeof(*ip) && (space < length + sizeof(found.ports) ||
                                 bpf_probe_read_kernel(&found.ports, sizeof(found.ports), at + length)))
        return PACKET_UNPARSED;
    packet->destination = (struct address){{0, 0, bpf_htonl(0xffff), ip->destination}};
    return judge(&found.ports, outgoing, packet);
}

// -1 if it is none.
INLINE int look6(void *at, __u32 space, __u32 outgoing, struct packet *packet) {
    struct {
        struct ipv6 ip;
        struct udp_ports ports;
    } found;
    struct ipv6 *ip = &found.ip;
    if (space < sizeof(found) || bpf_probe_read_kernel(&found, sizeof(found), at))
        return -1;
    if ((ip->version & bpf_htonl(0xf0000000)) != bpf_htonl(0x60000000))
        return -1;
    if (peer_version == 4 || (peer_version == 6 && !is_peer(6, ip->source) && !is_peer(6, ip->destination)))
        return PACKET_OTHER;
    switch (ip->next) {
    case IPPROTO_UDP:
        break;
    case IPPROTO_HOPOPTS:
    case IPPROTO_ROUTING:
    case IPPROTO_FRAGMENT:
    case IPPROTO_DSTOPTS:
        return PACKET_UNPARSED;
    default:
        return PACKET_OTHER;
    }
    __builtin_memcpy(&packet->destination, ip->destination, sizeof(packet->destination));
    return judge(&found.ports, outgoing, packet);
}

// Where what is looked at begins, as an offset. A difference of 64 bits: verifiers take no other of pointers.
INLINE __u32 data_offset(struct sk_buff *skb) {
    __u64 data = (__u64)skb->data, head = (__u64)skb->head;
    asm volatile("%0 -= %1" : "+r"(data) : "r"(head));
    return data;
}

// Where the network header is known to be, as an offset.
INLINE int look_at(struct sk_buff *skb, __u32 offset, __u32 outgoing, struct packet *packet) {
    __u16 protocol = skb->protocol;
    __u32 tail = data_offset(skb) + skb->len - skb->data_len;
    int what = -1;
    if (protocol == bpf_htons(ETH_P_IP))
        what = look4(skb->head + offset, tail - offset, outgoing, packet);
    else if (protocol == bpf_htons(ETH_P_IPV6))
        what = look6(skb->head + offset, tail - offset, outgoing, packet);
    return what < 0 ? PACKET_OTHER : what;
}

// With the ports that it came with, where NAT gave it others (include/net/netfilter/nf_conntrack.h, Linux 5.15 to 6.18).
INLINE int translated(struct sk_buff *skb, int what, __u32 outgoing, struct packet *packet) {
    const unsigned long nat = 1 << 4 | 1 << 5;
    if (!some_ports || (what != PACKET_OURS && what != PACKET_UNASKED) || !skb->_nfct ||
        !bpf_core_type_exists(struct nf_conn))
        return what;
    struct nf_conn *flow = (void *)(skb->_nfct & ~7UL);
    if (!(BPF_CORE_READ(flow, status) & nat))
        return what;
    struct udp_ports came;
    struct packet before = {};
    // IP_CT_IS_REPLY and above.
    if ((skb->_nfct & 7) >= 3) {
        came.source = BPF_CORE_READ(flow, tuplehash[1].tuple.src.u.all);
        came.destination = BPF_CORE_READ(flow, tuplehash[1].tuple.dst.u.all);
    } else {
        came.source = BPF_CORE_READ(flow, tuplehash[0].tuple.src.u.all);
        came.destination = BPF_CORE_READ(flow, tuplehash[0].tuple.dst.u.all);
    }
    int was = judge(&came, outgoing, &before);
    if (was == PACKET_OURS && what != PACKET_OURS) {
        packet->direction = before.direction;
        packet->port = before.port;
    }
    if (was != PACKET_OURS && what == PACKET_OURS)
        packet->is_new = 1;
    return was == PACKET_OURS ? was : what;
}

INLINE int look_translated(struct sk_buff *skb, __u32 offset, __u32 outgoing, struct packet *packet) {
    return translated(skb, look_at(skb, offset, outgoing, packet), outgoing, packet);
}

// Wherever it is met: of what is thrown away.
INLINE int look(struct sk_buff *skb, __u32 outgoing, struct packet *packet) {
    __u16 protocol = bpf_ntohs(BPF_CORE_READ(skb, protocol));
    // It is not set yet in what was made here and has not been sent.
    if (protocol && protocol != ETH_P_IP && protocol != ETH_P_IPV6 && protocol != ETH_P_8021Q &&
        protocol != ETH_P_8021AD)
        return PACKET_OTHER;
    unsigned char *head = BPF_CORE_READ(skb, head), *data_at = BPF_CORE_READ(skb, data);
    __u32 data = data_at - head;
    __u32 tail = data + BPF_CORE_READ(skb, len) - BPF_CORE_READ(skb, data_len);
    for (int number = 0; number < 3; number++) {
        __u32 offset = candidate(skb, number, data);
        if (!offset || offset >= tail)
            continue;
        int what = -1;
        if (protocol != ETH_P_IPV6)
            what = look4(head + offset, tail - offset, outgoing, packet);
        if (what < 0 && protocol != ETH_P_IP)
            what = look6(head + offset, tail - offset, outgoing, packet);
        if (what >= 0)
            return translated(skb, what, outgoing, packet);
    }
    return PACKET_OTHER;
}
