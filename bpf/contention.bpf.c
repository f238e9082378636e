// Adds up the time spent waiting for the kernel's locks, by place of code, kind of lock and CPU. Looks only.
//
// The tracepoints are those of include/trace/events/lock.h, Linux 5.19 to 6.18: contention_begin where a lock is another's,
// before the wait; contention_end after it. All that costs time is done at the beginning, when there is nothing but waiting
// to do: at the end the lock is held, and others wait for it.

#include <linux/bpf.h>

#include "kernel.h"

// Kinds of locks (include/trace/events/lock.h, since 5.19).
#define LCB_F_SPIN 1
#define LCB_F_MUTEX 32

// As trace/src/contention/ reads it.
#define FRAMES 32

// Waits within waits: a thread's, that of a softirq on top of it, an interrupt's and an NMI's; an rwlock's waits for its
// spinlock in each.
#define DEEPEST 8

struct wait {
    __u64 lock;
    __u64 begin;
    // Time of waits within this one, which are counted by themselves.
    __u64 within;
    __s32 stack;
    __u32 flags;
};

struct waits {
    __u64 depth;
    struct wait at[DEEPEST];
};

// Who spins stays on the CPU.
struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct waits);
} spinning SEC(".maps");

// Who sleeps may wake up on another one.
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

// The CPU is in the key, so that no two add to the same number at a time.
struct place {
    // Negative: none was to be had.
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

// What no map had room for.
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

// A mutex may be spun for and slept for by turns, and is its thread's all that time.
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
            // The next turn of the same wait. It counts as spun for only if it was to its end.
            if (!(flags & LCB_F_SPIN))
                before->flags = flags;
            return 0;
        }
        // Nobody spins for a lock twice: that the first wait ended was missed, and so were those within it.
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

// Ends the innermost wait for the lock; whether there was one.
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
