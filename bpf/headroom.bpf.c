// Measures the CPU time of one UDP service by batch size, which is the number of datagrams handled
// together. The time per datagram falls as batches grow, which shows the time per datagram in full
// batches. The programs read no payload and change nothing.
//
// A busy period of a CPU begins when a thread of the service runs, or with a softirq before it. It
// ends when a service thread sleeps and no other service thread runs next. Time of other processes
// is excluded. A period is one batch of NET_RX and NET_TX time, for the datagrams that arrived, and
// one batch of the other time (including other softirqs), for the datagrams that were read. A batch
// of a thread is its work from one sleep to the next.
//
// Tracepoints, Linux 6.3 to 6.18: include/trace/events/irq.h, sched.h and sock.h.

#include <linux/bpf.h>
#include <linux/in.h>

#include "kernel.h"

// While no service thread runs, a period ends with its last softirq if the next softirq begins more
// than PAUSE_NS later, or if the next scheduler switch comes more than WAKE_NS later. Shorter
// pauses belong to the period, also if the CPU is idle.
#define PAUSE_NS 3000
#define WAKE_NS 20000

// Processes with a static priority this much lower yield to the service, whose scheduler weight is
// nine times theirs (sched_prio_to_weight).
#define LOWER_PRIORITY 10

// Busy periods and thread batches that last longer are counted in parts.
#define LONGEST_NS 10000000

// Set before the programs are loaded: inode of the network namespace, and port in host byte order.
const volatile __u32 network = 0;
const volatile __u16 port = 0;

// Size classes of batches: one per number of datagrams up to 15, then four per octave.
// trace/src/headroom/program.rs decodes the structs that follow.
#define CLASSES 56

struct batches {
    __u64 batches;
    __u64 packets;
    __u64 ns;
    // Program runs within `ns`.
    __u64 runs;
};

struct cpu {
    __u64 softirq_ns;
    __u64 service_ns;
    // Time of other processes, and the part of processes that yield (LOWER_PRIORITY).
    __u64 other_ns;
    __u64 yielding_ns;
    __u64 arrivals;
    __u64 reads;
    // Of the 1st, 65th, 129th ... arrival in each busy period: their number, the sum of their
    // truesize, the datagrams that GRO merged in them, and the last sk_rcvbuf, in bytes.
    __u64 sized;
    __u64 truesize;
    __u64 segments;
    __u64 buffer;
    struct batches softirq[CLASSES];
    struct batches service[CLASSES];
    // The busy period: its begin (zero if there is none), its NET_RX and NET_TX time, and its time
    // of other processes. Then the begin of the running softirq, the end of the last softirq, and
    // the time of all softirqs so far.
    __u64 begin;
    __u64 period_softirq;
    __u64 period_other;
    __u64 softirq_begin;
    __u64 softirq_end;
    __u64 all_softirq;
    // The running thread's turn: its begin, and all_softirq and period_softirq at that time.
    __u64 turn_begin;
    __u64 turn_all_softirq;
    __u64 turn_softirq;
    // Whether the running thread belongs to the service, and whether a service thread is preempted.
    __u32 is_inside;
    __u32 is_preempted;
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

// The static priority of the service thread that ran last, 0 before.
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u32);
} service_priority SEC(".maps");

// A thread of a process that reads datagrams of the port.
struct thread {
    __u32 tgid;
    __u32 unused;
    __u64 comm[2];
    __u64 reads;
    // Reads that found no datagram.
    __u64 empty_reads;
    // Since its last sleep.
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

// The initial value of a thread, which is larger than the stack of a BPF program.
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

// Ends the turn of a service thread. Returns whether the thread sleeps.
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
    __u32 only = 0, priority = task->static_prio;
    __u32 *known_priority = bpf_map_lookup_elem(&service_priority, &only);
    if (known_priority && *known_priority != priority)
        *known_priority = priority;
    __u64 own = difference(now - cpu->turn_begin, cpu->all_softirq - cpu->turn_all_softirq);
    thread->batch_ns += own;
    thread->batch_runs++;
    if (!sleeps && thread->batch_ns < LONGEST_NS)
        return 0;
    count(thread->batches, thread->batch_reads, thread->batch_ns, thread->batch_runs);
    thread->batch_ns = thread->batch_reads = thread->batch_runs = 0;
    return sleeps;
}

