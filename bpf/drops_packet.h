// Parses the packet in a socket buffer, at any point of the kernel's network stack.

#pragma once

#include "drops.h"

// Not UDP over IP, not from or to the peer, or of a port that is left out.
#define PACKET_OTHER 0
#define PACKET_OURS 1
// A UDP fragment other than the first, which has no ports.
#define PACKET_FRAGMENT 2
// Ports not read: IPv6 with other extension headers than that of a fragment, or ports outside the
// linear part. Drivers that receive into pages (napi_gro_frags) may leave all of IP there while GRO
// is off.
#define PACKET_UNPARSED 3
// UDP over IP, neither port in `ports`, if only those are counted.
#define PACKET_UNASKED 4

struct address {
    __be32 words[4];
};

struct packet {
    __u32 direction;
    // The server's port, in host byte order; 0 if all ports are counted.
    __u16 port;
    // NAT rewrote ports that are not in `ports`, so `received` did not count the packet.
    __u16 is_new;
    struct address destination;
};

struct udp_ports {
    __be16 source;
    __be16 destination;
};

// Network namespace (inode) and device (interface index) of a dropped packet; 0 if unknown.
struct place {
    __u32 network;
    __u32 device;
    // Sent by a socket of this network namespace, and not received since.
    __u32 is_local;
};

INLINE __u64 datagrams(struct sk_buff *skb) {
    struct skb_shared_info *shared = (void *)(skb->head + skb->end);
    __u32 size = BPF_CORE_READ(shared, gso_size);
    if (!size)
        return 1;
    __u32 segments = BPF_CORE_READ(shared, gso_segs);
    // gso_segs is 0 if the packet came from a guest (SKB_GSO_DODGY).
    if (!segments)
        segments = (skb->len + size - 1) / size;
    return segments ? segments : 1;
}

// While a datagram waits in a socket, dev_scratch (include/linux/skbuff.h) overwrites `dev` with
// its length, so `dev` is a pointer only if its top byte is 0xff. A packet that came by veth keeps
// the sender's socket, of another network namespace, until the IP layer receives the packet.
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

// The error of the packet's route; 0 without a route. Bit 0 of _skb_refdst (SKB_DST_NOREF,
// include/linux/skbuff.h) marks a route without a reference and is not part of the pointer.
INLINE int route_error(struct sk_buff *skb) {
    struct dst_entry *route = (void *)(skb->_skb_refdst & ~1UL);
    return route ? BPF_CORE_READ(route, error) : 0;
}

// One of three possible offsets of the network header from `head`; 0 if it is unknown. A header
// offset in the socket buffer may be stale or not yet set, so `look` tries all three.
INLINE __u32 candidate(struct sk_buff *skb, int number, __u32 data) {
    if (number == 0)
        return BPF_CORE_READ(skb, network_header);
    if (number == 1)
        return data;
    __u16 link = BPF_CORE_READ(skb, mac_header);
    return link == 0xffff ? 0 : link + ETH_HLEN;
}

// The hook that a packet was at if netfilter dropped it. Hooks differ by the socket buffer's
// fields, which the kernel changes between hooks (ip_rcv, ip_forward, ip_output and __ip_local_out
// of net/ipv4, the same functions of net/ipv6, and net/bridge; Linux 6.18).
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

// Sets direction and port of a packet with a port in `ports`. If both ports are in `ports`, as with
// NTP, incoming packets are requests and outgoing packets are replies.
INLINE int judge(const struct udp_ports *found, __u32 outgoing, struct packet *packet) {
    __u16 source = bpf_ntohs(found->source), destination = bpf_ntohs(found->destination);
    int from = has_port(source), to = has_port(destination);
    if (!some_ports) {
        if (from || to)
            return PACKET_OTHER;
        packet->direction = outgoing ? DIRECTION_REPLY : DIRECTION_REQUEST;
        return PACKET_OURS;
    }
    if (!from && !to)
        return PACKET_UNASKED;
    int is_reply = from && (!to || outgoing);
    packet->direction = is_reply ? DIRECTION_REPLY : DIRECTION_REQUEST;
    packet->port = is_reply ? source : destination;
    return PACKET_OURS;
}

// Returns -1 if `at` is not an IPv4 header. `space`: bytes from `at` to the end of the linear part.
INLINE int look4(void *at, __u32 space, __u32 outgoing, struct packet *packet) {
    struct {
        struct ipv4 ip;
        struct udp_ports ports;
    } found = {};
    struct ipv4 *ip = &found.ip;
    __u32 size = space < sizeof(found) ? sizeof(*ip) : sizeof(found);
    if (space < sizeof(*ip) || bpf_probe_read_kernel(&found, size, at))
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
    if (space < length + sizeof(found.ports) ||
        (length > sizeof(*ip) && bpf_probe_read_kernel(&found.ports, sizeof(found.ports), at + length)))
        return PACKET_UNPARSED;
    packet->destination = (struct address){{0, 0, bpf_htonl(0xffff), ip->destination}};
    return judge(&found.ports, outgoing, packet);
}

