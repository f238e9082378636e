// Load generator: creates requests, and receives, matches and times their replies.
//
// `send` runs once per frame under BPF_PROG_TEST_RUN with BPF_F_TEST_XDP_LIVE_FRAMES. `receive` is
// attached to the interface. `sent` and `not_redirected` count frames that did not leave, from
// tracepoints. The kernel initializes a page only when the page is new (net/bpf/test_run.c,
// xdp_test_run_init_page). A recycled page has its last user's bytes, so `send` writes every byte.
//
// Each call for live frames creates a page pool. The pool exists for a second or more while its
// frames wait in receive buffers of sockets (net/core/page_pool.c), and at most 65533 pools can
// exist (net/core/xdp.c, MEM_ID_MAX). Calls for a few frames per tick would use them up. For such
// calls there is `send_clone`, which runs under BPF_PROG_TEST_RUN for a socket buffer and sends
// clones of the buffer.
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
    // The kernel redirects the frame to the ingress interface of the context (net/bpf/test_run.c,
    // xdp_test_run_batch).
    return XDP_TX;
}

// Argument of `clone_one`.
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
    // A qdisc returns either code for a drop. The noop_qdisc of a link that is down returns
    // NET_XMIT_CN.
    if (result == NET_XMIT_DROP || result == NET_XMIT_CN)
        row->refused++;
    else if (result < 0)
        note_error(row, result, 1);
    return 0;
}

// Sends many requests per run, because softirqs run after each run (Linux 6.18,
// net/bpf/test_run.c, bpf_test_run). The peer of a veth then receives the requests as one batch,
// like live frames, and not one by one.
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
    // The NIC may have stripped the VLAN tag.
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
        note_fragment(row, ip, end);
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

// Records the current thread as the sender of its CPU. User space does not know its number: in a
// container it has another one than in the initial PID namespace.
SEC("raw_tp/enter_thread")
int enter_thread(struct bpf_raw_tracepoint_args *ctx) {
    __u32 cpu = bpf_get_smp_processor_id();
    struct row *row = bpf_map_lookup_elem(&rows, &cpu);
    (void)ctx;
    if (row)
        row->thread = (__u32)bpf_get_current_pid_tgid();
    return 0;
}

// The row of this CPU if the current task is its sending thread; otherwise 0.
INLINE struct row *sender(void) {
    __u32 cpu = bpf_get_smp_processor_id();
    struct row *row = bpf_map_lookup_elem(&rows, &cpu);
    return row && row->thread && row->thread == (__u32)bpf_get_current_pid_tgid() ? row : 0;
}

// xdp:xdp_devmap_xmit: (from_dev, to_dev, sent, drops, err). from_dev == to_dev holds only for
// frames of `send`.
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

// xdp:xdp_redirect_err: (dev, prog, tgt, err, map_type, map_id, index). The peer of a veth may poll
// its receive queue during the sender's call, and fail to redirect a request to a server's AF_XDP
// socket. That request is lost at the server, and the event has the type of the server's map.
// Frames of `send` are redirected without a map.
SEC("raw_tp/xdp_redirect_err")
int not_redirected(struct bpf_raw_tracepoint_args *ctx) {
    struct row *row = sender();
    if (row && ctx->args[4] == BPF_MAP_TYPE_UNSPEC)
        note_error(row, ctx->args[3], 1);
    return 0;
}

// No helper that is called is GPL-only.
char _license[] SEC("license") = "MIT OR Apache-2.0";