// Ends the turn of a thread outside of the service.
INLINE void other_turn_ends(struct cpu *cpu, struct task_struct *task, __u64 now) {
    __u64 own = difference(now - cpu->turn_begin, cpu->all_softirq - cpu->turn_all_softirq);
    __u64 from = cpu->begin > cpu->turn_begin ? cpu->begin : cpu->turn_begin;
    __u64 in_period = difference(now - from, cpu->period_softirq - cpu->turn_softirq);
    // A NAPI thread does the work of NET_RX, so its time counts as softirq time.
    if (task->comm[0] == 'n' && task->comm[1] == 'a' && task->comm[2] == 'p' && task->comm[4] == '/') {
        if (!cpu->begin)
            cpu->begin = cpu->turn_begin;
        cpu->period_softirq += own;
        cpu->softirq_end = now;
        return;
    }
    cpu->other_ns += own;
    __u32 only = 0, *priority = bpf_map_lookup_elem(&service_priority, &only);
    if (priority && *priority && (__u32)task->static_prio >= *priority + LOWER_PRIORITY)
        cpu->yielding_ns += own;
    if (cpu->begin)
        cpu->period_other += in_period;
}

INLINE void turn_begins(struct cpu *cpu, __u64 now) {
    cpu->turn_begin = now;
    cpu->turn_all_softirq = cpu->all_softirq;
    cpu->turn_softirq = cpu->period_softirq;
}

SEC("tp_btf/softirq_entry")
int softirq_begins(__u64 *arguments) {
    __u64 now = bpf_ktime_get_ns();
    struct cpu *cpu = this_cpu();
    if (!cpu)
        return 0;
    if (!cpu->is_inside) {
        struct task_struct *task = bpf_get_current_task_btf();
        // The turn of a busy program may be longer than a measurement.
        if (task->pid) {
            if (cpu->turn_begin)
                other_turn_ends(cpu, task, now);
            turn_begins(cpu, now);
        }
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
            // The CPU idles if the thread moved to another CPU, or its quota is used up.
            if (sleeps || !next->pid)
                period_ends(cpu, now);
            else
                cpu->is_preempted = 1;
        }
    } else {
        if (before->pid && cpu->turn_begin)
            other_turn_ends(cpu, before, now);
        if (cpu->begin && !cpu->is_preempted && now - cpu->softirq_end > WAKE_NS)
            period_ends(cpu, cpu->softirq_end);
        // If the CPU idles, the preempted thread does not wait here any more.
        if (cpu->begin && cpu->is_preempted && !next->pid)
            period_ends(cpu, now);
    }
    if (cpu->begin && now - cpu->begin > LONGEST_NS)
        period_ends(cpu, now);
    if (next_is_inside) {
        if (!cpu->begin)
            cpu->begin = now;
        cpu->is_preempted = 0;
    }
    cpu->is_inside = next_is_inside;
    turn_begins(cpu, now);
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
    struct skb_shared_info *shared = (void *)(last->head + last->end);
    __u16 segments = BPF_CORE_READ(shared, gso_segs);
    cpu->sized++;
    cpu->truesize += truesize;
    cpu->segments += segments ? segments : 1;
    cpu->buffer = socket->sk_rcvbuf;
    return 0;
}

SEC("tp_btf/sock_recv_length")
int reads(__u64 *arguments) {
    struct sock *socket = (void *)arguments[0];
    int result = arguments[1], flags = arguments[2];
    struct cpu *cpu = this_cpu();
    // Empty reads (result < 0) count as runs of the thread; reads of the error queue do not.
    if (!cpu || flags & (MSG_PEEK | MSG_ERRQUEUE) || !is_asked_for(socket))
        return 0;
    __u64 ids = bpf_get_current_pid_tgid();
    __u32 tid = ids, tgid = ids >> 32, one = 1;
    cpu->service_runs++;
    if (result < 0) {
        struct thread *reader = bpf_map_lookup_elem(&threads, &tid);
        if (reader) {
            reader->empty_reads++;
            reader->batch_runs++;
        }
        return 0;
    }
    cpu->period_reads++;
    if (!bpf_map_lookup_elem(&processes, &tgid))
        bpf_map_update_elem(&processes, &tgid, &one, BPF_NOEXIST);
    if (!cpu->is_inside) {
        // Running since before its process was known.
        __u64 now = bpf_ktime_get_ns();
        cpu->is_inside = 1;
        if (!cpu->begin)
            cpu->begin = now;
        turn_begins(cpu, now);
    }
    struct thread *thread = known_thread(tid);
    if (!thread)
        return 0;
    thread->reads++;
    thread->batch_reads++;
    thread->batch_runs++;
    return 0;
}

EMPTY_PROGRAM

char _license[] SEC("license") = "Dual MIT/GPL";
