// Records the requests of one UDP port, and the activity of the CPUs that process them, in time
// windows. The programs change nothing. They read packet headers and the first two bytes of the
// payload.
//
// Each event is four 64-bit words in a chunk of its CPU. User space empties the chunks between
// windows and joins the events to requests (trace/src/delay/). No map is keyed by packet.
//
// Tracepoints, Linux 6.3 to 6.18: include/trace/events/irq.h, napi.h, net.h, sched.h and sock.h.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>

#include <bpf/bpf_endian.h>

#include "stacked.h"

// trace/src/delay/event.rs has the same numbers.
enum event_kind {
    IRQ_BEGIN = 1,
    IRQ_END,
    SOFTIRQ_RAISED,
    SOFTIRQ_BEGIN,
    SOFTIRQ_END,
    POLL_END,
    SWITCH,
    WAKING,
    REQUEST_SENT,
    RECEIVED,
    QUEUED,
    READ,
    REPLY_QUEUED,
    REPLY_SENT,
};

#define EVENT_WORDS 4
#define CHUNK_EVENTS 1024

// Set before the programs are loaded.
// Inode of the server's network namespace.
const volatile __u32 network = 0;
// In network byte order.
const volatile __be16 port = 0;
const volatile __u64 events_per_cpu = CHUNK_EVENTS;

struct chunk {
    __u64 words[CHUNK_EVENTS * EVENT_WORDS];
};

// events_per_cpu / CHUNK_EVENTS chunks per CPU, in CPU order. The loader sets max_entries.
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct chunk);
} chunks SEC(".maps");

// Number of events of this CPU in the window, including events for which there was no room.
struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u64);
} positions SEC(".maps");

// End of the window (CLOCK_MONOTONIC, ns), so that it ends on time even if user space runs late; 0
// while no window is open.
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u64);
} recording SEC(".maps");

INLINE int is_recording(void) {
    __u32 only = 0;
    __u64 *end = bpf_map_lookup_elem(&recording, &only);
    return end && *end;
}

INLINE void emit(__u64 kind, __u64 small, __u64 number, __u64 one, __u64 other) {
    __u64 now = bpf_ktime_get_ns();
    __u32 only = 0;
    __u64 *end = bpf_map_lookup_elem(&recording, &only);
    __u64 *next = bpf_map_lookup_elem(&positions, &only);
    if (!end || now >= *end || !next)
        return;
    // Atomic: an interrupt can come at any point here, and its events then get other slots.
    __u64 position = __sync_fetch_and_add(next, 1);
    if (position >= events_per_cpu)
        return;
    __u32 key = bpf_get_smp_processor_id() * (events_per_cpu / CHUNK_EVENTS) + position / CHUNK_EVENTS;
    struct chunk *chunk = bpf_map_lookup_elem(&chunks, &key);
    if (!chunk)
        return;
    __u64 *words = &chunk->words[(position & (CHUNK_EVENTS - 1)) * EVENT_WORDS];
    words[0] = now;
    words[1] = kind | (small & 0xffff) << 8 | (number & 0xffffffff) << 32;
    words[2] = one;
    words[3] = other;
}

SEC("tp_btf/irq_handler_entry")
int irq_begins(__u64 *arguments) {
    if (is_recording())
        emit(IRQ_BEGIN, 0, arguments[0], 0, 0);
    return 0;
}

SEC("tp_btf/irq_handler_exit")
int irq_ends(__u64 *arguments) {
    if (is_recording())
        emit(IRQ_END, 0, arguments[0], 0, 0);
    return 0;
}

SEC("tp_btf/softirq_raise")
int softirq_raised(__u64 *arguments) {
    if ((__u32)arguments[0] == NET_RX_SOFTIRQ && is_recording())
        emit(SOFTIRQ_RAISED, arguments[0], 0, 0, 0);
    return 0;
}

SEC("tp_btf/softirq_entry")
int softirq_begins(__u64 *arguments) {
    if (is_recording())
        emit(SOFTIRQ_BEGIN, arguments[0], 0, 0, 0);
    return 0;
}

