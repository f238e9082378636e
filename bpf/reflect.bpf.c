// UDP services of known behavior in XDP: `reflect` returns each request with XDP_TX, `sink` counts
// and drops each request. Both pass all other packets. Checksums stay valid: swapping addresses and
// ports does not change the sum.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "vlan.h"

// Set before loading; 0 disables a setting.
const volatile __u16 served_port;      // destination port, host byte order; 0: any port
const volatile __u32 shortest_payload; // bytes; shorter datagrams pass

// Counters of a CPU, in the order of XdpService::account (testkit/src/reflector/xdp.rs).
struct account {
    __u64 received;
    __u64 answered;
    __u64 dropped;
};

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct account);
} accounts SEC(".maps");

// 16-bit words, so that the compiler copies words and not bytes.
struct mac {
    __u16 words[3];
};

// A request.
struct datagram {
    struct mac *target;
    struct mac *source;
    __be16 protocol; // ETH_P_IP or ETH_P_IPV6
    void *ip;
    struct udphdr *udp;
};

static __always_inline int is_ipv4_udp(struct iphdr *ip) {
    // No options and not a fragment: 0x3fff is the offset and the flag "more fragments".
    return ip->version == 4 && ip->ihl == 5 && ip->protocol == IPPROTO_UDP &&
           !(ip->frag_off & bpf_htons(0x3fff));
}

static __always_inline int parse(struct xdp_md *context, struct datagram *found) {
    void *at = (void *)(long)context->data;
    void *end = (void *)(long)context->data_end;
    struct ethhdr *ethernet = at;

    found->target = at;
    found->source = at + sizeof(struct mac);
    at += sizeof(*ethernet);
    if (at > end)
        return 0;
    found->protocol = ethernet->h_proto;
    if (found->protocol == bpf_htons(ETH_P_8021Q))
        found->protocol = skip_tag(&at, end);
    found->ip = at;
    if (found->protocol == bpf_htons(ETH_P_IP)) {
        at += sizeof(struct iphdr);
        if (at > end || !is_ipv4_udp(found->ip))
            return 0;
    } else if (found->protocol == bpf_htons(ETH_P_IPV6)) {
        at += sizeof(struct ipv6hdr);
        if (at > end || ((struct ipv6hdr *)found->ip)->nexthdr != IPPROTO_UDP)
            return 0;
    } else {
        return 0;
    }
    found->udp = at;
    at += sizeof(struct udphdr);
    if (at > end)
        return 0;
    if (served_port && found->udp->dest != bpf_htons(served_port))
        return 0;
    return bpf_ntohs(found->udp->len) >= sizeof(struct udphdr) + shortest_payload;
}

static __always_inline void turn_round(struct datagram *found) {
    struct mac mac = *found->source;
    __be16 port = found->udp->source;

    *found->source = *found->target;
    *found->target = mac;
    if (found->protocol == bpf_htons(ETH_P_IP)) {
        struct iphdr *ip = found->ip;
        __be32 address = ip->saddr;

        ip->saddr = ip->daddr;
        ip->daddr = address;
    } else {
        struct ipv6hdr *ip = found->ip;
        struct in6_addr address = ip->saddr;

        ip->saddr = ip->daddr;
        ip->daddr = address;
    }
    found->udp->source = found->udp->dest;
    found->udp->dest = port;
}

SEC("xdp")
int reflect(struct xdp_md *context) {
    struct datagram found;
    struct account *account;
    __u32 first = 0;

    if (!parse(context, &found))
        return XDP_PASS;
    account = bpf_map_lookup_elem(&accounts, &first);
    if (!account)
        return XDP_PASS;
    account->received++;
    turn_round(&found);
    account->answered++;
    return XDP_TX;
}

SEC("xdp")
int sink(struct xdp_md *context) {
    struct datagram found;
    struct account *account;
    __u32 first = 0;

    if (!parse(context, &found))
        return XDP_PASS;
    account = bpf_map_lookup_elem(&accounts, &first);
    if (!account)
        return XDP_PASS;
    account->received++;
    account->dropped++;
    return XDP_DROP;
}

char _license[] SEC("license") = "Dual MIT/GPL";
