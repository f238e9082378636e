// Counts the delivery of datagrams: the CPU on which each datagram arrives, the thread and CPU that
// read it, and the datagrams that the socket sends. Observes the UDP sockets of one network
// namespace on the configured ports. The programs read no payload and change nothing.
//
// Tracepoints, Linux 6.3 to 6.18, of include/trace/events/sock.h, udp.h and irq.h: sk_data_ready
// after a datagram is in the receive queue, udp_fail_queue_rcv_skb when it is refused,
// sock_recv_length and sock_send_length after the call, softirq_entry and softirq_exit. If CPUs
// queue datagrams to a socket at the same moment, Linux 6.18 lets one CPU do it for all
// (udp_prod_queue): that CPU counts then.
//
// No tracepoint reports which datagram was read, so the position in the receive queue decides. The
// queue is first in, first out: the datagrams that still wait are the last arrivals, and the
// datagram that was read arrived directly before them. If another datagram arrives at the same
// moment, the result can be off by one, which is harmless if both arrive on one CPU.

#include <linux/bpf.h>
#include <linux/in.h>

#include "kernel.h"

// The arrival CPU is unknown: the datagram arrived before the start, or LAST or more datagrams
// wait. host/src/delivery/program.rs has the same number.
#define CAME_BEFORE 0xffffffff

// Set before the programs are loaded.
// Inode of the network namespace.
const volatile __u32 network = 0;
// Device and inode of the PID namespace of the reported ids; zero: the initial PID namespace.
const volatile __u64 processes_device = 0;
const volatile __u64 processes_inode = 0;
// One bit per port.
const volatile __u8 ports[8192] = {};
// Whether to count the time that each datagram waits in its socket.
const volatile __u8 waits_wanted = 0;

// CPU and time of arrival of the last datagrams of a socket. Times are in units of 1024 ns.
#define LAST 4096

struct history {
    __u64 arrivals;
    __u32 times[LAST];
    __u16 cpus[LAST];
};

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, WAIT_CLASSES);
    __type(key, __u32);
    __type(value, __u64);
} waits SEC(".maps");

// Time in NET_RX and NET_TX, ns, including interrupts within them.
struct softirq_time {
    __u64 began;
    __u64 total;
};

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct softirq_time);
} softirqs SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 2048);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, __u64);
    __type(value, struct history);
} histories SEC(".maps");

// The initial value of a history, which is larger than the stack of a BPF program.
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct history);
} blank SEC(".maps");

// Keys contain the CPU, so that two CPUs do not update the same value.
struct reading {
    __u64 cookie;
    __u32 arrived_on;
    __u32 read_on;
    __u32 pid;
    __u32 tid;
};

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __uint(max_entries, 32768); // or four times the square of the number of CPUs
    __type(key, struct reading);
    __type(value, __u64);
} readings SEC(".maps");

struct place {
    __u64 cookie;
    __u64 cpu;
};

struct arrival {
    __u64 packets;
    __u64 refused;
};

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __uint(max_entries, 32768); // as `readings`
    __type(key, struct place);
    __type(value, struct arrival);
} arrivals SEC(".maps");

struct sending {
    __u64 packets;
    __u64 largest;
};

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 16384);
    __type(key, struct place);
    __type(value, struct sending);
} sendings SEC(".maps");

// Losses because a map was full.
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u64);
} missed SEC(".maps");

INLINE void miss(void) {
    __u32 only = 0;
    __u64 *count = bpf_map_lookup_elem(&missed, &only);
    if (count)
        __sync_fetch_and_add(count, 1);
}

INLINE int is_asked_for(struct sock *socket) {
    if (!socket || socket->sk_protocol != IPPROTO_UDP)
        return 0;
    __u16 port = socket->__sk_common.skc_num;
    if (!contains_port(ports, port))
        return 0;
    return socket->__sk_common.skc_net.net->ns.inum == network;
}

// Returns the value of a key, `zero` if the key is new, or null if the map is full.
INLINE void *counted(void *map, const void *key, const void *zero) {
    void *value = bpf_map_lookup_elem(map, key);
    if (value)
        return value;
    bpf_map_update_elem(map, key, zero, BPF_NOEXIST);
    value = bpf_map_lookup_elem(map, key);
    if (!value)
        miss();
    return value;
}

INLINE struct arrival *arrival(struct sock *socket) {
    struct place place = {bpf_get_socket_cookie(socket), bpf_get_smp_processor_id()};
    struct arrival zero = {};
    return counted(&arrivals, &place, &zero);
}

