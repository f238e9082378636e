// Packets that pass the same tracepoint at several devices, and are to count once: VLANs, bonds,
// bridges and so on, above a device of the same network namespace.

#pragma once

#include <linux/bpf.h>

#include "kernel.h"
#include "vlan.h"

INLINE void read_kind(struct net_device *device, char kind[8]) {
    const struct rtnl_link_ops *links = device->rtnl_link_ops;
    __builtin_memset(kind, 0, 8);
    if (links)
        bpf_probe_read_kernel(kind, 8, links->kind);
}

#define STARTS_WITH(text, start) (!__builtin_memcmp(text, start, sizeof(start) - 1))

// The device encapsulates or encrypts packets, so they look different at the device below.
INLINE int is_tunnel(const char kind[8]) {
    return STARTS_WITH(kind, "vxlan") || STARTS_WITH(kind, "macsec") || STARTS_WITH(kind, "batadv") ||
           STARTS_WITH(kind, "hsr");
}

// macvlan, macvtap, ipvlan and ipvtap: packets to other interfaces of the same lower device do not
// pass net_dev_queue there (macvlan_queue_xmit in drivers/net/macvlan.c, ipvlan_xmit_mode_l2 in
// drivers/net/ipvlan/ipvlan_core.c, Linux 6.18).
INLINE int delivers_to_siblings(const char kind[8]) {
    return STARTS_WITH(kind, "macv") || STARTS_WITH(kind, "ipv");
}

enum stacking {
    // Packets that leave here pass no other device of this network namespace.
    STACKING_LOWEST,
    // All packets pass net_dev_queue and net_dev_start_xmit again at a lower device.
    STACKING_UPPER,
    // Some packets do.
    STACKING_SIBLINGS,
};

INLINE enum stacking stacking_of(struct net_device *device) {
    struct list_head *lower = device->adj_list.lower.next;
    if (lower == &device->adj_list.lower)
        return STACKING_LOWEST;
    struct netdev_adjacent *first = (void *)lower - bpf_core_field_offset(struct netdev_adjacent, list);
    if (BPF_CORE_READ(first, dev, nd_net.net) != device->nd_net.net)
        return STACKING_LOWEST;
    char kind[8];
    read_kind(device, kind);
    if (is_tunnel(kind))
        return STACKING_LOWEST;
    return delivers_to_siblings(kind) ? STACKING_SIBLINGS : STACKING_UPPER;
}

// A bridge passes a packet to the stack again that has passed netif_receive_skb at its port. Other
// packets with skb_iif were encapsulated or encrypted before (IPsec, MACsec, switch ports of DSA).
INLINE int is_passed_up(struct sk_buff *skb) {
    char kind[8];
    if (!skb->skb_iif)
        return 0;
    read_kind(skb->dev, kind);
    return STARTS_WITH(kind, "bridge") || STARTS_WITH(kind, "openvsw");
}

struct last_packet {
    __u64 skb;
    __u64 identity;
};

// The last packet at a device that also delivers to siblings, per CPU. If the packet passes the
// lower device, too, it does so before other packets pass net_dev_queue.
struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct last_packet);
} last_packets SEC(".maps");

// Whether the packet at net_dev_queue was already seen at the device above. The kernel uses a freed
// sk_buff again soon, so the client or the tag is part of the packet's identity.
INLINE int was_seen_above(struct sk_buff *skb, enum stacking stacking, __u64 identity) {
    __u32 only = 0;
    struct last_packet *last = bpf_map_lookup_elem(&last_packets, &only);
    if (!last)
        return 0;
    int is_same = stacking == STACKING_LOWEST && last->skb == (__u64)skb && last->identity == identity;
    last->skb = stacking == STACKING_SIBLINGS ? (__u64)skb : 0;
    last->identity = identity;
    return is_same;
}

// The protocol of a packet whose network header is at `header`, and may begin with a VLAN tag that
// the device left in the packet.
INLINE __be16 protocol_behind_tag(__be16 protocol, const unsigned char **header) {
    struct vlan_header tag;
    if (!is_vlan(protocol) || bpf_probe_read_kernel(&tag, sizeof(tag), *header))
        return protocol;
    *header += sizeof(tag);
    return tag.protocol;
}

// The protocol of an outgoing tagged packet. The kernel inserts the tag of a VLAN before the network header.
INLINE __be16 protocol_of_header(const unsigned char *header) {
    __u8 version = 0;
    bpf_probe_read_kernel(&version, 1, header);
    return bpf_htons(version >> 4 == 4 ? ETH_P_IP : version >> 4 == 6 ? ETH_P_IPV6 : 0);
}

// The protocol of a packet's network layer. Moves `header` of an incoming packet past its tag.
INLINE __be16 network_protocol(__be16 protocol, int is_outgoing, const unsigned char **header) {
    if (!is_outgoing)
        return protocol_behind_tag(protocol, header);
    return is_vlan(protocol) ? protocol_of_header(*header) : protocol;
}
