// VLAN tags that a device left in the packet, as without `rx-vlan-offload`.

#pragma once

#include <linux/if_ether.h>
#include <linux/types.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

struct vlan_header {
    __be16 control;
    // Of the payload behind the tag.
    __be16 protocol;
};

static __always_inline int is_vlan(__be16 protocol) {
    return protocol == bpf_htons(ETH_P_8021Q) || protocol == bpf_htons(ETH_P_8021AD);
}

// Returns the protocol behind the tag at `*at`, or 0 if the frame ends before.
static __always_inline __be16 skip_tag(void **at, void *end) {
    struct vlan_header *vlan = *at;

    if ((void *)(vlan + 1) > end)
        return 0;
    *at = vlan + 1;
    return vlan->protocol;
}

// Skips up to two tags. The inner tag is always 802.1Q.
static __always_inline __be16 skip_tags(__be16 protocol, void **at, void *end) {
    if (is_vlan(protocol))
        protocol = skip_tag(at, end);
    if (protocol == bpf_htons(ETH_P_8021Q))
        protocol = skip_tag(at, end);
    return protocol;
}
