// Receiving in the load program: matches, checks and counts replies.
#ifndef LINERATE_LOAD_RECEIVE_H
#define LINERATE_LOAD_RECEIVE_H

#include "load_maps.h"

// A received datagram. Addresses are in network byte order; an IPv4 address is in the first word.
struct datagram {
    __u64 source[2];
    __u64 destination[2];
};

// Offset of the source address in a flow's frames.
INLINE __u32 address_offset(void) { return ip_offset() + (settings.ipv6 ? 8 : 12); }

// Must agree with tuple_place in load/src/generator/xdp/program.rs.
INLINE __u32 tuple_hash(__u32 ours, __u32 theirs, __u32 ports) {
    __u32 hash = (ours ^ bpf_htonl(theirs) ^ ports * 0x9e3779b1u) * settings.tuple_factor;
    return hash ^ hash >> 15;
}

// Whether a flow sends from `ours` to `theirs`. `ports` are in the order of a request's UDP header.
INLINE int is_flow(const struct flow *flow, const __u64 *ours, const __u64 *theirs, __u32 ports) {
    const __u8 *at = flow->head + address_offset();
    if (get32(flow->head + udp_offset()) != ports)
        return 0;
    if (settings.ipv6)
        return get64(at) == ours[0] && get64(at + 8) == ours[1] && get64(at + 16) == theirs[0] &&
               get64(at + 24) == theirs[1];
    return get32(at) == (__u32)ours[0] && get32(at + 4) == (__u32)theirs[0];
}

// The flow whose requests have these addresses and ports, and its number; 0 if there is none.
INLINE struct flow *find(const __u64 *ours, const __u64 *theirs, __u32 ports, __u32 *number) {
    __u32 at = settings.ipv6 ? tuple_hash(ours[1] >> 32, theirs[1] >> 32, ports)
                             : tuple_hash(ours[0], theirs[0], ports);
    for (int probe = 0; probe < PROBES; probe++, at++) {
        __u32 key = at & settings.tuple_mask;
        __u32 *entry = bpf_map_lookup_elem(&tuples, &key);
        if (!entry || !*entry)
            return 0;
        *number = *entry - 1;
        struct flow *flow = bpf_map_lookup_elem(&flows, number);
        if (flow && is_flow(flow, ours, theirs, ports))
            return flow;
    }
    return 0;
}

// The bucket of a latency in ns. Must agree with bucket in load/src/generator/xdp/slot.rs.
INLINE __u32 bucket(__u64 value) {
    if (value > LONGEST_NS)
        value = LONGEST_NS;
    if (value < 1 << SUB_BITS)
        return value;
    __u64 left = value >> SUB_BITS;
    __u32 shift = 0;
    if (left >> 16) { shift += 16; left >>= 16; }
    if (left >> 8) { shift += 8; left >>= 8; }
    if (left >> 4) { shift += 4; left >>= 4; }
    if (left >> 2) { shift += 2; left >>= 2; }
    if (left >> 1) shift += 1;
    return (shift << SUB_BITS) + (value >> shift);
}

// Records the latency of the first reply to a request, and counts the reply.
INLINE void note_answer(struct row *row, struct flow *flow, __u64 sequence, __u64 intended, __u64 now) {
    __u64 latency = now > intended ? now - intended : 0;
    __u32 segment = intended < row->half ? 0 : intended < row->last_quarter ? 1 : 2;
    row->latency[segment][bucket(latency) & (BUCKETS - 1)]++;
    if (latency > row->longest)
        row->longest = latency;
    row->answered++;
    if (now <= row->end)
        row->in_time++;
    if (sequence < flow->highest)
        row->reordered++;
    else
        flow->highest = sequence + 1;
    if (row->interval && intended >= row->start) {
        __u64 interval = (intended - row->start) / row->interval;
        if (interval >= INTERVALS)
            interval = INTERVALS - 1;
        row->answered_in[interval & (INTERVALS - 1)]++;
        // Most replies arrive in the same interval, without a second division.
        if (now >= row->start + (interval + 1) * row->interval)
            interval = (now - row->start) / row->interval;
        if (interval < INTERVALS)
            row->received_in[interval & (INTERVALS - 1)]++;
    }
    __u32 cpu = flow->cpu;
    struct row *home = row->part ? bpf_map_lookup_elem(&rows, &cpu) : 0;
    if (home && home->part && intended >= row->start) {
        __u64 part = (intended - row->start) / home->part;
        if (part >= home->oldest_part)
            __sync_fetch_and_add(&home->returned[part % PARTS], 1);
    }
}

