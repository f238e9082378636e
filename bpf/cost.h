// Per-CPU state of the programs in cost.bpf.c, and the maps that user space reads.

#pragma once

#include <linux/bpf.h>

#include "kernel.h"

// From include/linux/sched.h.
#define PF_KTHREAD 0x00200000

// The longest time from the end of an interrupt to the softirq that it raised. The kernel runs only
// irq_exit_rcu in between.
#define AT_ONCE_NS 2000

// Before Linux 5.14, which renamed the field to __state.
struct task_struct___old {
    long state;
} __attribute__((preserve_access_index));

// Set before the programs are loaded: one bit per interrupt number, 1 for a network device.
const volatile __u8 nic_irqs[1024] = {};

// Set before the programs are loaded: whether to charge time to paths.
const volatile __u8 by_path = 0;

enum { FOR_PACKETS, FOR_OTHERS, IRQ_KINDS };
enum { RX, TX, OTHER, SOFTIRQ_KINDS };
// The source of an interrupt. The interrupt's time outside of its tracepoints depends on the source
// (trace/src/cost/untraced_time.rs).
enum { BY_TIMER, BY_CPU, BY_DEVICE, IRQ_SOURCES };

// Sums in ns since the programs were loaded. trace/src/cost/cost_tables.rs decodes this struct.
struct totals {
    __u64 softirq[SOFTIRQ_KINDS];
    __u64 irq[IRQ_KINDS];
    // The part of RX and TX that did not follow an interrupt: softirqs at the end of a thread's own
    // system call, and softirqs in ksoftirqd.
    __u64 own_call;
    // Number of interrupts that did not interrupt a softirq.
    __u64 interrupts[IRQ_KINDS][IRQ_SOURCES];
};

// The counters of a CPU. The program `look` writes them when user space requests a reading.
struct cpu_reading {
    __u64 at;
    struct totals totals;
    __u64 idle;
    __u64 from_idle;
    __u64 tasks;
    // The part of `tasks` that threads of NAPI, of the backlog and of cpumap took, for packets.
    __u64 packet_threads;
    __u64 rx_runs;
    __u64 polls;
    __u64 packets;
    __u64 events;
    __u64 interrupts;
    // Turns, polls and paths that were not charged because their map was full.
    __u64 missed;
    // The part of `events` (program runs) at interrupt tracepoints.
    __u64 irq_events;
    // Packets that entered the host on this CPU (cost_packets.h).
    __u64 entered;
};

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct cpu_reading);
} cpu_readings SEC(".maps");

struct state {
    __u64 is_watched;

    // Written at interrupt tracepoints.
    __u64 irq[IRQ_KINDS];
    __u64 irq_events;
    __u64 interrupts;
    __u64 irq_begin;
    __u64 irq_depth;
    __u64 irq_kind;
    __u64 irq_source;
    __u64 irq_counts;
    __u64 last_irq_end;
    __u64 last_irq_ns;
    __u64 last_irq_counts;
    __u64 irqs[IRQ_KINDS][IRQ_SOURCES];

    // Written at softirq, NAPI and packet tracepoints.
    __u64 softirq[SOFTIRQ_KINDS];
    __u64 own_call;
    // Time and number of the interrupts that count as FOR_OTHERS but raised NET_RX or NET_TX.
    __u64 moved;
    __u64 moved_irqs[IRQ_SOURCES];
    __u64 softirq_events;
    __u64 softirq_begin;
    // Sum of all interrupt time when the softirq began.
    __u64 softirq_irq;
    // Kind of the running softirq plus 1; zero if no softirq runs.
    __u64 softirq_runs;
    __u64 softirq_is_own;
    __u64 softirq_end;
    __u64 rx_runs;
    __u64 polls;
    __u64 packets;
    // Begin of the current NAPI poll, and the sum of all interrupt time then.
    __u64 poll_begin;
    __u64 poll_irq;
    // Packets that entered the host. Then sk_buffs that polls passed to the network stack: up to
    // the end of the last poll, and up to now.
    __u64 entered;
    __u64 poll_handed;
    __u64 handed;
    __u64 softirq_missed;

    // Written at scheduler switches and by `look`. A turn is the time from one switch to the next.
    __u64 ready;
    __u64 task_events;
    __u64 turn_begin;
    struct totals turn;
    __u64 idle;
    __u64 from_idle;
    __u64 tasks;
    __u64 packet_threads;
    __u64 missed;
    // The runnable thread that a packet-processing thread preempted; zero if there is none.
    __u64 displaced;

    // Written in NET_RX: the path of the current packet, and the state when its time began. path_in
    // is zero before the first packet of a softirq.
    __u64 path_begin;
    __u64 path_irq;
    __u32 path_in;
    __u32 path_out;
    __u32 path_network;
    __u32 path_is_entry;
    __u64 path_entered;
    __u64 path_events;
};

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct state);
} states SEC(".maps");

// Keys contain the CPU, so that two CPUs never update the same value.
struct thread {
    __u32 tid;
    __u32 cpu;
};

struct turns {
    __u64 on_cpu;
    struct totals taken;
    // Time of packet-processing threads while this thread was runnable and waited for them.
    __u64 displaced;
    __u64 cgroup;
    __u64 comm[2];
    __u32 pid;
    __u32 flags;
};

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 16384);
    __type(key, struct thread);
    __type(value, struct turns);
} threads SEC(".maps");

struct place {
    __u32 ifindex;
    __u32 network;
    __u32 cpu;
    __u32 is_device;
};

struct polled {
    __u64 ns;
    __u64 polls;
    __u64 threaded;
    __u64 busy;
    __u64 packets;
    __u64 exhausted;
    __u64 name[2];
};

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 8192);
    __type(key, struct place);
    __type(value, struct polled);
} devices SEC(".maps");

// A path through this host: ifindex of the device that received a packet, and of the last device
// that sent it (zero if the packet stayed). `network` is the inode of the receiver's network
// namespace.
struct path {
    __u32 in;
    __u32 out;
    __u32 network;
    __u32 cpu;
    // Whether its packets enter the host at `in`. Otherwise, another device received them before.
    __u32 is_entry;
    __u32 unused;
};

struct path_cost {
    __u64 ns;
    __u64 packets;
    // Program runs within `ns`.
    __u64 events;
};

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 8192);
    __type(key, struct path);
    __type(value, struct path_cost);
} paths SEC(".maps");

INLINE struct state *watched(void) {
    __u32 only = 0;
    struct state *state = bpf_map_lookup_elem(&states, &only);
    return state && state->is_watched ? state : 0;
}

// Copies all 16 bytes. User space cuts the name at its NUL.
INLINE void copy_name(__u64 *to, const char *from) {
    char *name = (char *)to;
#pragma unroll
    for (int at = 0; at < 16; at++)
        name[at] = from[at];
}
