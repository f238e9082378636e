// Counts each packet once: where its sk_buff first enters the network stack, before GRO and RPS. A
// GSO or GRO packet counts as its segments. A frame that an XDP program keeps has no sk_buff; it
// counts at the end of its NAPI poll. A bridged, routed or decapsulated packet passes the
// tracepoints again, once per veth, bridge and tunnel.

#pragma once

#include "cost.h"

#define XDP_MODE_DRV 1
#define IFF_LOOPBACK 8
#define NETDEV_ALIGN 32

INLINE int is_veth(struct net_device *device) {
    const struct rtnl_link_ops *links = device->rtnl_link_ops;
    char kind[5] = {};
    if (!links || bpf_probe_read_kernel(kind, sizeof(kind), links->kind))
        return 0;
    return kind[0] == 'v' && kind[1] == 'e' && kind[2] == 't' && kind[3] == 'h' && !kind[4];
}

// The network namespace of the other end of a veth. The peer is the first member of struct
// veth_priv (drivers/net/veth.c, Linux 5.11 to 6.18), which follows the aligned struct net_device
// (netdev_priv, include/linux/netdevice.h).
INLINE struct net *namespace_of_peer(struct net_device *device) {
    __u64 size = (bpf_core_type_size(struct net_device) + NETDEV_ALIGN - 1) & ~(__u64)(NETDEV_ALIGN - 1);
    struct net_device *peer = 0;
    bpf_probe_read_kernel(&peer, sizeof(peer), (void *)device + size);
    return peer ? BPF_CORE_READ(peer, nd_net.net) : 0;
}

// Whether this host already received the packet. __netif_receive_skb_core (net/core/dev.c, Linux
// 6.18) sets mac_len and skb_iif in each received sk_buff. veths and tunnels clear skb_iif but keep
// mac_len (skb_scrub_packet, net/core/skbuff.c). Software GSO also sets mac_len, when a packet is
// sent (skb_segment, same file). If only mac_len is set, the sender's socket decides: at the first
// veth, and only there, the peer is in the network namespace of the socket.
INLINE int came_before(struct sk_buff *skb) {
    if (skb->skb_iif)
        return 1;
    if (!skb->mac_len)
        return 0;
    struct net_device *device = skb->dev;
    if (!device || device->flags & IFF_LOOPBACK)
        return 0;
    struct sock *socket = skb->sk;
    return !socket || !is_veth(device) || namespace_of_peer(device) != socket->__sk_common.skc_net.net;
}

INLINE __u64 segments(struct sk_buff *skb) {
    struct skb_shared_info *shared = (void *)(skb->head + skb->end);
    __u16 size = BPF_CORE_READ(shared, gso_size);
    if (!size)
        return 1;
    __u16 segments = BPF_CORE_READ(shared, gso_segs);
    // virtio-net, tun and tap leave gso_segs at 0 (virtio_net_hdr_to_skb,
    // include/linux/virtio_net.h).
    __u64 count = segments ? segments : skb->len / size;
    return count ? count : 1;
}

INLINE void enters(struct sk_buff *skb, int by_poll, int reused) {
    struct state *state = watched();
    if (!state)
        return;
    state->softirq_events++;
    state->handed += by_poll && !skb->skb_iif;
    if (reused || !came_before(skb))
        state->entered += segments(skb);
}

#define ENTRY(name, by_poll, reused)                                                                                   \
    SEC("tp_btf/" #name)                                                                                               \
    int enters_by_##name(__u64 *arguments) {                                                                           \
        enters((void *)arguments[0], by_poll, reused);                                                                 \
        return 0;                                                                                                      \
    }

ENTRY(netif_rx, 0, 0)
ENTRY(napi_gro_receive_entry, 1, 0)
// Only drivers call napi_gro_frags, so the packet is new. Its sk_buff can be reused and then still
// has the mac_len of an earlier packet.
ENTRY(napi_gro_frags_entry, 1, 1)
ENTRY(netif_receive_skb_entry, 1, 0)
ENTRY(netif_receive_skb_list_entry, 1, 0)

// Charges the time since path_begin to the current path.
INLINE void charge_path(struct state *state, __u64 now) {
    struct path path = {
        .in = state->path_in,
        .out = state->path_out,
        .network = state->path_network,
        .cpu = bpf_get_smp_processor_id(),
        .is_entry = state->path_is_entry,
    };
    struct path_cost *cost = bpf_map_lookup_elem(&paths, &path);
    if (!cost) {
        struct path_cost new = {};
        bpf_map_update_elem(&paths, &path, &new, BPF_NOEXIST);
        cost = bpf_map_lookup_elem(&paths, &path);
    }
    __u64 irqs = state->irq[FOR_PACKETS] + state->irq[FOR_OTHERS];
    if (cost) {
        cost->ns += now - state->path_begin - (irqs - state->path_irq);
        cost->packets += state->path_entered;
        cost->events += state->softirq_events - state->path_events;
    } else {
        state->softirq_missed++;
    }
    state->path_events = state->softirq_events;
    state->path_begin = now;
    state->path_irq = irqs;
}

// The stack starts to process a packet. The time until the next packet counts for its path. Driver
// time before the first packet of a softirq counts for the first packet.
SEC("tp_btf/netif_receive_skb")
int path_begins(__u64 *arguments) {
    struct sk_buff *skb = (void *)arguments[0];
    struct state *state = watched();
    struct net_device *device = skb->dev;
    if (!state || !state->ready || state->softirq_runs != RX + 1 || !device)
        return 0;
    state->softirq_events++;
    // A bridge passes the same packet to the stack again.
    if (state->path_in && (__u32)skb->skb_iif == state->path_in)
        return 0;
    __u64 now = bpf_ktime_get_ns();
    if (state->path_in)
        charge_path(state, now);
    state->path_in = device->ifindex;
    state->path_out = 0;
    state->path_network = device->nd_net.net->ns.inum;
    state->path_is_entry = !came_before(skb);
    state->path_entered = state->path_is_entry ? segments(skb) : 0;
    return 0;
}

SEC("tp_btf/net_dev_start_xmit")
int path_leaves(__u64 *arguments) {
    struct sk_buff *skb = (void *)arguments[0];
    struct net_device *device = (void *)arguments[1];
    struct state *state = watched();
    if (!state || state->softirq_runs != RX + 1)
        return 0;
    state->softirq_events++;
    if (state->path_in && (__u32)skb->skb_iif == state->path_in)
        state->path_out = device->ifindex;
    return 0;
}

// A frame that XDP redirects to a veth counts again there, so it is subtracted here. A frame that a
// process injects (BPF_PROG_RUN) was not counted before; it is redirected outside of a softirq.
SEC("tp_btf/xdp_devmap_xmit")
int redirected(__u64 *arguments) {
    struct net_device *to = (void *)arguments[1];
    int sent = arguments[2];
    struct state *state = watched();
    if (!state)
        return 0;
    state->softirq_events++;
    if (state->softirq_runs && sent > 0 && is_veth(to))
        state->entered -= sent;
    return 0;
}

// Packets of a device's poll that its XDP program (driver mode) kept from the network stack.
INLINE __u64 kept_by_xdp(struct state *state, struct net_device *device, int packets) {
    __s64 handed = state->handed - state->poll_handed;
    struct bpf_xdp_entity *entity = &device->xdp_state[XDP_MODE_DRV];
    if (packets <= handed || (!entity->prog && !entity->link))
        return 0;
    return packets - handed;
}