INLINE int fill_differs(const __u8 *payload, __u32 length) {
    __u32 at = HEADER_BYTES;
    if (length >= HEADER_BYTES + 8) {
        for (; at + 32 <= length; at += 32)
            if ((get64(payload + at) ^ fill64(at)) | (get64(payload + at + 8) ^ fill64(at + 8)) |
                (get64(payload + at + 16) ^ fill64(at + 16)) | (get64(payload + at + 24) ^ fill64(at + 24)))
                return 1;
        for (; at + 8 <= length; at += 8)
            if (get64(payload + at) != fill64(at))
                return 1;
        return get64(payload + length - 8) != fill64(length - 8);
    }
    for (; at < length; at++)
        if (payload[at] != fill[at])
            return 1;
    return 0;
}

INLINE void take_echo(struct row *row, struct flow *flow, __u32 number, const __u8 *payload, const __u8 *end,
                      __u32 length) {
    if (length < HEADER_BYTES || payload + HEADER_BYTES > end ||
        (get32(payload) != bpf_htonl(MAGIC) && get32(payload) != bpf_htonl(REPLY_MAGIC))) {
        row->corrupt++;
        return;
    }
    __u64 run = bpf_be64_to_cpu(get64(payload + 8));
    if (length != settings.payload) {
        // The checksum of a body of another length cannot be computed here. If the run differs, the
        // body is assumed to be intact.
        if (run != settings.run)
            row->unsolicited++;
        else
            row->corrupt++;
        return;
    }
    __u32 bytes = settings.payload;
    if (bytes > FILL_BYTES || payload + bytes > end || fill_differs(payload, bytes)) {
        row->corrupt++;
        return;
    }
    __u64 sequence = bpf_be64_to_cpu(get64(payload + 24));
    __u64 intended = bpf_be64_to_cpu(get64(payload + 32));
    __u64 epoch_and_flow = bpf_be64_to_cpu(get64(payload + 16));
    // flow->state already covers body, magic, run, epoch and flow number of this slot's requests.
    int ours = run == settings.run && get64(payload + 16) == get64(flow->head + HEAD_BYTES - 8);
    __u32 state = flow->state;
    if (!ours)
        state = step64(step64(step(settings.body_state, MAGIC), run), epoch_and_flow);
    state = step64(step64(state, sequence), intended);
    if (bpf_htonl(state) != get32(payload + 4)) {
        row->corrupt++;
        return;
    }
    __u32 epoch = epoch_and_flow >> 32;
    if (!ours && (run != settings.run || (__u32)epoch_and_flow != number || epoch > row->epoch)) {
        row->unsolicited++;
        return;
    }
    __u64 next = flow->next;
    if (epoch < row->epoch) {
        row->late++;
        return;
    }
    if (sequence >= next) {
        row->unsolicited++;
        return;
    }
    // `forget` clears 64 bits at once, so bits of the oldest 64 requests may be cleared already.
    if (next - sequence > settings.view - 64) {
        row->late++;
        return;
    }
    __u64 place = number * settings.view + (sequence & (settings.view - 1));
    __u32 at = place / 64;
    __u64 *word = bpf_map_lookup_elem(&views, &at);
    if (!word)
        return;
    __u64 bit = 1ull << place % 64;
    if (__sync_fetch_and_or(word, bit) & bit) {
        row->duplicate++;
        return;
    }
    note_answer(row, flow, sequence, intended, bpf_ktime_get_ns());
}

