// Load: makes requests of live frames, and takes, matches and times their replies.
//
// `send` runs once a frame under BPF_PROG_TEST_RUN with BPF_F_TEST_XDP_LIVE_FRAMES, `receive` on the interface, `sent` on
// the tracepoints that tell what became of frames. A page's content is whatever its last holder left there
// (net/bpf/test_run.c, xdp_test_run_init_page is called for new pages only), so `send` writes every byte anew.
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "load.h"

#define INLINE static __always_inline

// net/ethernet's own, but not for user space.
#define VLAN_BYTES 4
#define MAGIC 0x4c4e5201u
#define HEADER_BYTES 40
#define LOOK_EVERY 8

// linux/icmp.h and linux/icmpv6.h, which include what only hosts have.
#define ICMP_DEST_UNREACH 3
#define ICMP_PORT_UNREACH 3
#define ICMPV6_DEST_UNREACH 1
#define ICMPV6_PORT_UNREACH 4

const volatile struct settings settings;
const volatile __u8 fill[FILL_BYTES];

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __type(key, __u32);
    __type(value, struct row);
    __uint(max_entries, 1);
} rows SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __type(key, __u32);
    __type(value, struct flow);
    __uint(max_entries, 1);
} flows SEC(".maps");

// Flow numbers plus one by a hash of their addresses and ports; 0 is free.
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __type(key, __u32);
    __type(value, __u32);
    __uint(max_entries, 1);
} tuples SEC(".maps");

// Echo: a bit a request in view, set when it is answered. Else: twice the time it was meant to leave, plus that bit.
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __type(key, __u32);
    __type(value, __u64);
    __uint(max_entries, 1);
} views SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(map_flags, BPF_F_MMAPABLE);
    __type(key, __u32);
    __type(value, struct request);
    __uint(max_entries, 1);
} requests SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 4096);
} verdicts SEC(".maps");

// Loads and stores of packet bytes at any alignment; the verifier allows them where the CPU does.
INLINE __u64 get64(const void *at) { return *(const __u64 *)at; }
INLINE __u32 get32(const void *at) { return *(const __u32 *)at; }
INLINE void put64(void *at, __u64 value) { *(volatile __u64 *)at = value; }
INLINE void put32(void *at, __u32 value) { *(volatile __u32 *)at = value; }
INLINE void put16(void *at, __u16 value) { *(volatile __u16 *)at = value; }

// Volatile, or the compiler takes it for the zeroes it is before user space has filled it.
INLINE __u64 fill64(__u32 at) { return *(const volatile __u64 *)(fill + at); }

INLINE __u64 add64(__u64 sum, __u64 words) { return sum + (__u32)words + (words >> 32); }

// RFC 1071, up to the complement.
INLINE __u16 fold(__u64 sum) {
    sum = (sum & 0xffffffff) + (sum >> 32);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    return (sum & 0xffff) + (sum >> 16);
}

// RFC 768: a checksum of zero is sent as all ones.
INLINE __u16 udp_checksum(__u64 sum) {
    __u16 checksum = ~fold(sum);
    return checksum ? checksum : 0xffff;
}

// A step of the chain in header.rs.
INLINE __u32 step(__u32 state, __u32 word) {
    state = (state ^ word) * 0x85ebca6b;
    return state << 15 | state >> 17;
}

INLINE __u32 step64(__u32 state, __u64 words) { return step(step(state, words >> 32), words); }

INLINE __u32 ip_offset(void) { return ETH_HLEN + (settings.vlan ? VLAN_BYTES : 0); }
INLINE __u32 udp_offset(void) {
    return ip_offset() + (settings.ipv6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr));
}
INLINE __u32 payload_offset(void) { return udp_offset() + sizeof(struct udphdr); }

// ---------------------------------------------------------------------------------------------------- sending

