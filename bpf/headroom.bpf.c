// CPU time of one UDP service by the number of datagrams that were handled together: what a batch takes less as it grows shows
// what a datagram takes when batches are full. Looks at nothing of a datagram's content, and changes nothing.
//
// A CPU's busy period begins when a thread of the service runs, or with a softirq before, and ends when the last of these threads
// sleeps: other processes are as idle time. Each period has softirq time with the datagrams that came, and other time with
// the datagrams that were read. A thread's batch is what it does from one sleep to the next.
//
// The tracepoints are those of include/trace/events/irq.h, sched.h and sock.h, Linux 6.3 to 6.18.

#include <linux/bpf.h>
#include <linux/in.h>

#include "kernel.h"

// Longer pauses between softirqs outside of the service's threads end a period, and so do longer ones until such a thread runs.
#define PAUSE_NS 3000
#define WAKE_NS 20000

// Processes of a priority this much lower give way to the service: nine times the weight (sched_prio_to_weight).
#define LOWER_PRIORITY 10

// A longer busy period, and a longer batch of a thread, is counted in parts.
#define LONGEST_NS 10000000

struct task_struct {
    int pid;
    int tgid;
    int static_prio;
    char comm[16];
} __attribute__((preserve_access_index));

struct sk_buff {
    unsigned int truesize;
} __attribute__((preserve_access_index));

struct sk_buff_head {
    struct sk_buff *prev;
} __attribute__((preserve_access_index));

struct sock_common {
    __u16 skc_num;
    possible_net_t skc_net;
} __attribute__((preserve_access_index));

struct sock {
    struct sock_common __sk_common;
    struct sk_buff_head sk_receive_queue;
    __u16 sk_protocol;
    int sk_rcvbuf;
} __attribute__((preserve_access_index));

// Set before the programs are loaded: inode of the network namespace, and the port.
const volatile __u32 network = 0;
const volatile __u16 port = 0;

// Batches by their number of datagrams: each up to 15, then four classes each octave. trace/src/headroom/program.rs reads
// all that follows.
#define CLASSES 56

struct batches {
    __u64 batches;
    __u64 packets;
    __u64 ns;
    // Runs of these programs, which took a part of the time.
    __u64 runs;
};

struct cpu {
    __u64 softirq_ns;
    __u64 service_ns;
    // Other processes, and of these those that give way.
    __u64 other_ns;
    __u64 yielding_ns;
    __u64 arrivals;
    __u64 reads;
    // Of every 64th datagram that came: how many, what they took of a socket's buffer, and the smallest buffer.
    __u64 sized;
    __u64 truesize;
    __u64 buffer;
    struct batches softirq[CLASSES];
    struct batches service[CLASSES];
    // Of the busy period; a begin of zero: there is none.
    __u64 begin;
    __u64 period_softirq;
    __u64 period_other;
    __u64 softirq_begin;
    __u64 softirq_end;
    __u64 all_softirq;
    // Of the thread that runs: when it began, and the softirq time then, of all and of the period.
    __u64 turn_begin;
    __u64 turn_all_softirq;
    __u64 turn_softirq;
    // Whether it is of the service; whether one of these waits for the CPU.
    __u32 is_inside;
    __u32 is_preempted;
    __u32 priority;
    __u32 is_net;
    __u32 period_arrivals;
    __u32 period_reads;
    __u32 softirq_runs;
    __u32 service_runs;
};

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct cpu);
} cpus SEC(".maps");

// Threads of processes that read the port's datagrams.
struct thread {
    __u32 tgid;
    __u32 is_reader;
    __u64 comm[2];
    __u64 ns;
    __u64 reads;
    // Since it slept.
    __u64 batch_ns;
    __u64 batch_reads;
    __u64 batch_runs;
    struct batches batches[CLASSES];
};

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 4096);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, __u32);
    __type(value, struct thread);
} threads SEC(".maps");

// What a thread begins as: more than fits on a program's stack.
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct thread);
} blank SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 1024);
    __type(key, __u32);
    __type(value, __u32);
} processes SEC(".maps");

INLINE struct cpu *this_cpu(void) {
    __u32 only = 0;
    return bpf_map_lookup_elem(&cpus, &only);
}