// Passes a reply to user space, which verifies it.
INLINE void hand_over(struct xdp_md *ctx, struct row *row, __u32 number, __u64 sequence, __u64 intended, __u64 now,
                      __u32 offset, __u32 length) {
    if (length < 1 || length > REQUEST_BYTES) {
        row->unverified++;
        return;
    }
    struct verdict *verdict = bpf_ringbuf_reserve(&verdicts, sizeof(*verdict), 0);
    if (!verdict) {
        row->unverified++;
        return;
    }
    verdict->flow = number;
    verdict->length = length;
    verdict->sequence = sequence;
    verdict->latency = now > intended ? now - intended : 0;
    verdict->intended = intended;
    verdict->in_time = now <= row->end;
    if (bpf_xdp_load_bytes(ctx, offset, verdict->bytes, length)) {
        bpf_ringbuf_discard(verdict, BPF_RB_NO_WAKEUP);
        row->unverified++;
        return;
    }
    row->verdicts++;
    bpf_ringbuf_submit(verdict, BPF_RB_NO_WAKEUP);
}

INLINE __u64 get_tag(const __u8 *at) {
    if (settings.tag_bytes == 1)
        return *at;
    if (settings.tag_bytes == 2)
        return bpf_ntohs(*(const __u16 *)at);
    if (settings.tag_bytes == 4)
        return bpf_ntohl(get32(at));
    return bpf_be64_to_cpu(get64(at));
}

// Whether all bytes with known values have these values.
INLINE int has_marks(const __u8 *payload, const __u8 *end) {
    for (__u32 i = 0; i < MARKS && i < settings.mark_count; i++) {
        const __u8 *at = payload + settings.marks[i].offset;
        if (at + 1 > end || (*at & settings.marks[i].mask) != settings.marks[i].value)
            return 0;
    }
    return 1;
}

INLINE void take_exchange(struct xdp_md *ctx, struct row *row, struct flow *flow, __u32 number,
                          const __u8 *payload, const __u8 *end, __u32 length) {
    const __u8 *tag_at = payload + settings.tag_reply;
    if (length < settings.shortest_reply || !has_marks(payload, end) || tag_at + settings.tag_bytes > end) {
        row->corrupt++;
        return;
    }
    __u64 next = flow->next;
    __u64 behind = (next - 1 + flow->salt - get_tag(tag_at)) & tag_mask();
    if (behind >= next) {
        // The flow has not sent this tag. Tags of 1 or 2 bytes repeat soon, so the tag may be old.
        if (settings.tag_bytes >= 4)
            row->unsolicited++;
        else
            row->late++;
        return;
    }
    __u64 sequence = next - 1 - behind;
    if (behind >= settings.view || sequence < flow->first) {
        row->late++;
        return;
    }
    __u32 at = number * settings.view + (sequence & (settings.view - 1));
    __u64 *time = bpf_map_lookup_elem(&views, &at);
    if (!time)
        return;
    __u64 old = __sync_fetch_and_or(time, 1);
    if (old & 1) {
        row->duplicate++;
        return;
    }
    __u64 now = bpf_ktime_get_ns();
    note_answer(row, flow, sequence, old >> 1, now);
    if (settings.code_mask) {
        const __u8 *code = payload + settings.code_offset, *bits = payload + settings.truncated_offset;
        if (code + 1 <= end && bits + 1 <= end)
            row->codes[(*code & settings.code_mask & 255) | (*bits & settings.truncated_mask ? TRUNCATED : 0)]++;
    }
    if (settings.verify)
        hand_over(ctx, row, number, sequence, old >> 1, now, payload - (const __u8 *)(long)ctx->data, length);
}