// When the next request is meant to leave.
INLINE __u64 schedule(struct row *row) {
    if (row->clocked) {
        if (!row->looks) {
            row->when = bpf_ktime_get_ns();
            row->looks = LOOK_EVERY;
            if (row->part)
                row->made_in = (row->when - row->start) / row->part % PARTS;
        }
        row->looks--;
        if (row->part)
            row->made[row->made_in % PARTS]++;
        return row->when;
    }
    __u64 when = row->when;
    __u64 fraction = row->fraction + row->step_fraction;
    row->when = when + row->step + (fraction >> 32);
    row->fraction = (__u32)fraction;
    return when;
}

INLINE void copy_head(__u8 *data, const struct flow *flow) {
    __u32 bytes = payload_offset();
#pragma unroll
    for (__u32 at = 0; at < HEAD_BYTES; at += 8)
        if (at < bytes)
            put64(data + at, get64(flow->head + at));
}

// Forgets what was answered a whole view ago, a word at a time.
INLINE void forget(__u32 number, __u64 sequence) {
    if (sequence % 64)
        return;
    __u32 at = (number * settings.view + (sequence & (settings.view - 1))) / 64;
    __u64 *word = bpf_map_lookup_elem(&views, &at);
    if (word)
        *word = 0;
}

INLINE int send_echo(__u8 *data, const __u8 *end, struct flow *flow, __u32 number, __u64 when) {
    __u8 *payload = data + payload_offset();
    __u32 length = settings.payload;
    if (length < HEADER_BYTES || length > FILL_BYTES || payload + length > end || data + HEAD_BYTES > end)
        return -1;
    copy_head(data, flow);
    __u64 sequence = flow->next++;
    forget(number, sequence);
    __u32 state = step64(step64(flow->state, sequence), when);
    // Magic, run, epoch and flow are in the page already, but perhaps not as they were.
    put64(payload, bpf_htonl(MAGIC) | (__u64)bpf_htonl(state) << 32);
    put64(payload + 8, bpf_cpu_to_be64(settings.run));
    put64(payload + 16, get64(flow->head + HEAD_BYTES - 8));
    put64(payload + 24, bpf_cpu_to_be64(sequence));
    put64(payload + 32, bpf_cpu_to_be64(when));
    __u32 at = HEADER_BYTES;
    if (length >= HEADER_BYTES + 8) {
        for (; at + 32 <= length; at += 32) {
            put64(payload + at, fill64(at));
            put64(payload + at + 8, fill64(at + 8));
            put64(payload + at + 16, fill64(at + 16));
            put64(payload + at + 24, fill64(at + 24));
        }
        for (; at + 8 <= length; at += 8)
            put64(payload + at, fill64(at));
        put64(payload + length - 8, fill64(length - 8));
    } else {
        for (; at < length; at++)
            payload[at] = fill[at];
    }
    __u64 sum = flow->sum + (__u64)bpf_htonl(state);
    sum = add64(add64(sum, bpf_cpu_to_be64(sequence)), bpf_cpu_to_be64(when));
    put16(data + udp_offset() + 6, udp_checksum(sum));
    return 0;
}

INLINE __u64 tag_mask(void) { return settings.tag_bytes >= 8 ? ~0ull : (1ull << 8 * settings.tag_bytes) - 1; }

// The lengths that vary, and the checksum of the IPv4 header that goes with them.
INLINE void put_lengths(__u8 *data, const struct flow *flow, __u32 length) {
    __u8 *ip = data + ip_offset();
    __u16 udp = bpf_htons(length + sizeof(struct udphdr));
    if (settings.ipv6) {
        put16(ip + 4, udp);
    } else {
        __u16 total = bpf_htons(length + sizeof(struct udphdr) + sizeof(struct iphdr));
        put16(ip + 2, total);
        put16(ip + 10, ~fold((__u64)flow->ip_sum + total));
    }
    put16(data + udp_offset() + 4, udp);
}

// Writes a tag, and returns what it adds to the checksum.
INLINE __u64 put_tag(__u8 *at, __u64 tag) {
    __u64 sum = 0;
    if (settings.tag_bytes == 1) {
        *at = tag;
        sum = (__u8)tag;
    } else if (settings.tag_bytes == 2) {
        sum = bpf_htons(tag);
        put16(at, sum);
    } else if (settings.tag_bytes == 4) {
        sum = bpf_htonl(tag);
        put32(at, sum);
    } else {
        __u64 words = bpf_cpu_to_be64(tag);
        put64(at, words);
        sum = add64(0, words);
    }
    sum = fold(sum);
    // At an odd place its bytes are the other halves of their words.
    return settings.tag_request % 2 ? (__u16)(sum << 8 | sum >> 8) : sum;
}

