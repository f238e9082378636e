// Forwards IPv4 packets with the kernel's routing table before the network stack: at XDP, or at the
// tc ingress of an interface. Passes all other packets to the stack, for example packets whose
// neighbour is not resolved yet.
//
// `ip link` and `tc` load these programs by section name. The programs have no maps.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "kernel.h"

#define AF_INET 2

// Rewrites MAC addresses and TTL, and returns the output interface; 0 to pass to the stack.
INLINE __u32 route(void *context, void *data, void *end, __u32 from) {
    struct ethhdr *frame = data;
    struct iphdr *ip = data + sizeof(*frame);
    if ((void *)(ip + 1) > end || frame->h_proto != bpf_htons(ETH_P_IP) || ip->ihl != 5 || ip->ttl <= 1)
        return 0;
    struct bpf_fib_lookup way = {
        .family = AF_INET,
        .l4_protocol = ip->protocol,
        .tot_len = bpf_ntohs(ip->tot_len),
        .ifindex = from,
        .tos = ip->tos,
        .ipv4_src = ip->saddr,
        .ipv4_dst = ip->daddr,
    };
    if (bpf_fib_lookup(context, &way, sizeof(way), 0) != BPF_FIB_LKUP_RET_SUCCESS)
        return 0;
    // RFC 1624: update the checksum for a TTL that is smaller by 1.
    __u32 check = ip->check + bpf_htons(0x0100);
    ip->check = check + (check >= 0xffff);
    ip->ttl--;
    __builtin_memcpy(frame->h_dest, way.dmac, ETH_ALEN);
    __builtin_memcpy(frame->h_source, way.smac, ETH_ALEN);
    return way.ifindex;
}

SEC("xdp")
int xdp_forward(struct xdp_md *packet) {
    void *data = (void *)(long)packet->data, *end = (void *)(long)packet->data_end;
    __u32 to = route(packet, data, end, packet->ingress_ifindex);
    return to ? bpf_redirect(to, 0) : XDP_PASS;
}

SEC("tc/wire")
int tc_to_wire(struct __sk_buff *packet) {
    void *data = (void *)(long)packet->data, *end = (void *)(long)packet->data_end;
    __u32 to = route(packet, data, end, packet->ingress_ifindex);
    return to ? bpf_redirect(to, 0) : TC_ACT_OK;
}

// Redirects to the peer of a veth interface, in another network namespace (Linux 5.10).
SEC("tc/container")
int tc_to_container(struct __sk_buff *packet) {
    void *data = (void *)(long)packet->data, *end = (void *)(long)packet->data_end;
    __u32 to = route(packet, data, end, packet->ingress_ifindex);
    return to ? bpf_redirect_peer(to, 0) : TC_ACT_OK;
}

char _license[] SEC("license") = "Dual MIT/GPL";