INLINE int is_extension(__u8 next) {
    return next == IPPROTO_HOPOPTS || next == IPPROTO_ROUTING || next == IPPROTO_FRAGMENT || next == IPPROTO_DSTOPTS;
}

// For a packet with an extension header behind the IPv6 header (RFC 8200, 4).
INLINE int look6_extended(void *at, __u32 space, __u32 outgoing, struct packet *packet) {
    struct {
        struct ipv6 ip;
        // In any extension header. The other fields are those of a fragment.
        __u8 next;
        __u8 reserved;
        __be16 offset;
        __be32 id;
        struct udp_ports ports;
    } found = {};
    __u32 size = space < sizeof(found) ? sizeof(found) - sizeof(found.ports) : sizeof(found);
    if (space < size || bpf_probe_read_kernel(&found, size, at))
        return PACKET_UNPARSED;
    if (found.next != IPPROTO_UDP)
        return is_extension(found.next) ? PACKET_UNPARSED : PACKET_OTHER;
    if (found.ip.next != IPPROTO_FRAGMENT)
        return PACKET_UNPARSED;
    if (found.offset & bpf_htons(0xfff8))
        return PACKET_FRAGMENT;
    if (size < sizeof(found))
        return PACKET_UNPARSED;
    __builtin_memcpy(&packet->destination, found.ip.destination, sizeof(packet->destination));
    return judge(&found.ports, outgoing, packet);
}

// Like look4, for IPv6.
INLINE int look6(void *at, __u32 space, __u32 outgoing, struct packet *packet) {
    struct {
        struct ipv6 ip;
        struct udp_ports ports;
    } found = {};
    struct ipv6 *ip = &found.ip;
    __u32 size = space < sizeof(found) ? sizeof(*ip) : sizeof(found);
    if (space < sizeof(*ip) || bpf_probe_read_kernel(&found, size, at))
        return -1;
    if ((ip->version & bpf_htonl(0xf0000000)) != bpf_htonl(0x60000000))
        return -1;
    if (peer_version == 4 || (peer_version == 6 && !is_peer(6, ip->source) && !is_peer(6, ip->destination)))
        return PACKET_OTHER;
    if (ip->next != IPPROTO_UDP)
        return is_extension(ip->next) ? look6_extended(at, space, outgoing, packet) : PACKET_OTHER;
    if (space < sizeof(found))
        return PACKET_UNPARSED;
    __builtin_memcpy(&packet->destination, ip->destination, sizeof(packet->destination));
    return judge(&found.ports, outgoing, packet);
}

INLINE __u32 data_offset(struct sk_buff *skb) { return distance(skb->data, skb->head); }

// `offset`: the known offset of the network header from `head`. Packets with a VLAN tag in the frame, as
// without `rx-vlan-offload`, are PACKET_OTHER.
INLINE int look_at(struct sk_buff *skb, __u32 offset, __u32 outgoing, struct packet *packet) {
    __u16 protocol = skb->protocol;
    __u32 space = data_offset(skb) + skb->len - skb->data_len - offset, header = 0;
    int what = -1;
    if (protocol == bpf_htons(ETH_P_IP)) {
        header = sizeof(struct ipv4);
        what = look4(skb->head + offset, space, outgoing, packet);
    } else if (protocol == bpf_htons(ETH_P_IPV6)) {
        header = sizeof(struct ipv6);
        what = look6(skb->head + offset, space, outgoing, packet);
    }
    if (what < 0)
        return skb->data_len && space < header ? PACKET_UNPARSED : PACKET_OTHER;
    return what;
}

// If NAT rewrote the packet, also compares the ports before NAT, which the conntrack entry has
// (include/net/netfilter/nf_conntrack.h, Linux 5.15 to 6.18).
INLINE int translated(struct sk_buff *skb, int what, __u32 outgoing, struct packet *packet) {
    // IPS_SRC_NAT and IPS_DST_NAT.
    const unsigned long nat = 1 << 4 | 1 << 5;
    // The field is missing without CONFIG_NF_CONNTRACK.
    if (!some_ports || (what != PACKET_OURS && what != PACKET_UNASKED) ||
        !bpf_core_field_exists(skb->_nfct) || !bpf_core_type_exists(struct nf_conn) || !skb->_nfct)
        return what;
    struct nf_conn *flow = (void *)(skb->_nfct & ~7UL);
    if (!(BPF_CORE_READ(flow, status) & nat))
        return what;
    struct udp_ports came;
    struct packet before = {};
    // IP_CT_IS_REPLY or above: a packet in the reply direction.
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

// For dropped packets, which may be anywhere in the stack: finds the network header.
INLINE int look(struct sk_buff *skb, __u32 outgoing, struct packet *packet) {
    __u16 protocol = bpf_ntohs(BPF_CORE_READ(skb, protocol));
    // The protocol is 0 in packets of this host that have not reached __ip_local_out.
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