INLINE int send_exchange(struct xdp_md *ctx, struct row *row, struct flow *flow, __u32 number, __u64 when) {
    __u64 sequence = flow->next;
    __u32 which;
    if (settings.by_tag) {
        which = (sequence + number * (tag_mask() + 1)) & settings.request_mask;
    } else {
        which = row->turn;
        row->turn += row->turn_step;
        // The step is less than the count.
        if (row->turn >= settings.request_count)
            row->turn -= settings.request_count;
    }
    struct request *request = bpf_map_lookup_elem(&requests, &which);
    if (!request)
        return -1;
    __u32 length = settings.one_length ? settings.longest : request->length;
    if (length < 1 || length > REQUEST_BYTES)
        return -1;
    if (!settings.one_length && bpf_xdp_adjust_tail(ctx, (int)length - (int)settings.longest))
        return -1;
    __u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
    if (data + HEAD_BYTES <= end) {
        copy_head(data, flow);
    } else {
        // A short frame: the head's last words would reach beyond it.
        if (data + payload_offset() > end)
            return -1;
        __u32 at = 0;
        for (; at + 8 <= payload_offset(); at += 8)
            put64(data + at, get64(flow->head + at));
        for (; at < payload_offset(); at += 2)
            put16(data + at, *(__u16 *)(flow->head + at));
    }
    if (bpf_xdp_store_bytes(ctx, payload_offset(), request->bytes, length))
        return -1;
    data = (void *)(long)ctx->data;
    end = (void *)(long)ctx->data_end;
    if (data + payload_offset() > end)
        return -1;
    put_lengths(data, flow, length);
    __u64 sum = (__u64)flow->sum + request->sum + bpf_htons(length + sizeof(struct udphdr)) * 2ull;
    if (!settings.by_tag) {
        __u8 *tag = data + payload_offset() + settings.tag_request;
        if (settings.tag_request > REQUEST_BYTES || tag + settings.tag_bytes > end)
            return -1;
        sum += put_tag(tag, sequence + flow->salt);
    }
    put16(data + udp_offset() + 6, udp_checksum(sum));
    __u32 at = number * settings.view + (sequence & (settings.view - 1));
    __u64 *time = bpf_map_lookup_elem(&views, &at);
    if (!time)
        return -1;
    *time = when << 1;
    flow->next = sequence + 1;
    return 0;
}

SEC("xdp")
int send(struct xdp_md *ctx) {
    __u32 cpu = bpf_get_smp_processor_id();
    struct row *row = bpf_map_lookup_elem(&rows, &cpu);
    if (!row)
        return XDP_DROP;
    __u32 number = row->flow;
    struct flow *flow = bpf_map_lookup_elem(&flows, &number);
    if (!flow)
        return XDP_DROP;
    __u64 when = schedule(row);
    __u32 next = number + row->flow_step;
    row->flow = next < row->flow_count ? next : row->first_flow;
    row->sent++;
    int failed;
    if (settings.echo)
        failed = send_echo((void *)(long)ctx->data, (void *)(long)ctx->data_end, flow, number, when);
    else
        failed = send_exchange(ctx, row, flow, number, when);
    if (failed) {
        row->failed++;
        return XDP_DROP;
    }
    // Out of the interface that the frame claims to come from (net/bpf/test_run.c, xdp_test_run_batch).
    return XDP_TX;
}

// ---------------------------------------------------------------------------------------------------- receiving

// A datagram's way, as it came.
struct datagram {
    __u64 source[2];
    __u64 destination[2];
    __u32 ports; // as in the header
    __u32 length; // of the payload
};

// Where the addresses of a flow's own frames are, and where its ports.
INLINE __u32 address_offset(void) { return ip_offset() + (settings.ipv6 ? 8 : 12); }

