// The least that can send frames: a random source port, and out. Neither counts, matches nor times. What a generator
// costs is measured against this.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/udp.h>

#include <bpf/bpf_helpers.h>

// Set before loading: the interface that frames leave by.
const volatile __u32 interface_index;

SEC("xdp")
int bare(struct xdp_md *context) {
    void *end = (void *)(long)context->data_end;
    struct udphdr *udp = (void *)(long)context->data + sizeof(struct ethhdr) + sizeof(struct iphdr);

    if ((void *)(udp + 1) > end)
        return XDP_ABORTED;
    // Without a checksum (RFC 768), there is nothing to mend.
    udp->source = bpf_get_prandom_u32();
    return bpf_redirect(interface_index, 0);
}

char _license[] SEC("license") = "Dual MIT/GPL";