SEC("tp_btf/sk_data_ready")
int arrives(__u64 *arguments) {
    struct sock *socket = (void *)arguments[0];
    __u32 only = 0;
    if (!is_asked_for(socket))
        return 0;
    struct arrival *count = arrival(socket);
    if (count)
        __sync_fetch_and_add(&count->packets, 1);
    __u64 cookie = bpf_get_socket_cookie(socket);
    struct history *zero = bpf_map_lookup_elem(&blank, &only);
    struct history *history = zero ? counted(&histories, &cookie, zero) : 0;
    if (history) {
        __u64 number = __sync_fetch_and_add(&history->arrivals, 1);
        history->cpus[number % LAST] = bpf_get_smp_processor_id();
        if (waits_wanted)
            history->times[number % LAST] = bpf_ktime_get_ns() >> 10;
    }
    return 0;
}

SEC("tp_btf/udp_fail_queue_rcv_skb")
int refused(__u64 *arguments) {
    struct sock *socket = (void *)arguments[1];
    if (!is_asked_for(socket))
        return 0;
    struct arrival *count = arrival(socket);
    if (count)
        __sync_fetch_and_add(&count->refused, 1);
    return 0;
}

INLINE void count_wait(__u32 units) {
    __u32 class = wait_class(units);
    __u64 *count = bpf_map_lookup_elem(&waits, &class);
    if (count)
        (*count)++;
}

// Returns the CPU on which the datagram that was just read arrived, and counts its wait.
INLINE __u32 arrived_on(struct sock *socket, __u64 cookie) {
    struct history *history = bpf_map_lookup_elem(&histories, &cookie);
    if (!history)
        return CAME_BEFORE;
    __u64 wait = socket->sk_receive_queue.qlen;
    wait += BPF_CORE_READ((struct udp_sock *)socket, reader_queue.qlen);
    if (wait >= history->arrivals || wait >= LAST)
        return CAME_BEFORE;
    __u64 place = (history->arrivals - wait - 1) % LAST;
    if (waits_wanted)
        count_wait((__u32)(bpf_ktime_get_ns() >> 10) - history->times[place]);
    return history->cpus[place];
}

// The ids of a thread in another PID namespace stay zero, as elsewhere in the kernel.
INLINE void set_thread(struct reading *reading) {
    if (processes_inode) {
        struct bpf_pidns_info ids = {};
        if (!bpf_get_ns_current_pid_tgid(processes_device, processes_inode, &ids, sizeof(ids))) {
            reading->pid = ids.tgid;
            reading->tid = ids.pid;
        }
        return;
    }
    __u64 ids = bpf_get_current_pid_tgid();
    reading->pid = ids >> 32;
    reading->tid = ids;
}

SEC("tp_btf/sock_recv_length")
int reads(__u64 *arguments) {
    struct sock *socket = (void *)arguments[0];
    int result = arguments[1], flags = arguments[2];
    if (!is_read(result, flags) || !is_asked_for(socket))
        return 0;
    __u64 cookie = bpf_get_socket_cookie(socket), zero = 0;
    struct reading reading = {
        .cookie = cookie,
        .arrived_on = arrived_on(socket, cookie),
        .read_on = bpf_get_smp_processor_id(),
    };
    set_thread(&reading);
    __u64 *packets = counted(&readings, &reading, &zero);
    if (packets)
        __sync_fetch_and_add(packets, 1);
    return 0;
}

SEC("tp_btf/sock_send_length")
int sends(__u64 *arguments) {
    struct sock *socket = (void *)arguments[0];
    int result = arguments[1];
    if (result < 0 || !is_asked_for(socket))
        return 0;
    struct place place = {bpf_get_socket_cookie(socket), bpf_get_smp_processor_id()};
    struct sending zero = {};
    struct sending *sending = counted(&sendings, &place, &zero);
    if (sending) {
        __sync_fetch_and_add(&sending->packets, 1);
        if ((__u64)result > sending->largest)
            sending->largest = result;
    }
    return 0;
}

INLINE struct softirq_time *softirq_time(__u64 vector) {
    __u32 only = 0;
    if ((__u32)vector != NET_RX_SOFTIRQ && (__u32)vector != NET_TX_SOFTIRQ)
        return 0;
    return bpf_map_lookup_elem(&softirqs, &only);
}

// A CPU runs one softirq at a time, so NET_RX and NET_TX never interrupt each other.
SEC("tp_btf/softirq_entry")
int softirq_begins(__u64 *arguments) {
    struct softirq_time *time = softirq_time(arguments[0]);
    if (time)
        time->began = bpf_ktime_get_ns();
    return 0;
}

SEC("tp_btf/softirq_exit")
int softirq_ends(__u64 *arguments) {
    struct softirq_time *time = softirq_time(arguments[0]);
    if (time && time->began) {
        time->total += bpf_ktime_get_ns() - time->began;
        time->began = 0;
    }
    return 0;
}

char _license[] SEC("license") = "Dual MIT/GPL";