INLINE __u32 tuple_hash(__u32 ours, __u32 theirs, __u32 ports) {
    __u32 hash = (ours ^ bpf_htonl(theirs) ^ ports * 0x9e3779b1u) * settings.tuple_factor;
    return hash ^ hash >> 15;
}

// Whether a flow sends from `ours` to `theirs`; `ports` are as a request has them.
INLINE int is_flow(const struct flow *flow, const __u64 *ours, const __u64 *theirs, __u32 ports) {
    const __u8 *at = flow->head + address_offset();
    if (get32(flow->head + udp_offset()) != ports)
        return 0;
    if (settings.ipv6)
        return get64(at) == ours[0] && get64(at + 8) == ours[1] && get64(at + 16) == theirs[0] &&
               get64(at + 24) == theirs[1];
    return get32(at) == (__u32)ours[0] && get32(at + 4) == (__u32)theirs[0];
}

// The flow that sends requests so, and its number.
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

// Which of the buckets holds a latency: 128 an octave.
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

// A first reply: how long it took, and where it counts.
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
        row->intervals[interval & (INTERVALS - 1)]++;
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
    if (length < HEADER_BYTES || payload + HEADER_BYTES > end || get32(payload) != bpf_htonl(MAGIC)) {
        row->corrupt++;
        return;
    }
    __u64 run = bpf_be64_to_cpu(get64(payload + 8));
    if (length != settings.payload) {
        // A stranger's body cannot be summed here; one of another run is taken for intact.
        if (run != settings.run)
            row->foreign++;
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
    // What the flow's requests begin with in this slot has been added up before.
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
        row->foreign++;
        return;
    }
    __u64 next = flow->next;
    if (epoch < row->epoch) {
        row->late++;
        return;
    }
    if (sequence >= next) {
        row->foreign++;
        return;
    }
    // A word is forgotten as a whole, so the oldest ones of the view are out of it already.
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

// Hands a reply to user space to judge.
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

// Whether every byte that is known is as it must be.
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
        // Never sent. So few tags cannot tell that from one long ago.
        if (settings.tag_bytes >= 4)
            row->foreign++;
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
        const __u8 *code = payload + settings.code_offset;
        if (code + 1 <= end)
            row->codes[*code & settings.code_mask & 255]++;
    }
    if (settings.verify)
        hand_over(ctx, row, number, sequence, old >> 1, now, payload - (const __u8 *)(long)ctx->data, length);
}

// The addresses and ports of a datagram whose IP header is at `at`; what follows it, or none if it is not plain UDP.
INLINE const __u8 *read_ip(const __u8 *at, const __u8 *end, __u8 protocol, struct datagram *datagram) {
    if (settings.ipv6) {
        const struct ipv6hdr *ip = (const void *)at;
        if ((void *)(ip + 1) > (void *)end || ip->version != 6 || ip->nexthdr != protocol)
            return 0;
        datagram->source[0] = get64(at + 8);
        datagram->source[1] = get64(at + 16);
        datagram->destination[0] = get64(at + 24);
        datagram->destination[1] = get64(at + 32);
        return (const void *)(ip + 1);
    }
    const struct iphdr *ip = (const void *)at;
    if ((void *)(ip + 1) > (void *)end || ip->version != 4 || ip->ihl != 5 || ip->protocol != protocol ||
        ip->frag_off & bpf_htons(0x3fff))
        return 0;
    datagram->source[0] = ip->saddr;
    datagram->destination[0] = ip->daddr;
    datagram->source[1] = datagram->destination[1] = 0;
    return (const void *)(ip + 1);
}

