// Sending in the load program: creates requests.
#ifndef LINERATE_LOAD_SEND_H
#define LINERATE_LOAD_SEND_H

#include "load_maps.h"

// Results for requests that did not leave: errors of asm-generic/errno-base.h and errno.h, and
// NET_XMIT codes of include/linux/netdevice.h.
#define ENETDOWN 100
#define EMSGSIZE 90
#define ENXIO 6
#define EOPNOTSUPP 95
#define NET_XMIT_DROP 1
#define NET_XMIT_CN 2

INLINE void note_error(struct row *row, int error, __u64 count) {
    if (error == -ENETDOWN || error == -ENXIO || error == -EOPNOTSUPP)
        row->down += count;
    else if (error == -EMSGSIZE)
        row->too_long += count;
    else
        row->failed += count;
}

// Returns the intended time of the next request, and advances the schedule.
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

// Counts a request by its intended time. Intended times rise.
INLINE void note_interval(struct row *row, __u64 when) {
    if (!row->interval)
        return;
    if (when >= row->made_until) {
        row->made_number = (when - row->start) / row->interval;
        row->made_until = row->start + (row->made_number + 1) * row->interval;
    }
    __u64 number = row->made_number;
    if (number < INTERVALS)
        row->sent_in[number & (INTERVALS - 1)]++;
}

INLINE void copy_head(__u8 *data, const struct flow *flow) {
    __u32 bytes = payload_offset();
#pragma unroll
    for (__u32 at = 0; at < HEAD_BYTES; at += 8)
        if (at < bytes)
            put64(data + at, get64(flow->head + at));
}

// Echo: at every 64th sequence, clears the word of answered bits that the next 64 requests use.
// The word was that of the requests one view earlier.
INLINE void forget(__u32 number, __u64 sequence) {
    if (sequence % 64)
        return;
    __u32 at = (number * settings.view + (sequence & (settings.view - 1))) / 64;
    __u64 *word = bpf_map_lookup_elem(&views, &at);
    if (word)
        *word = 0;
}

// Start and end of the packet data of a frame or, with `clone`, a socket buffer. `clone` is a
// constant after inlining, so the compiler keeps one branch.
INLINE __u8 *beginning(void *ctx, int clone) {
    return clone ? (void *)(long)((struct __sk_buff *)ctx)->data : (void *)(long)((struct xdp_md *)ctx)->data;
}
INLINE __u8 *ending(void *ctx, int clone) {
    return clone ? (void *)(long)((struct __sk_buff *)ctx)->data_end : (void *)(long)((struct xdp_md *)ctx)->data_end;
}

// Sets the payload to `length` bytes. bpf_skb_pull_data also makes the bytes of a socket buffer
// private, because the last clone may still share them.
INLINE int make_room(void *ctx, int clone, __u32 length) {
    if (clone) {
        __u32 bytes = payload_offset() + length;
        return (!settings.one_length && bpf_skb_change_tail(ctx, bytes, 0)) || bpf_skb_pull_data(ctx, bytes);
    }
    return !settings.one_length && bpf_xdp_adjust_tail(ctx, (int)length - (int)settings.longest);
}

INLINE int store_payload(void *ctx, int clone, const void *bytes, __u32 length) {
    return clone ? bpf_skb_store_bytes(ctx, payload_offset(), bytes, length, 0)
                 : bpf_xdp_store_bytes(ctx, payload_offset(), (void *)bytes, length);
}

INLINE int send_echo(void *ctx, int clone, struct flow *flow, __u32 number, __u64 when) {
    if (clone && bpf_skb_pull_data(ctx, payload_offset() + settings.payload))
        return -1;
    __u8 *data = beginning(ctx, clone);
    const __u8 *end = ending(ctx, clone);
    __u8 *payload = data + payload_offset();
    __u32 length = settings.payload;
    if (length < HEADER_BYTES || length > FILL_BYTES || payload + length > end || data + HEAD_BYTES > end)
        return -1;
    copy_head(data, flow);
    __u64 sequence = flow->next++;
    forget(number, sequence);
    __u32 state = step64(step64(flow->state, sequence), when);
    // A recycled page contains magic, run, epoch and flow number already, but its last user may
    // have changed them.
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

// Writes the IP and UDP lengths, and the IPv4 header checksum.
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

// Writes a tag, and returns its one's complement sum for the UDP checksum.
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
    // At an odd offset, each byte is the other half of a 16-bit word of the checksum.
    return settings.tag_request % 2 ? (__u16)(sum << 8 | sum >> 8) : sum;
}

