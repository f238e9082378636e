// Load: makes requests of live frames, and takes, matches and times their replies.
//
// `send` runs once a frame under BPF_PROG_TEST_RUN with BPF_F_TEST_XDP_LIVE_FRAMES, `receive` on the interface, `sent` on
// the tracepoints that tell what became of frames. A page's content is whatever its last holder left there
// (net/bpf/test_run.c, xdp_test_run_init_page is called for new pages only), so `send` writes every byte anew.
//
// A call for live frames makes a page pool, which lives on for a second or more while frames are in sockets' buffers, and
// there can be 65535 (net/core/page_pool.c, net/core/xdp.c): calls for a few frames every tick would use them up.
// `send_clone` is for these. It runs under BPF_PROG_TEST_RUN for a socket buffer and sends clones of it.
#include "load_maps.h"
#include "load_receive.h"
#include "load_send.h"

SEC("xdp")
int send(struct xdp_md *ctx) {
    __u32 cpu = bpf_get_smp_processor_id();
    struct row *row = bpf_map_lookup_elem(&rows, &cpu);
    if (!row)
        return XDP_DROP;
    if (row->tick) {
        int due = is_due(row);
        note_batch(row, due);
        if (!due)
            return XDP_DROP;
    }
    if (make(ctx, 0, row))
        return XDP_DROP;
    // Out of the interface that the frame claims to come from (net/bpf/test_run.c, xdp_test_run_batch).
    return XDP_TX;
}

// What a run of `send_clone` works on.
struct run {
    struct __sk_buff *ctx;
    struct row *row;
};

static long clone_one(__u32 index, struct run *run) {
    struct row *row = run->row;
    (void)index;
    if (make(run->ctx, 1, row))
        return 0;
    int result = bpf_clone_redirect(run->ctx, settings.interface, 0);
    // A qdisc drops and says so in either way; that of a link that is down (noop_qdisc) says NET_XMIT_CN.
    if (result == NET_XMIT_DROP || result == NET_XMIT_CN)
        row->refused++;
    else if (result < 0)
        note_error(row, result, 1);
    return 0;
}

// Many requests in one run: softirqs run after each run (Linux 6.18, net/bpf/test_run.c, bpf_test_run), so the far end of a
// veth pair receives them as one batch, as it does live frames, and not one by one.
SEC("classifier")
int send_clone(struct __sk_buff *ctx) {
    __u32 cpu = bpf_get_smp_processor_id();
    struct row *row = bpf_map_lookup_elem(&rows, &cpu);
    if (!row)
        return TC_ACT_SHOT;
    struct run run = {.ctx = ctx, .row = row};
    bpf_loop(row->clones, clone_one, &run, 0);
    return TC_ACT_SHOT;
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

// The row of the thread that is in a call to send, if this is one of its frames.
INLINE struct row *sender(void) {
    __u32 cpu = bpf_get_smp_processor_id();
    struct row *row = bpf_map_lookup_elem(&rows, &cpu);
    return row && row->thread && row->thread == (__u32)bpf_get_current_pid_tgid() ? row : 0;
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

// xdp:xdp_redirect_err: (dev, prog, tgt, err, map_type, map_id, index). The far end of a veth pair may poll its queue within our
// call, and fail to redirect to a server's socket: that is a request lost there, and by a map, which ours never are.
SEC("raw_tp/xdp_redirect_err")
int not_redirected(struct bpf_raw_tracepoint_args *ctx) {
    struct row *row = sender();
    if (row && ctx->args[4] == BPF_MAP_TYPE_UNSPEC)
        note_error(row, ctx->args[3], 1);
    return 0;
}

// No helper that is called asks for a GPL one.
char _license[] SEC("license") = "MIT OR Apache-2.0";
