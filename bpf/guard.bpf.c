// Drops requests to a server in XDP, once as many admitted requests wait as its workers allow.
// Packets to other ports or addresses pass, and so do packets that are not UDP, have more than two
// VLAN tags or an IPv6 extension header, or are IPv4 fragments. If no worker takes a request for
// `open_after` after a refusal, everything passes. The server's process holds the link, so the
// program is detached when the process ends.
//
// Workers set the total number of requests that may be admitted (`granted`), so the room left is
// `granted` minus `admitted`. If admitted packets are lost, workers raise `granted` when no request
// waits. Workers derive the number of requests that may wait (`limit`) from the rate at which they
// take requests, so that it stands for a waiting time (engine/src/overload/credit.rs).

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "vlan.h"

#define INLINE static __always_inline

// Set before loading, by these names (engine/src/overload/guard.rs).
const volatile __u16 port;         // network byte order; 0 if the server has several ports
const volatile __u8 any_address;   // 1: match `guard_addresses`; 0: match `address`
const volatile __u32 address[4];   // network byte order; IPv4 as an IPv4-mapped IPv6 address
const volatile __u64 open_after;   // nanoseconds
const volatile __u8 fair;          // whether heavy sources may fill only half of `limit`
const volatile __u64 v4_mask;      // mask of a source address, host byte order
const volatile __u64 v6_mask;      // mask of its upper 64 bits, host byte order
const volatile __u64 seed;         // random seed of the hash, odd

// The fields up to `admitted` are mapped by workers (engine/src/sys/guard.rs). The padding keeps
// fields that different CPUs write in separate cache lines.
struct state {
    __u64 granted; // total of requests that may be admitted; written by workers
    __u64 limit;   // requests that may wait; written by workers
    __u64 taken;   // total of requests that workers took
    __u64 apart_1[13];
    __u64 admitted;
    __u64 apart_2[15];
    // `taken` at the first refusal since a worker took requests, and the refusal's time in ns.
    __u64 refused_at;
    __u64 refused_since;
    __u64 apart_3[14];
    // Windows in which sources are compared.
    __u64 began;        // start of the window, ns
    __u64 window;       // number of the window
    __u64 sources;      // different sources admitted in this window, estimated
    __u64 packets;      // requests admitted in this window
    __u64 last_sources; // `sources` at the end of the last window
    __u64 last_packets; // `packets` at the end of the last window, plus half of the value before
    __u64 apart_4[10];
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __uint(map_flags, BPF_F_MMAPABLE);
    __type(key, __u32);
    __type(value, struct state);
} guard_state SEC(".maps");

struct counts {
    __u64 admitted;
    __u64 refused;
    __u64 over_share; // over the share of their source; also in `refused` or `opened`
    __u64 opened;     // passed because no worker took a request for `open_after`
};

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct counts);
} guard_counts SEC(".maps");

// Local addresses (IPv4-mapped) with port, for a server on a wildcard or several addresses.
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 1024);
    __uint(key_size, 20);
    __uint(value_size, 1);
} guard_addresses SEC(".maps");

// A count-min sketch of requests admitted per source: two rows of cells. The upper 32 bits of a
// cell are the window of its last change, the lower 32 bits a count. Each window that passes halves
// the count.
#define ROW 4096
#define ROW_BITS 12

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 2 * ROW);
    __type(key, __u32);
    __type(value, __u64);
} guard_sketch SEC(".maps");

// Length of a window in nanoseconds: minimum, and length after which it ends with any number of
// requests. As in engine/src/overload/shares.rs.
#define WINDOW 10000000
#define LONGEST_WINDOW 1000000000

// Fewest requests in a window that show which sources are heavy; `limit` if that is larger.
#define ENOUGH 256

// The first two fields are the key of `guard_addresses`.
struct request {
    __u32 to[4];
    __u32 port;
    __u64 source;
};

// Whether the packet is UDP to the port. Sets destination, port and source if so.
INLINE int parse(struct xdp_md *context, struct request *request) {
    void *at = (void *)(long)context->data;
    void *end = (void *)(long)context->data_end;
    struct ethhdr *ethernet = at;
    struct udphdr *udp;
    __be16 protocol;

    if (at + sizeof(*ethernet) > end)
        return 0;
    at += sizeof(*ethernet);
    protocol = skip_tags(ethernet->h_proto, &at, end);
    if (protocol == bpf_htons(ETH_P_IP)) {
        struct iphdr *ip = at;

        if (at + sizeof(*ip) > end)
            return 0;
        // 0x3fff: a fragment has an offset or the flag "more fragments".
        if (ip->protocol != IPPROTO_UDP || ip->frag_off & bpf_htons(0x3fff) || ip->ihl < 5)
            return 0;
        at += ip->ihl * 4;
        request->to[0] = 0;
        request->to[1] = 0;
        request->to[2] = bpf_htonl(0xffff);
        request->to[3] = ip->daddr;
        request->source = bpf_ntohl(ip->saddr) & v4_mask;
    } else if (protocol == bpf_htons(ETH_P_IPV6)) {
        struct ipv6hdr *ip = at;

        if (at + sizeof(*ip) > end || ip->nexthdr != IPPROTO_UDP)
            return 0;
        at += sizeof(*ip);
        __builtin_memcpy(request->to, &ip->daddr, sizeof(request->to));
        request->source =
            ((__u64)bpf_ntohl(ip->saddr.in6_u.u6_addr32[0]) << 32 | bpf_ntohl(ip->saddr.in6_u.u6_addr32[1])) & v6_mask;
    } else {
        return 0;
    }
    udp = at;
    if (at + sizeof(*udp) > end || (port && udp->dest != port))
        return 0;
    request->port = udp->dest;
    return 1;
}