INLINE int send_exchange(void *ctx, int clone, struct row *row, struct flow *flow, __u32 number, __u64 when) {
    __u64 sequence = flow->next;
    __u32 which;
    if (settings.by_tag) {
        which = (sequence + number * (tag_mask() + 1)) & settings.request_mask;
    } else {
        which = row->turn;
        row->turn += row->turn_step;
        // One subtraction is enough, because turn_step is less than request_count.
        if (row->turn >= settings.request_count)
            row->turn -= settings.request_count;
    }
    struct request *request = bpf_map_lookup_elem(&requests, &which);
    if (!request)
        return -1;
    __u32 length = settings.one_length ? settings.longest : request->length;
    if (length < 1 || length > REQUEST_BYTES)
        return -1;
    if (make_room(ctx, clone, length))
        return -1;
    __u8 *data = beginning(ctx, clone), *end = ending(ctx, clone);
    if (data + HEAD_BYTES <= end) {
        copy_head(data, flow);
    } else {
        // The frame is shorter than HEAD_BYTES: copy only the headers.
        if (data + payload_offset() > end)
            return -1;
        __u32 at = 0;
        for (; at + 8 <= payload_offset(); at += 8)
            put64(data + at, get64(flow->head + at));
        for (; at < payload_offset(); at += 2)
            put16(data + at, *(__u16 *)(flow->head + at));
    }
    if (store_payload(ctx, clone, request->bytes, length))
        return -1;
    data = beginning(ctx, clone);
    end = ending(ctx, clone);
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

// Creates the next request in a frame or a socket buffer. Returns 0 on success.
INLINE int make(void *ctx, int clone, struct row *row) {
    __u32 number = row->flow;
    struct flow *flow = bpf_map_lookup_elem(&flows, &number);
    if (!flow)
        return -1;
    __u64 when = schedule(row);
    note_interval(row, when);
    __u32 next = number + row->flow_step;
    row->flow = next < row->flow_count ? next : row->first_flow;
    row->sent++;
    int failed = settings.echo ? send_echo(ctx, clone, flow, number, when)
                               : send_exchange(ctx, clone, row, flow, number, when);
    if (failed)
        row->failed++;
    return failed;
}

// Begins the next tick if its time has come. Returns whether it began.
INLINE int begin_tick(struct row *row) {
    __u64 now = bpf_ktime_get_ns();
    if (now < row->next_tick)
        return 0;
    __u64 passed = now - row->next_tick + row->tick;
    if (passed > USUAL_HOLD_UP_NS)
        passed = USUAL_HOLD_UP_NS;
    row->quota = CATCH_UP * passed / (row->step + 1) + 1;
    row->horizon = now;
    row->next_tick = now + row->tick;
    return 1;
}

// Whether the next request should leave now: in the first tick after its intended time, or, after a
// delay, as soon as the quota of a tick allows.
INLINE int is_due(struct row *row) {
    if (row->sent >= row->share)
        return 0;
    if ((row->when > row->horizon || !row->quota) && (!begin_tick(row) || row->when > row->horizon))
        return 0;
    row->quota--;
    __u64 lag = row->horizon - row->when;
    if (lag > row->worst_lag)
        row->worst_lag = lag;
    if (lag > LATE_NS)
        row->late_sends++;
    return 1;
}

// Counts the requests created in a batch of program runs. `made`: whether this run creates one.
INLINE void note_batch(struct row *row, int made) {
    row->made_of += made;
    if (++row->run_over < BATCH)
        return;
    if (row->made_of <= BATCH)
        row->bursts[row->made_of]++;
    row->run_over = row->made_of = 0;
}

#endif