// Reads the addresses of the IP header at `at`, which lies within the packet.
INLINE void read_addresses(const __u8 *at, struct datagram *datagram) {
    if (settings.ipv6) {
        datagram->source[0] = get64(at + 8);
        datagram->source[1] = get64(at + 16);
        datagram->destination[0] = get64(at + 24);
        datagram->destination[1] = get64(at + 32);
    } else {
        const struct iphdr *ip = (const void *)at;
        datagram->source[0] = ip->saddr;
        datagram->destination[0] = ip->daddr;
        datagram->source[1] = datagram->destination[1] = 0;
    }
}

// Reads the addresses of the IP header at `at`. Returns the end of the header, or 0 if the packet
// has another protocol, IPv4 options or an IPv6 extension header, or is an IPv4 fragment.
INLINE const __u8 *read_ip(const __u8 *at, const __u8 *end, __u8 protocol, struct datagram *datagram) {
    if (settings.ipv6) {
        const struct ipv6hdr *ip = (const void *)at;
        if ((void *)(ip + 1) > (void *)end || ip->version != 6 || ip->nexthdr != protocol)
            return 0;
        read_addresses(at, datagram);
        return (const void *)(ip + 1);
    }
    const struct iphdr *ip = (const void *)at;
    if ((void *)(ip + 1) > (void *)end || ip->version != 4 || ip->ihl != 5 || ip->protocol != protocol ||
        ip->frag_off & bpf_htons(0x3fff))
        return 0;
    read_addresses(at, datagram);
    return (const void *)(ip + 1);
}

// Counts the first fragment of a reply. The caller passes it to the stack, where no socket has the
// port.
INLINE void note_fragment(struct row *row, const __u8 *ip, const __u8 *end) {
    struct datagram datagram;
    const __u8 *udp = ip + (settings.ipv6 ? sizeof(struct ipv6hdr) + FRAGMENT_BYTES : sizeof(struct iphdr));
    __u32 number;
    if (udp + 4 > end)
        return;
    // The first fragment has offset 0 and the flag "more fragments".
    if (settings.ipv6) {
        const __u8 *fragment = ip + sizeof(struct ipv6hdr);
        if (ip[6] != IPPROTO_FRAGMENT || fragment[0] != IPPROTO_UDP ||
            (*(const __u16 *)(fragment + 2) & bpf_htons(0xfff9)) != bpf_htons(1))
            return;
    } else {
        const struct iphdr *header = (const void *)ip;
        if (header->ihl != 5 || header->protocol != IPPROTO_UDP ||
            (header->frag_off & bpf_htons(0x3fff)) != bpf_htons(0x2000))
            return;
    }
    read_addresses(ip, &datagram);
    __u32 ports = get32(udp);
    if (find(datagram.destination, datagram.source, ports << 16 | ports >> 16, &number))
        row->fragments++;
}

// Counts a message about a request of a flow that was not delivered, for example because it exceeds
// the MTU behind a router. The caller passes the message to the stack, like all packets that are not
// replies.
INLINE void note_icmp(struct row *row, const __u8 *ip, const __u8 *end) {
    struct datagram outer, inner;
    const __u8 *icmp = read_ip(ip, end, settings.ipv6 ? IPPROTO_ICMPV6 : IPPROTO_ICMP, &outer);
    if (!icmp || icmp + 8 > end)
        return;
    if (settings.ipv6 ? icmp[0] != ICMPV6_DEST_UNREACH && icmp[0] != ICMPV6_PKT_TOOBIG
                      : icmp[0] != ICMP_DEST_UNREACH)
        return;
    const __u8 *udp = read_ip(icmp + 8, end, IPPROTO_UDP, &inner);
    __u32 number;
    if (!udp || udp + 4 > end || !find(inner.source, inner.destination, get32(udp), &number))
        return;
    if (icmp[1] == (settings.ipv6 ? ICMPV6_PORT_UNREACH : ICMP_PORT_UNREACH))
        row->nobody++;
    else
        row->rejected++;
}

#endif