INLINE struct thread *known_thread(__u32 tid) {
    struct thread *thread = bpf_map_lookup_elem(&threads, &tid);
    if (thread)
        return thread;
    __u32 only = 0;
    struct thread *zero = bpf_map_lookup_elem(&blank, &only);
    if (!zero)
        return 0;
    bpf_map_update_elem(&threads, &tid, zero, BPF_NOEXIST);
    return bpf_map_lookup_elem(&threads, &tid);
}

INLINE int is_asked_for(struct sock *socket) {
    return socket && socket->sk_protocol == IPPROTO_UDP && socket->__sk_common.skc_num == port &&
           socket->__sk_common.skc_net.net->ns.inum == network;
}

INLINE void count(struct batches *classes, __u64 packets, __u64 ns, __u64 runs) {
    __u64 octave = 0, rest = packets;
    for (int bit = 0; bit < 16 && rest >= 8; bit++) {
        rest >>= 1;
        octave++;
    }
    __u64 class = packets < 16 ? packets : 16 + (octave - 2) * 4 + rest % 4;
    if (class >= CLASSES)
        class = CLASSES - 1;
    struct batches *of = &classes[class];
    of->batches++;
    of->packets += packets;
    of->ns += ns;
    of->runs += runs;
}

INLINE __u64 difference(__u64 whole, __u64 part) {
    return whole > part ? whole - part : 0;
}

INLINE void period_ends(struct cpu *cpu, __u64 now) {
    __u64 service = difference(difference(now, cpu->begin), cpu->period_softirq + cpu->period_other);
    count(cpu->softirq, cpu->period_arrivals, cpu->period_softirq, cpu->softirq_runs);
    count(cpu->service, cpu->period_reads, service, cpu->service_runs);
    cpu->softirq_ns += cpu->period_softirq;
    cpu->service_ns += service;
    cpu->arrivals += cpu->period_arrivals;
    cpu->reads += cpu->period_reads;
    cpu->begin = cpu->period_softirq = cpu->period_other = cpu->turn_softirq = 0;
    cpu->period_arrivals = cpu->period_reads = cpu->softirq_runs = cpu->service_runs = cpu->is_preempted = 0;
}

SEC("tp_btf/softirq_entry")
int softirq_begins(__u64 *arguments) {
    __u64 now = bpf_ktime_get_ns();
    struct cpu *cpu = this_cpu();
    if (!cpu)
        return 0;
    if (!cpu->is_inside) {
        if (cpu->begin && !cpu->is_preempted && now - cpu->softirq_end > PAUSE_NS)
            period_ends(cpu, cpu->softirq_end);
        if (!cpu->begin)
            cpu->begin = now;
    }
    cpu->softirq_runs++;
    cpu->is_net = arguments[0] == NET_RX_SOFTIRQ || arguments[0] == NET_TX_SOFTIRQ;
    cpu->softirq_begin = now;
    return 0;
}

SEC("tp_btf/softirq_exit")
int softirq_ends(void *arguments) {
    (void)arguments;
    struct cpu *cpu = this_cpu();
    if (!cpu || !cpu->softirq_begin)
        return 0;
    __u64 now = bpf_ktime_get_ns();
    cpu->softirq_runs++;
    cpu->all_softirq += now - cpu->softirq_begin;
    if (cpu->is_net)
        cpu->period_softirq += now - cpu->softirq_begin;
    cpu->softirq_begin = 0;
    cpu->softirq_end = now;
    return 0;
}

// The turn of a thread of the service ends; whether it sleeps.
INLINE int turn_ends(struct cpu *cpu, struct task_struct *task, __u64 now, int sleeps) {
    struct thread *thread = known_thread(task->pid);
    if (!thread)
        return sleeps;
    if (!thread->tgid) {
        thread->tgid = task->tgid;
        char *name = (char *)thread->comm;
#pragma unroll
        for (int at = 0; at < 16; at++)
            name[at] = task->comm[at];
    }
    cpu->priority = task->static_prio;
    __u64 own = difference(now - cpu->turn_begin, cpu->all_softirq - cpu->turn_all_softirq);
    thread->ns += own;
    thread->batch_ns += own;
    thread->batch_runs++;
    if (!sleeps && thread->batch_ns < LONGEST_NS)
        return 0;
    count(thread->batches, thread->batch_reads, thread->batch_ns, thread->batch_runs);
    thread->batch_ns = thread->batch_reads = thread->batch_runs = 0;
    return sleeps;
}

