// Counts the requests and replies of each client of a server's UDP ports, before and after a
// change, to find clients that get no replies any more. Can measure reply times. Reads only IP and
// UDP headers, and changes nothing.
//
// Tracepoints (include/trace/events/net.h, Linux 5.10 to 6.18): at netif_receive_skb, skb->data is
// at the network header and skb->network_header is not set yet. At net_dev_queue, it is set.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>

#include <bpf/bpf_endian.h>

#include "stacked.h"

// Set before the programs are loaded. Inode of the network namespace, and one bit per server port.
const volatile __u32 network = 0;
const volatile __u8 ports[8192] = {};
// A reply that takes longer than this (us) is slow; 0: no reply is slow.
const volatile __u32 slow_us = 0;
// 1: measure reply times.
const volatile __u8 times_wanted = 0;

// 0 before the change, 1 after the change.
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u32);
} phase SEC(".maps");

struct client {
    __be32 address[4];
    __be16 port;
    __u16 server;
};

// Arrays are indexed by phase. A client that does not fit into the map replaces one without recent
// packets.
struct flow {
    __u32 requests[2];
    __u32 replies[2];
    // Requests since the last reply.
    __u32 waiting;
    // Arrival of the oldest of these requests, in units of 1024 ns.
    __u32 asked;
    // Replies whose time was measured, and how many of them were slow.
    __u32 timed;
    __u32 slow;
};

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 16384);
    __type(key, struct client);
    __type(value, struct flow);
} flows SEC(".maps");

// Replies by wait_class(). The time is from the oldest request without a reply to the next reply.
struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, WAIT_CLASSES);
    __type(key, __u32);
    __type(value, __u64);
} reply_times SEC(".maps");

INLINE void time_reply(struct flow *flow, __u32 units) {
    __u32 class = wait_class(units);
    __u64 *count = bpf_map_lookup_elem(&reply_times, &class);
    if (count)
        (*count)++;
    __sync_fetch_and_add(&flow->timed, 1);
    if (slow_us && ((__u64)units << 10) > (__u64)slow_us * 1000)
        __sync_fetch_and_add(&flow->slow, 1);
}

INLINE void count(const struct client *client, int is_reply) {
    __u32 only = 0;
    __u32 *now = bpf_map_lookup_elem(&phase, &only);
    __u32 at = now && *now ? 1 : 0;
    struct flow *flow = bpf_map_lookup_elem(&flows, client);
    if (!flow) {
        struct flow zero = {};
        if (is_reply)
            return;
        // Another CPU may add the client at the same time.
        bpf_map_update_elem(&flows, client, &zero, BPF_NOEXIST);
        flow = bpf_map_lookup_elem(&flows, client);
        if (!flow)
            return;
    }
    __u32 now_units = times_wanted ? bpf_ktime_get_ns() >> 10 : 0;
    if (is_reply) {
        __sync_fetch_and_add(&flow->replies[at], 1);
        if (times_wanted && flow->waiting)
            time_reply(flow, now_units - flow->asked);
        flow->waiting = 0;
    } else {
        if (!flow->waiting)
            flow->asked = now_units;
        __sync_fetch_and_add(&flow->requests[at], 1);
        __sync_fetch_and_add(&flow->waiting, 1);
    }
}

// `at`: the network header, or the VLAN tag of an incoming packet. Packets whose headers are outside
// the linear part (pages of a driver while GRO is off) are not counted: the memory behind the linear
// part may hold an earlier packet.
INLINE void look(struct sk_buff *skb, const unsigned char *at, int is_outgoing, enum stacking stacking) {
    struct client client = {};
    __be16 found[2];
    const unsigned char *next;
    int far = is_outgoing ? 1 : 0;
    if (skb->dev->nd_net.net->ns.inum != network)
        return;
    __be16 protocol = network_protocol(skb->protocol, is_outgoing, &at);
    if (protocol == bpf_htons(ETH_P_IP)) {
        struct ipv4 ip;
        if (bpf_probe_read_kernel(&ip, sizeof(ip), at) || ip.protocol != IPPROTO_UDP ||
            ip.fragment & bpf_htons(0x1fff))
            return;
        client.address[2] = bpf_htonl(0xffff);
        client.address[3] = far ? ip.destination : ip.source;
        next = at + (ip.version_ihl & 15) * 4;
    } else if (protocol == bpf_htons(ETH_P_IPV6)) {
        struct ipv6 ip;
        if (bpf_probe_read_kernel(&ip, sizeof(ip), at) || ip.next != IPPROTO_UDP)
            return;
        if (far)
            __builtin_memcpy(client.address, ip.destination, sizeof(client.address));
        else
            __builtin_memcpy(client.address, ip.source, sizeof(client.address));
        next = at + sizeof(ip);
    } else {
        return;
    }
    __u64 end = (__u64)skb->data + skb->len - skb->data_len;
    if ((__u64)next + sizeof(found) > end || bpf_probe_read_kernel(found, sizeof(found), next))
        return;
    client.server = bpf_ntohs(far ? found[0] : found[1]);
    client.port = far ? found[1] : found[0];
    if (!contains_port(ports, client.server))
        return;
    __u64 identity = (__u64)client.address[3] << 32 | (__u64)client.port << 16 | client.server;
    if (!is_outgoing || !was_seen_above(skb, stacking, identity))
        count(&client, is_outgoing);
}

SEC("tp_btf/netif_receive_skb")
int comes(__u64 *arguments) {
    struct sk_buff *skb = (void *)arguments[0];
    if (!is_passed_up(skb))
        look(skb, skb->data, 0, STACKING_LOWEST);
    return 0;
}

SEC("tp_btf/net_dev_queue")
int goes(__u64 *arguments) {
    struct sk_buff *skb = (void *)arguments[0];
    enum stacking stacking = stacking_of(skb->dev);
    if (stacking != STACKING_UPPER)
        look(skb, skb->head + skb->network_header, 1, stacking);
    return 0;
}

char _license[] SEC("license") = "Dual MIT/GPL";