// Counts a port unreachable message about a flow's request. It is passed on like all that is not a reply.
INLINE void note_icmp(struct row *row, const __u8 *ip, const __u8 *end) {
    struct datagram outer, inner;
    const __u8 *icmp = read_ip(ip, end, settings.ipv6 ? IPPROTO_ICMPV6 : IPPROTO_ICMP, &outer);
    if (!icmp || icmp + 8 > end)
        return;
    if (settings.ipv6 ? icmp[0] != ICMPV6_DEST_UNREACH || icmp[1] != ICMPV6_PORT_UNREACH
                      : icmp[0] != ICMP_DEST_UNREACH || icmp[1] != ICMP_PORT_UNREACH)
        return;
    const __u8 *udp = read_ip(icmp + 8, end, IPPROTO_UDP, &inner);
    __u32 number;
    if (!udp || udp + 4 > end || !find(inner.source, inner.destination, get32(udp), &number))
        return;
    row->nobody++;
}

SEC("xdp.frags")
int receive(struct xdp_md *ctx) {
    const __u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
    __u32 cpu = bpf_get_smp_processor_id();
    struct row *row = bpf_map_lookup_elem(&rows, &cpu);
    if (!row || data + ETH_HLEN + VLAN_BYTES > end)
        return XDP_PASS;
    __u16 type = *(const __u16 *)(data + 12);
    const __u8 *ip = data + ETH_HLEN;
    // The tag may have been taken out by the NIC.
    if (type == bpf_htons(ETH_P_8021Q)) {
        type = *(const __u16 *)(data + 16);
        ip += VLAN_BYTES;
    }
    if (type != bpf_htons(settings.ipv6 ? ETH_P_IPV6 : ETH_P_IP))
        return XDP_PASS;
    struct datagram datagram;
    const __u8 *udp = read_ip(ip, end, IPPROTO_UDP, &datagram);
    if (!udp) {
        note_icmp(row, ip, end);
        return XDP_PASS;
    }
    if (udp + sizeof(struct udphdr) > end)
        return XDP_PASS;
    __u32 ports = get32(udp);
    __u32 length = bpf_ntohs(*(const __u16 *)(udp + 4));
    if (length < sizeof(struct udphdr))
        return XDP_PASS;
    length -= sizeof(struct udphdr);
    __u32 number;
    struct flow *flow = find(datagram.destination, datagram.source, ports << 16 | ports >> 16, &number);
    if (!flow)
        return XDP_PASS;
    row->arrivals++;
    const __u8 *payload = udp + sizeof(struct udphdr);
    if (settings.echo)
        take_echo(row, flow, number, payload, end, length);
    else
        take_exchange(ctx, row, flow, number, payload, end, length);
    return XDP_DROP;
}

// ---------------------------------------------------------------------------------------------------- after sending

// The row of the thread that is in a call to send, if this is one of its frames.
INLINE struct row *sender(void) {
    __u32 cpu = bpf_get_smp_processor_id();
    struct row *row = bpf_map_lookup_elem(&rows, &cpu);
    return row && row->thread && row->thread == (__u32)bpf_get_current_pid_tgid() ? row : 0;
}

#define ENETDOWN 100
#define EMSGSIZE 90
#define ENXIO 6
#define EOPNOTSUPP 95

INLINE void note_error(struct row *row, int error, __u64 count) {
    if (error == -ENETDOWN || error == -ENXIO || error == -EOPNOTSUPP)
        row->down += count;
    else if (error == -EMSGSIZE)
        row->too_long += count;
    else
        row->failed += count;
}

// xdp:xdp_devmap_xmit: (from_dev, to_dev, sent, drops, err). Only our frames come from the interface they leave by.
SEC("raw_tp/xdp_devmap_xmit")
int sent(struct bpf_raw_tracepoint_args *ctx) {
    struct row *row = sender();
    __s32 drops = ctx->args[3], error = ctx->args[4];
    if (!row || ctx->args[0] != ctx->args[1] || drops <= 0)
        return 0;
    if (error)
        note_error(row, error, drops);
    else
        row->refused += drops;
    return 0;
}

// xdp:xdp_redirect_err: (dev, prog, tgt, err, ...).
SEC("raw_tp/xdp_redirect_err")
int not_redirected(struct bpf_raw_tracepoint_args *ctx) {
    struct row *row = sender();
    if (row)
        note_error(row, ctx->args[3], 1);
    return 0;
}

// No helper that is called asks for a GPL one.
char _license[] SEC("license") = "MIT OR Apache-2.0";