INLINE int is_ours(struct request *request) {
    if (any_address)
        return bpf_map_lookup_elem(&guard_addresses, request) != 0;
    return request->to[3] == address[3] && request->to[2] == address[2] && request->to[1] == address[1] &&
           request->to[0] == address[0];
}

// Ends the window after its minimum length, if enough requests were admitted. The compare-and-swap
// lets one CPU do it. While workers do not run, at most `limit` requests are admitted. If windows
// ended by time alone, the counts of heavy sources would fade meanwhile.
INLINE void turn(struct state *state, __u64 now) {
    __u64 began = state->began, limit = state->limit;
    __u64 enough = limit > ENOUGH ? limit : ENOUGH;
    // Negative if another CPU began the window at a later tick.
    __s64 passed = now - began;

    if (passed < WINDOW || (state->packets < enough && passed < LONGEST_WINDOW))
        return;
    if (__sync_val_compare_and_swap(&state->began, began, now) != began)
        return;
    state->last_sources = state->sources;
    state->last_packets = state->last_packets / 2 + state->packets;
    state->sources = 0;
    state->packets = 0;
    state->window++;
}

INLINE __u64 count_of(__u64 cell, __u32 window) {
    __u32 passed = window - (cell >> 32);

    return passed < 32 ? (cell & 0xffffffff) >> passed : 0;
}

INLINE void add(__u64 *cell, __u32 window) {
    if (*cell >> 32 == window)
        __sync_fetch_and_add(cell, 1);
    else
        *cell = (__u64)window << 32 | (count_of(*cell, window) + 1);
}

INLINE int drop(struct state *state, struct counts *counts, __u64 now) {
    __u64 taken = *(volatile __u64 *)&state->taken;

    if (state->refused_at != taken) {
        // In this order: another CPU must not see the new count with the old time.
        *(volatile __u64 *)&state->refused_since = now;
        *(volatile __u64 *)&state->refused_at = taken;
    } else if ((__s64)(now - state->refused_since) > (__s64)open_after) {
        // The workers ended or are stuck: pass the packet to the stack.
        counts->opened++;
        return XDP_PASS;
    }
    counts->refused++;
    return XDP_DROP;
}

INLINE int admit(struct state *state, struct counts *counts) {
    __sync_fetch_and_add(&state->admitted, 1);
    counts->admitted++;
    return XDP_PASS;
}

INLINE int admit_fairly(struct state *state, struct counts *counts, __u64 source, __s64 room, __u64 now) {
    __u64 limit = *(volatile __u64 *)&state->limit, left = room;
    __u64 hash = source * seed, *first, *second, count, other, packets, sources, mean;
    __u32 window, place;

    hash ^= hash >> 32;
    hash *= seed;
    place = hash >> (64 - ROW_BITS);
    first = bpf_map_lookup_elem(&guard_sketch, &place);
    place = ROW + (hash >> (64 - 2 * ROW_BITS) & (ROW - 1));
    second = bpf_map_lookup_elem(&guard_sketch, &place);
    if (!first || !second)
        return admit(state, counts);
    turn(state, now);
    window = state->window;
    count = count_of(*first, window);
    other = count_of(*second, window);
    if (other < count)
        count = other;
    if (left <= limit / 2) {
        packets = state->last_packets / 2 + state->packets;
        sources = state->last_sources > state->sources ? state->last_sources : state->sources;
        mean = packets / (sources ? sources : 1);
        // The last eighth of `limit` is for new sources. A source that was alone has all requests
        // so far. It would otherwise keep new sources out, and these would never be counted.
        if ((count > mean + mean / 4 && count > packets / 32) || (left <= limit / 8 && count > packets / 2)) {
            counts->over_share++;
            return drop(state, counts, now);
        }
    }
    if (*first >> 32 != window)
        __sync_fetch_and_add(&state->sources, 1);
    add(first, window);
    add(second, window);
    __sync_fetch_and_add(&state->packets, 1);
    return admit(state, counts);
}

INLINE int guard(struct xdp_md *context) {
    struct request request;
    struct state *state;
    struct counts *counts;
    __u64 granted, now;
    __s64 room;
    __u32 zero = 0;

    if (!parse(context, &request) || !is_ours(&request))
        return XDP_PASS;
    state = bpf_map_lookup_elem(&guard_state, &zero);
    counts = bpf_map_lookup_elem(&guard_counts, &zero);
    if (!state || !counts)
        return XDP_PASS;
    granted = *(volatile __u64 *)&state->granted;
    room = granted - *(volatile __u64 *)&state->admitted;
    // Resolution: one tick of the kernel. About 20 times faster than bpf_ktime_get_ns.
    now = bpf_ktime_get_coarse_ns();
    if (room <= 0)
        return drop(state, counts, now);
    if (fair)
        return admit_fairly(state, counts, request.source, room, now);
    return admit(state, counts);
}

SEC("xdp.frags")
int linerate_guard(struct xdp_md *context) {
    return guard(context);
}

// For kernels before 5.18, which have no packets of several pages in XDP.
SEC("xdp")
int guard_one_page(struct xdp_md *context) {
    return guard(context);
}

char _license[] SEC("license") = "Dual MIT/GPL";
