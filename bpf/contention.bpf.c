// Sums the time spent waiting for kernel locks, by call stack, kind of lock and CPU. The programs
// change nothing.
//
// Tracepoints (include/trace/events/lock.h, Linux 5.19 to 6.18): contention_begin before the wait,
// if another owner holds the lock, and contention_end after the wait. The stack trace, the most
// expensive step, is taken at contention_begin, when the waiter has nothing else to do. At
// contention_end the waiter usually holds the lock, and others can be waiting for it.

#include <linux/bpf.h>

#include "kernel.h"

// Kinds of locks (include/trace/events/lock.h, since 5.19).
#define LCB_F_SPIN 1
#define LCB_F_MUTEX 32

// The most frames of a stack trace.
#define FRAMES 32

// Limit of nested waits: a thread, a softirq, an interrupt and an NMI can each wait for an rwlock,
// and within it for the rwlock's spinlock.
#define DEEPEST 8

struct wait {
    __u64 lock;
    __u64 begin;
    // Time of the waits nested in this wait, ns. They are counted separately.
    __u64 within;
    __s32 stack;
    __u32 flags;
};

struct waits {
    __u64 depth;
    struct wait at[DEEPEST];
};

// Waits that spin, per CPU, because a spinning waiter stays on its CPU.
struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct waits);
} spinning SEC(".maps");

// Waits that sleep, by thread id, because a sleeping waiter can wake up on another CPU.
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 8192);
    __type(key, __u32);
    __type(value, struct waits);
} sleeping SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_STACK_TRACE);
    __uint(max_entries, 16384);
    __uint(key_size, sizeof(__u32));
    __uint(value_size, FRAMES * sizeof(__u64));
} stacks SEC(".maps");

// Keys contain the CPU, so that two CPUs never update the same value.
struct place {
    // Id in `stacks`; -1 if bpf_get_stackid failed.
    __s32 stack;
    __u32 flags;
    __u32 cpu;
    __u32 unused;
};

struct waited {
    __u64 waits;
    __u64 nanoseconds;
    __u64 longest;
};

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 32768);
    __type(key, struct place);
    __type(value, struct waited);
} places SEC(".maps");

// Losses because a map was full or more than DEEPEST waits were nested.
struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u64);
} missed SEC(".maps");

INLINE void miss(void) {
    __u32 only = 0;
    __u64 *count = bpf_map_lookup_elem(&missed, &only);
    if (count)
        *count += 1;
}

// A mutex waiter can spin and sleep by turns, so its wait belongs to the thread, not to the CPU.
INLINE int stays_on_cpu(__u32 flags) {
    return (flags & (LCB_F_SPIN | LCB_F_MUTEX)) == LCB_F_SPIN;
}

INLINE struct waits *of_thread(int make) {
    __u32 thread = bpf_get_current_pid_tgid();
    struct waits *waits = bpf_map_lookup_elem(&sleeping, &thread);
    if (waits || !make)
        return waits;
    struct waits none = {};
    bpf_map_update_elem(&sleeping, &thread, &none, BPF_NOEXIST);
    return bpf_map_lookup_elem(&sleeping, &thread);
}

INLINE struct waits *of_cpu(void) {
    __u32 only = 0;
    return bpf_map_lookup_elem(&spinning, &only);
}

SEC("tp_btf/contention_begin")
int begins(__u64 *arguments) {
    __u64 lock = arguments[0];
    __u32 flags = arguments[1];
    int stays = stays_on_cpu(flags);
    struct waits *waits = stays ? of_cpu() : of_thread(1);
    if (!waits) {
        miss();
        return 0;
    }
    __u64 depth = waits->depth;
#pragma unroll
    for (int i = 0; i < DEEPEST; i++) {
        struct wait *before = &waits->at[i];
        if ((__u64)i >= depth || before->lock != lock)
            continue;
        if (!stays) {
            // The next phase of the same wait. The wait counts as spinning only if it never sleeps.
            if (!(flags & LCB_F_SPIN))
                before->flags = flags;
            return 0;
        }
        // A CPU cannot spin for the same lock twice. The end of the first wait was missed, and also
        // the ends of the waits nested in it.
        depth = i;
    }
    if (depth >= DEEPEST) {
        miss();
        depth = 0;
    }
    struct wait *wait = &waits->at[depth & (DEEPEST - 1)];
    wait->lock = lock;
    wait->flags = flags;
    wait->within = 0;
    wait->stack = bpf_get_stackid(arguments, &stacks, 0);
    waits->depth = depth + 1;
    wait->begin = bpf_ktime_get_ns();
    return 0;
}

INLINE void count(const struct wait *wait, __u64 nanoseconds) {
    struct place place = {
        .stack = wait->stack < 0 ? -1 : wait->stack,
        .flags = wait->flags,
        .cpu = bpf_get_smp_processor_id(),
    };
    struct waited *waited = bpf_map_lookup_elem(&places, &place);
    if (!waited) {
        struct waited none = {};
        bpf_map_update_elem(&places, &place, &none, BPF_NOEXIST);
        waited = bpf_map_lookup_elem(&places, &place);
        if (!waited) {
            miss();
            return;
        }
    }
    waited->waits += 1;
    waited->nanoseconds += nanoseconds;
    if (nanoseconds > waited->longest)
        waited->longest = nanoseconds;
}

// Ends the innermost wait for the lock. Returns whether there was such a wait.
INLINE int end(struct waits *waits, __u64 lock, __u64 now) {
    __u64 depth = waits->depth;
#pragma unroll
    for (int i = DEEPEST - 1; i >= 0; i--) {
        struct wait *wait = &waits->at[i];
        if ((__u64)i >= depth || wait->lock != lock)
            continue;
        __u64 whole = now - wait->begin;
        waits->depth = i;
        if (i > 0)
            waits->at[i - 1].within += whole;
        count(wait, whole > wait->within ? whole - wait->within : 0);
        return 1;
    }
    return 0;
}

SEC("tp_btf/contention_end")
int ends(__u64 *arguments) {
    __u64 now = bpf_ktime_get_ns();
    __u64 lock = arguments[0];
    struct waits *waits = of_cpu();
    if (waits && waits->depth && end(waits, lock, now))
        return 0;
    waits = of_thread(0);
    if (!waits || !end(waits, lock, now))
        return 0;
    if (!waits->depth) {
        __u32 thread = bpf_get_current_pid_tgid();
        bpf_map_delete_elem(&sleeping, &thread);
    }
    return 0;
}

char _license[] SEC("license") = "Dual MIT/GPL";