// The turn of another thread ends.
INLINE void other_turn_ends(struct cpu *cpu, struct task_struct *task, __u64 now) {
    __u64 own = difference(now - cpu->turn_begin, cpu->all_softirq - cpu->turn_all_softirq);
    __u64 from = cpu->begin > cpu->turn_begin ? cpu->begin : cpu->turn_begin;
    __u64 in_period = difference(now - from, cpu->period_softirq - cpu->turn_softirq);
    // A thread of NAPI does the work of a softirq.
    if (task->comm[0] == 'n' && task->comm[1] == 'a' && task->comm[2] == 'p' && task->comm[4] == '/') {
        if (!cpu->begin)
            cpu->begin = cpu->turn_begin;
        cpu->period_softirq += own;
        cpu->softirq_end = now;
        return;
    }
    cpu->other_ns += own;
    if (cpu->priority && (__u32)task->static_prio >= cpu->priority + LOWER_PRIORITY)
        cpu->yielding_ns += own;
    if (cpu->begin)
        cpu->period_other += in_period;
}

SEC("tp_btf/sched_switch")
int turn_changes(__u64 *arguments) {
    __u64 now = bpf_ktime_get_ns();
    struct cpu *cpu = this_cpu();
    struct task_struct *before = (void *)arguments[1], *next = (void *)arguments[2];
    if (!cpu)
        return 0;
    cpu->service_runs++;
    __u32 tgid = next->tgid;
    int next_is_inside = next->pid && bpf_map_lookup_elem(&processes, &tgid);
    if (cpu->is_inside) {
        int sleeps = turn_ends(cpu, before, now, !arguments[0] && (__u32)arguments[3]);
        if (!next_is_inside && cpu->begin) {
            if (sleeps)
                period_ends(cpu, now);
            else
                cpu->is_preempted = 1;
        }
    } else {
        if (before->pid && cpu->turn_begin)
            other_turn_ends(cpu, before, now);
        if (cpu->begin && !cpu->is_preempted && now - cpu->softirq_end > WAKE_NS)
            period_ends(cpu, cpu->softirq_end);
    }
    if (cpu->begin && now - cpu->begin > LONGEST_NS)
        period_ends(cpu, now);
    if (next_is_inside) {
        if (!cpu->begin)
            cpu->begin = now;
        cpu->is_preempted = 0;
    }
    cpu->is_inside = next_is_inside;
    cpu->turn_begin = now;
    cpu->turn_all_softirq = cpu->all_softirq;
    cpu->turn_softirq = cpu->period_softirq;
    return 0;
}

SEC("tp_btf/sk_data_ready")
int arrives(__u64 *arguments) {
    struct sock *socket = (void *)arguments[0];
    struct cpu *cpu = this_cpu();
    if (!cpu || !is_asked_for(socket))
        return 0;
    cpu->softirq_runs++;
    if (cpu->period_arrivals++ % 64)
        return 0;
    struct sk_buff *last = socket->sk_receive_queue.prev;
    __u32 truesize = last->truesize;
    if (!truesize || (void *)last == (void *)&socket->sk_receive_queue)
        return 0;
    cpu->sized++;
    cpu->truesize += truesize;
    if (!cpu->buffer || (__u64)socket->sk_rcvbuf < cpu->buffer)
        cpu->buffer = socket->sk_rcvbuf;
    return 0;
}

SEC("tp_btf/sock_recv_length")
int reads(__u64 *arguments) {
    struct sock *socket = (void *)arguments[0];
    int result = arguments[1], flags = arguments[2];
    struct cpu *cpu = this_cpu();
    if (!cpu || result < 0 || flags & MSG_PEEK || !is_asked_for(socket))
        return 0;
    cpu->service_runs++;
    cpu->period_reads++;
    __u64 ids = bpf_get_current_pid_tgid();
    __u32 tgid = ids >> 32, one = 1;
    if (!bpf_map_lookup_elem(&processes, &tgid))
        bpf_map_update_elem(&processes, &tgid, &one, BPF_NOEXIST);
    struct thread *thread = known_thread(ids);
    if (!thread)
        return 0;
    thread->is_reader = 1;
    thread->reads++;
    thread->batch_reads++;
    thread->batch_runs++;
    return 0;
}

// For trace/src/call.rs.
SEC("tp_btf/task_rename")
int nothing(void *arguments) {
    (void)arguments;
    return 0;
}

char _license[] SEC("license") = "Dual MIT/GPL";
