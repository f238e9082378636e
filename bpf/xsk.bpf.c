// Redirects a server's requests to its AF_XDP sockets: unfragmented unicast UDP to one of its
// addresses and ports, from an address that can be answered. All other packets pass to the stack
// unchanged, and so do requests on a receive queue that has no AF_XDP socket in the map.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "vlan.h"

#define TARGETS 64

// An address and port. An IPv4 address is in the first word, and the other words are zero. The
// loader writes this layout (encode in engine/src/backend/xdp/program.rs).
struct target {
    __be32 address[4];
    __be16 port;
    __u16 ipv6;
};

// Set before loading.
const volatile struct target targets[TARGETS];
const volatile __u32 target_count = 0;
const volatile __u32 longest_frame = 0; // bytes; longer packets do not fit a frame of the UMEM
const volatile __u8 own_mac[ETH_ALEN] = {};

// By receive queue.
struct {
    __uint(type, BPF_MAP_TYPE_XSKMAP);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u32);
} sockets SEC(".maps");

static __always_inline int is_to_us(const struct ethhdr *ethernet) {
    int byte;

    for (byte = 0; byte < ETH_ALEN; byte++)
        if (ethernet->h_dest[byte] != own_mac[byte])
            return 0;
    return 1;
}

static __always_inline int is_served(const __be32 *address, int words, __be16 port, __u16 ipv6) {
    __u32 index;

    for (index = 0; index < TARGETS && index < target_count; index++) {
        const volatile struct target *target = &targets[index];
        __be32 differs = address[0] ^ target->address[0];

        if (words == 4)
            differs |= (address[1] ^ target->address[1]) | (address[2] ^ target->address[2]) |
                       (address[3] ^ target->address[3]);
        if (differs == 0 && port == target->port && ipv6 == target->ipv6)
            return 1;
    }
    return 0;
}

// Leaves these sources to the stack: 0.0.0.0/8, 127.0.0.0/8, 224.0.0.0/3 (multicast, reserved,
// broadcast) and the destination address itself.
static __always_inline int answerable_v4(const struct iphdr *ip) {
    __u8 first = bpf_ntohl(ip->saddr) >> 24;

    return first != 0 && first != 127 && first < 224 && ip->saddr != ip->daddr;
}

static __always_inline int answerable_v6(const struct ipv6hdr *ip) {
    const __be32 *source = ip->saddr.in6_u.u6_addr32;
    const __be32 *target = ip->daddr.in6_u.u6_addr32;

    // ::/96 (unspecified, loopback, IPv4-compatible) and multicast; below, IPv4-mapped.
    if ((source[0] | source[1] | source[2]) == 0 || ip->saddr.in6_u.u6_addr8[0] == 0xff)
        return 0;
    if (source[0] == 0 && source[1] == 0 && source[2] == bpf_htonl(0xffff))
        return 0;
    return ((source[0] ^ target[0]) | (source[1] ^ target[1]) | (source[2] ^ target[2]) |
            (source[3] ^ target[3])) != 0;
}

static __always_inline int ours(struct xdp_md *context) {
    void *at = (void *)(long)context->data;
    void *end = (void *)(long)context->data_end;
    struct ethhdr *ethernet = at;
    struct udphdr *udp;
    __be16 protocol;
    __u16 length; // of the UDP datagram, according to the IP header

    if (end - at > longest_frame)
        return 0;
    at += sizeof(*ethernet);
    if (at > end || !is_to_us(ethernet))
        return 0;
    protocol = skip_tags(ethernet->h_proto, &at, end);
    if (protocol == bpf_htons(ETH_P_IP)) {
        struct iphdr *ip = at;

        udp = at + sizeof(*ip);
        if ((void *)(udp + 1) > end)
            return 0;
        // No options and not a fragment: 0x3fff is the offset and the flag "more fragments".
        if (ip->version != 4 || ip->ihl != 5 || ip->protocol != IPPROTO_UDP ||
            (ip->frag_off & bpf_htons(0x3fff)))
            return 0;
        if (!is_served(&ip->daddr, 1, udp->dest, 0) || !answerable_v4(ip))
            return 0;
        length = bpf_ntohs(ip->tot_len) - sizeof(*ip);
    } else if (protocol == bpf_htons(ETH_P_IPV6)) {
        struct ipv6hdr *ip = at;

        udp = at + sizeof(*ip);
        if ((void *)(udp + 1) > end)
            return 0;
        if (ip->version != 6 || ip->nexthdr != IPPROTO_UDP)
            return 0;
        if (!is_served(ip->daddr.in6_u.u6_addr32, 4, udp->dest, 1) || !answerable_v6(ip))
            return 0;
        length = bpf_ntohs(ip->payload_len);
    } else {
        return 0;
    }
    // If the lengths of IP, UDP and frame disagree, the packet passes to the stack.
    return udp->source != 0 && length >= sizeof(*udp) && bpf_ntohs(udp->len) == length &&
           length <= end - (void *)udp;
}

SEC("xdp")
int redirect(struct xdp_md *context) {
    if (!ours(context))
        return XDP_PASS;
    return bpf_redirect_map(&sockets, context->rx_queue_index, XDP_PASS);
}

char _license[] SEC("license") = "Dual MIT/GPL";