SEC("tp_btf/softirq_exit")
int softirq_ends(__u64 *arguments) {
    if (is_recording())
        emit(SOFTIRQ_END, arguments[0], 0, 0, 0);
    return 0;
}

SEC("tp_btf/napi_poll")
int poll_ends(__u64 *arguments) {
    struct napi_struct *napi = (void *)arguments[0];
    if (!is_recording())
        return 0;
    struct net_device *device = napi->dev;
    emit(POLL_END, arguments[1], device ? device->ifindex : 0, 0, 0);
    return 0;
}

SEC("tp_btf/sched_switch")
int switches(__u64 *arguments) {
    struct task_struct *previous = (void *)arguments[1], *next = (void *)arguments[2];
    if (!is_recording())
        return 0;
    __u64 comm[2];
    bpf_probe_read_kernel(comm, sizeof(comm), next->comm);
    // A preempted thread stays runnable, also if it was about to sleep.
    emit(SWITCH, !arguments[0] && previous->__state, next->pid, comm[0], comm[1]);
    return 0;
}

SEC("tp_btf/sched_waking")
int wakes(__u64 *arguments) {
    struct task_struct *task = (void *)arguments[0];
    if (is_recording())
        emit(WAKING, 0, task->pid, 0, 0);
    return 0;
}

struct ports {
    __be16 source;
    __be16 destination;
    __be16 length;
    __be16 check;
    // First two bytes of the payload, such as a DNS ID. Arbitrary bytes if the payload is shorter.
    __u16 tag;
};

enum direction { NEITHER, REQUEST, REPLY };

#define UDP_HEADER_BYTES 8

INLINE __u32 data_offset(struct sk_buff *skb) { return distance(skb->data, skb->head); }

// Returns the direction of a UDP packet of the port, and its client: address, port and tag. IPv6
// addresses are hashed to 32 bits. Ignores IPv4 fragments except the first, IPv6 packets with
// extension headers, and packets whose headers are outside the linear part (pages of a driver while
// GRO is off). `offset`: the network header, or the VLAN tag of an incoming packet.
INLINE enum direction look(struct sk_buff *skb, __u32 offset, int outgoing, __u64 *client) {
    const unsigned char *at = skb->head + offset;
    __be16 protocol = network_protocol(skb->protocol, outgoing, &at);
    // From there to the end of the linear part.
    __u32 space = data_offset(skb) + skb->len - skb->data_len - distance(at, skb->head);
    struct ports found;
    __u32 source, destination;
    if (protocol == bpf_htons(ETH_P_IP)) {
        struct {
            struct ipv4 ip;
            struct ports ports;
        } header;
        if (bpf_probe_read_kernel(&header, sizeof(header), at) || header.ip.protocol != IPPROTO_UDP)
            return NEITHER;
        __u32 length = (header.ip.version_ihl & 15) * 4;
        if (header.ip.version_ihl >> 4 != 4 || header.ip.fragment & bpf_htons(0x1fff) ||
            space < length + UDP_HEADER_BYTES)
            return NEITHER;
        if (length == sizeof(header.ip))
            found = header.ports;
        else if (bpf_probe_read_kernel(&found, sizeof(found), at + length))
            return NEITHER;
        source = header.ip.source;
        destination = header.ip.destination;
    } else if (protocol == bpf_htons(ETH_P_IPV6)) {
        struct {
            struct ipv6 ip;
            struct ports ports;
        } header;
        if (space < sizeof(header.ip) + UDP_HEADER_BYTES ||
            bpf_probe_read_kernel(&header, sizeof(header), at) || header.ip.next != IPPROTO_UDP)
            return NEITHER;
        found = header.ports;
        const __be32 *from = header.ip.source, *to = header.ip.destination;
        source = from[0] ^ from[1] * 0x85ebca6b ^ from[2] * 0xc2b2ae35 ^ from[3] * 0x27d4eb2f;
        destination = to[0] ^ to[1] * 0x85ebca6b ^ to[2] * 0xc2b2ae35 ^ to[3] * 0x27d4eb2f;
    } else {
        return NEITHER;
    }
    // If both ports are the server's, as with NTP: incoming is a request, outgoing is a reply.
    if (found.source == port && (outgoing || found.destination != port)) {
        *client = (__u64)destination << 32 | (__u64)found.destination << 16 | found.tag;
        return REPLY;
    }
    if (found.destination != port)
        return NEITHER;
    *client = (__u64)source << 32 | (__u64)found.source << 16 | found.tag;
    return REQUEST;
}

