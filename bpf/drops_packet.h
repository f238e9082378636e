// What a socket buffer holds, wherever in the kernel it is met.

#pragma once

// Not UDP over IP, or not asked for.
#define PACKET_OTHER 0
#define PACKET_OURS 1
// A fragment but the first.
#define PACKET_FRAGMENT 2
// Its ports are behind extension headers or not in the linear part.
#define PACKET_UNPARSED 3

struct packet {
    __u32 direction;
    // Of those asked for.
    __u16 port;
};

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

struct udp_ports {
    __be16 source;
    __be16 destination;
};

// Where a packet is that is thrown away.
struct place {
    __u32 network;
    __u32 device;
    __u32 outgoing;
};

INLINE __u64 datagrams(struct sk_buff *skb) {
    struct skb_shared_info *shared = (void *)(BPF_CORE_READ(skb, head) + BPF_CORE_READ(skb, end));
    __u32 size = BPF_CORE_READ(shared, gso_size), segments = BPF_CORE_READ(shared, gso_segs);
    if (!size)
        return 1;
    // Not told where the packet came from a guest (SKB_GSO_DODGY).
    if (!segments)
        segments = (BPF_CORE_READ(skb, len) + size - 1) / size;
    return segments ? segments : 1;
}

// While it waits in a socket, a datagram has its length where its device was (dev_scratch of include/linux/skbuff.h).
INLINE void locate(struct sk_buff *skb, struct place *place) {
    __u64 device = 0;
    bpf_core_read(&device, sizeof(device), &skb->dev);
    struct sock *socket = BPF_CORE_READ(skb, sk);
    int came_by = BPF_CORE_READ(skb, skb_iif);
    if (device >> 56 == 0xff) {
        struct net_device *real = (void *)device;
        place->device = BPF_CORE_READ(real, ifindex);
        place->network = BPF_CORE_READ(real, nd_net.net, ns.inum);
    } else {
        place->device = came_by;
        if (socket)
            place->network = BPF_CORE_READ(socket, __sk_common.skc_net.net, ns.inum);
    }
    place->outgoing = socket && !came_by;
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
        return PACKET_OTHER;
    int is_reply = from && (!to || outgoing);
    packet->direction = is_reply ? DIRECTION_REPLY : DIRECTION_REQUEST;
    packet->port = is_reply ? source : destination;
    return PACKET_OURS;
}

// -1 if it is none.
INLINE int look4(void *at, __u32 space, __u32 outgoing, struct packet *packet) {
    struct ipv4 ip;
    struct udp_ports found;
    if (space < sizeof(ip) || bpf_probe_read_kernel(&ip, sizeof(ip), at))
        return -1;
    __u32 length = (ip.version_ihl & 15) * 4;
    if (ip.version_ihl >> 4 != 4 || length < sizeof(ip) || (ip.length && bpf_ntohs(ip.length) < length))
        return -1;
    if (ip.protocol != IPPROTO_UDP)
        return PACKET_OTHER;
    if (peer_version == 6 || (peer_version == 4 && !is_peer(4, &ip.source) && !is_peer(4, &ip.destination)))
        return PACKET_OTHER;
    if (ip.fragment & bpf_htons(0x1fff))
        return PACKET_FRAGMENT;
    if (space < length + sizeof(found) || bpf_probe_read_kernel(&found, sizeof(found), at + length))
        return PACKET_UNPARSED;
    return judge(&found, outgoing, packet);
}

// -1 if it is none.
INLINE int look6(void *at, __u32 space, __u32 outgoing, struct packet *packet) {
    struct ipv6 ip;
    struct udp_ports found;
    if (space < sizeof(ip) || bpf_probe_read_kernel(&ip, sizeof(ip), at))
        return -1;
    if ((ip.version & bpf_htonl(0xf0000000)) != bpf_htonl(0x60000000))
        return -1;
    if (peer_version == 4 || (peer_version == 6 && !is_peer(6, ip.source) && !is_peer(6, ip.destination)))
        return PACKET_OTHER;
    switch (ip.next) {
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
    if (space < sizeof(ip) + sizeof(found) ||
        bpf_probe_read_kernel(&found, sizeof(found), at + sizeof(ip)))
        return PACKET_UNPARSED;
    return judge(&found, outgoing, packet);
}

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
            return what;
    }
    return PACKET_OTHER;
}
