// The shortest program that sends frames: sets a random source port and redirects. It does not
// count frames, match replies or take timestamps. The benchmark compares generators with it.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/udp.h>

#include <bpf/bpf_helpers.h>

// Set before the program is loaded: the interface that sends the frames.
const volatile __u32 interface_index;

SEC("xdp")
int bare(struct xdp_md *context) {
    void *end = (void *)(long)context->data_end;
    struct udphdr *udp = (void *)(long)context->data + sizeof(struct ethhdr) + sizeof(struct iphdr);

    if ((void *)(udp + 1) > end)
        return XDP_ABORTED;
    // The frames have no UDP checksum (RFC 768), so there is none to update.
    udp->source = bpf_get_prandom_u32();
    return bpf_redirect(interface_index, 0);
}

char _license[] SEC("license") = "Dual MIT/GPL";