INLINE int is_here(struct net_device *device) {
    return device->nd_net.net->ns.inum == network;
}

SEC("tp_btf/netif_receive_skb")
int received(__u64 *arguments) {
    struct sk_buff *skb = (void *)arguments[0];
    __u64 client = 0;
    if (!is_recording() || !is_here(skb->dev) || is_passed_up(skb))
        return 0;
    if (look(skb, data_offset(skb), 0, &client) != REQUEST)
        return 0;
    // The number of datagrams that GRO merged: the kernel splits them again before most sockets.
    struct skb_shared_info *shared = (void *)(skb->head + skb->end);
    emit(RECEIVED, BPF_CORE_READ(shared, gso_segs), skb->dev->ifindex, (__u64)skb, client);
    return 0;
}

SEC("tp_btf/net_dev_queue")
int reply_queued(__u64 *arguments) {
    struct sk_buff *skb = (void *)arguments[0];
    __u64 client = 0;
    if (!is_recording() || !is_here(skb->dev))
        return 0;
    enum stacking stacking = stacking_of(skb->dev);
    if (stacking == STACKING_UPPER || look(skb, skb->network_header, 1, &client) != REPLY)
        return 0;
    if (!was_seen_above(skb, stacking, client))
        emit(REPLY_QUEUED, 0, skb->dev->ifindex, (__u64)skb, client);
    return 0;
}

// Also records requests of clients on this host, at their last tracepoint before the device.
SEC("tp_btf/net_dev_start_xmit")
int starts_transmit(__u64 *arguments) {
    struct sk_buff *skb = (void *)arguments[0];
    struct net_device *device = (void *)arguments[1];
    __u64 client = 0;
    if (!is_recording())
        return 0;
    int here = is_here(device);
    enum direction direction = look(skb, skb->network_header, here, &client);
    // User space ignores the second event of a packet that was seen above.
    if (direction == REPLY && here && stacking_of(device) != STACKING_UPPER)
        emit(REPLY_SENT, 0, device->ifindex, (__u64)skb, client);
    else if (direction == REQUEST)
        emit(REQUEST_SENT, 0, device->ifindex, (__u64)skb, client);
    return 0;
}

INLINE int is_asked_for(struct sock *socket) {
    return socket && socket->sk_protocol == IPPROTO_UDP && bpf_htons(socket->__sk_common.skc_num) == port &&
           socket->__sk_common.skc_net.net->ns.inum == network;
}

SEC("tp_btf/sk_data_ready")
int queued(__u64 *arguments) {
    struct sock *socket = (void *)arguments[0];
    if (!is_recording() || !is_asked_for(socket))
        return 0;
    // Usually the datagram that was just queued, unless another CPU or a reader changed the queue.
    __u64 last = (__u64)socket->sk_receive_queue.prev;
    emit(QUEUED, 0, 0, (__u64)socket, last);
    return 0;
}

SEC("tp_btf/sock_recv_length")
int reads(__u64 *arguments) {
    struct sock *socket = (void *)arguments[0];
    int result = arguments[1], flags = arguments[2];
    if (!is_recording() || !is_read(result, flags) || !is_asked_for(socket))
        return 0;
    __u32 waiting = socket->sk_receive_queue.qlen + BPF_CORE_READ((struct udp_sock *)socket, reader_queue.qlen);
    emit(READ, 0, (__u32)bpf_get_current_pid_tgid(), (__u64)socket, waiting);
    return 0;
}

EMPTY_PROGRAM

char _license[] SEC("license") = "Dual MIT/GPL";
