// Charges the time of each CPU to its current context: an interrupt, a softirq, a thread or idle.
// Nested time counts once, for the innermost context. The programs change nothing and read no
// packet data.
//
// There are three levels. Interrupts run with interrupts disabled. Softirqs run one at a time per
// CPU; an interrupt can interrupt a softirq and also these programs. A thread's turn ends with
// interrupts disabled and never within a softirq. (PREEMPT_RT switches threads within softirqs;
// user space refuses such kernels.) Each level writes its own counters and only reads the counters
// of the levels above, so the updates need not be atomic. The time of a level is the elapsed time
// minus the time of the levels above. If an interrupt adds time between two reads in one program
// run, the next run counts this time. A difference can therefore be negative for a moment, but sums
// are correct. Exception: a driver may call netif_rx in an interrupt, and packet counters can then
// lose a count.
//
// Tracepoints, Linux 5.11 to 6.18: include/trace/events/irq.h, napi.h and sched.h. Interrupts of
// the architecture: arch/x86/include/asm/trace/irq_vectors.h and include/trace/events/ipi.h.
// Packets: include/trace/events/net.h and xdp.h.

#include "cost.h"
#include "cost_packets.h"

INLINE __u64 all_irqs(struct state *state, __u64 now) {
    __u64 irqs = state->irq[FOR_PACKETS] + state->irq[FOR_OTHERS];
    return state->irq_depth ? irqs + now - state->irq_begin : irqs;
}

// Sums all times until now, including the interrupt and the softirq that are running.
INLINE void add_up(struct state *state, __u64 now, struct totals *totals) {
    totals->irq[FOR_PACKETS] = state->irq[FOR_PACKETS] + state->moved;
    totals->irq[FOR_OTHERS] = state->irq[FOR_OTHERS] - state->moved;
    totals->softirq[RX] = state->softirq[RX];
    totals->softirq[TX] = state->softirq[TX];
    totals->softirq[OTHER] = state->softirq[OTHER];
    totals->own_call = state->own_call;
#pragma unroll
    for (int source = 0; source < IRQ_SOURCES; source++) {
        totals->interrupts[FOR_PACKETS][source] = state->irqs[FOR_PACKETS][source] + state->moved_irqs[source];
        totals->interrupts[FOR_OTHERS][source] = state->irqs[FOR_OTHERS][source] - state->moved_irqs[source];
    }
    if (state->irq_depth) {
        if (state->irq_kind == FOR_PACKETS)
            totals->irq[FOR_PACKETS] += now - state->irq_begin;
        else
            totals->irq[FOR_OTHERS] += now - state->irq_begin;
    }
    if (state->softirq_runs) {
        __u64 ran = now - state->softirq_begin - (all_irqs(state, now) - state->softirq_irq);
        __u64 kind = state->softirq_runs - 1;
        if (kind == RX)
            totals->softirq[RX] += ran;
        else if (kind == TX)
            totals->softirq[TX] += ran;
        else
            totals->softirq[OTHER] += ran;
        if (state->softirq_is_own && kind != OTHER)
            totals->own_call += ran;
    }
}

// Interrupts.

INLINE void irq_begins(__u64 kind, __u64 source) {
    // Read the clock first: little of this program's time then counts for the interrupted thread.
    __u64 now = bpf_ktime_get_ns();
    struct state *state = watched();
    if (!state)
        return;
    state->irq_events++;
    if (state->irq_depth++)
        return;
    state->irq_kind = kind;
    state->irq_source = source;
    state->irq_counts = !state->softirq_runs;
    state->irq_begin = now;
}

INLINE void irq_ends(void) {
    struct state *state = watched();
    if (!state)
        return;
    state->irq_events++;
    if (!state->irq_depth || --state->irq_depth)
        return;
    __u64 now = bpf_ktime_get_ns();
    __u64 took = now - state->irq_begin;
    state->interrupts++;
    if (state->irq_kind == FOR_PACKETS)
        state->irq[FOR_PACKETS] += took;
    else
        state->irq[FOR_OTHERS] += took;
    state->last_irq_end = now;
    state->last_irq_ns = state->irq_kind == FOR_PACKETS ? 0 : took;
    state->last_irq_counts = state->irq_kind != FOR_PACKETS && state->irq_counts;
    // A local copy, so that the verifier sees the bounds check.
    __u64 source = state->irq_source;
    if (!state->irq_counts || source >= IRQ_SOURCES)
        return;
    if (state->irq_kind == FOR_PACKETS)
        state->irqs[FOR_PACKETS][source]++;
    else
        state->irqs[FOR_OTHERS][source]++;
}

SEC("tp_btf/irq_handler_entry")
int device_irq_begins(__u64 *arguments) {
    __u32 irq = arguments[0];
    int is_nic = irq < sizeof(nic_irqs) * 8 && nic_irqs[irq >> 3 & (sizeof(nic_irqs) - 1)] >> (irq & 7) & 1;
    irq_begins(is_nic ? FOR_PACKETS : FOR_OTHERS, BY_DEVICE);
    return 0;
}

SEC("tp_btf/irq_handler_exit")
int device_irq_ends(void *arguments) {
    (void)arguments;
    irq_ends();
    return 0;
}

// These interrupts have no interrupt number. Their tracepoints depend on the architecture. The
// loader skips programs whose tracepoint this kernel lacks.
#define OTHER_IRQ(name, source)                                                                                        \
    SEC("tp_btf/" #name "_entry")                                                                                      \
    int name##_begins(void *arguments) {                                                                               \
        (void)arguments;                                                                                               \
        irq_begins(FOR_OTHERS, source);                                                                                \
        return 0;                                                                                                      \
    }                                                                                                                  \
    SEC("tp_btf/" #name "_exit")                                                                                       \
    int name##_ends(void *arguments) {                                                                                 \
        (void)arguments;                                                                                               \
        irq_ends();                                                                                                    \
        return 0;                                                                                                      \
    }

OTHER_IRQ(local_timer, BY_TIMER)
OTHER_IRQ(call_function_single, BY_CPU)
OTHER_IRQ(call_function, BY_CPU)
OTHER_IRQ(reschedule, BY_CPU)
OTHER_IRQ(ipi, BY_CPU)

// Softirqs.

SEC("tp_btf/softirq_entry")
int softirq_begins(__u64 *arguments) {
    __u32 number = arguments[0];
    struct state *state = watched();
    if (!state)
        return 0;
    __u64 now = bpf_ktime_get_ns();
    __u64 kind = number == NET_RX_SOFTIRQ ? RX : number == NET_TX_SOFTIRQ ? TX : OTHER;
    __u64 irq_end = state->last_irq_end;
    state->softirq_events++;
    state->softirq_irq = state->irq[FOR_PACKETS] + state->irq[FOR_OTHERS];
    // The gap between an interrupt and the softirq that it raised counts for the softirq. A softirq
    // that directly follows another softirq keeps the cause of the first one.
    if (irq_end > state->softirq_end && irq_end > state->turn_begin && now - irq_end < AT_ONCE_NS) {
        state->softirq_is_own = 0;
        if (kind != OTHER) {
            __u64 source = state->irq_source;
            state->moved += state->last_irq_ns;
            if (state->last_irq_counts && source < IRQ_SOURCES)
                state->moved_irqs[source]++;
        }
        now = irq_end;
    } else if (state->softirq_end < state->turn_begin || now - state->softirq_end > AT_ONCE_NS / 2) {
        state->softirq_is_own = 1;
    }
    state->softirq_begin = now;
    state->poll_begin = now;
    state->poll_irq = state->softirq_irq;
    state->softirq_runs = kind + 1;
    if (by_path && kind == RX) {
        state->path_begin = now;
        state->path_irq = state->softirq_irq;
        state->path_events = state->softirq_events;
        state->path_in = 0;
    }
    return 0;
}

SEC("tp_btf/softirq_exit")
int softirq_ends(void *arguments) {
    (void)arguments;
    struct state *state = watched();
    if (!state)
        return 0;
    state->softirq_events++;
    if (!state->softirq_runs)
        return 0;
    __u64 now = bpf_ktime_get_ns();
    __u64 irqs = state->irq[FOR_PACKETS] + state->irq[FOR_OTHERS];
    __u64 ran = now - state->softirq_begin - (irqs - state->softirq_irq);
    __u64 kind = state->softirq_runs - 1;
    state->softirq_runs = 0;
    state->softirq_end = now;
    if (kind == RX) {
        if (by_path && state->path_in)
            charge_path(state, now);
        state->path_in = 0;
        state->rx_runs++;
        state->softirq[RX] += ran;
    } else if (kind == TX) {
        state->softirq[TX] += ran;
    } else {
        state->softirq[OTHER] += ran;
    }
    if (state->softirq_is_own && kind != OTHER)
        state->own_call += ran;
    state->poll_begin = now;
    state->poll_irq = irqs;
    return 0;
}

INLINE struct polled *polled(struct net_device *device) {
    struct place place = {.cpu = bpf_get_smp_processor_id()};
    if (device) {
        place.ifindex = device->ifindex;
        place.network = device->nd_net.net->ns.inum;
        place.is_device = 1;
    }
    struct polled *found = bpf_map_lookup_elem(&devices, &place);
    if (found)
        return found;
    struct polled new = {};
    if (device)
        copy_name(new.name, device->name);
    bpf_map_update_elem(&devices, &place, &new, BPF_NOEXIST);
    return bpf_map_lookup_elem(&devices, &place);
}

// Runs at the end of a NAPI poll. The poll began at the end of the previous poll, or with its
// softirq or its thread's turn.
SEC("tp_btf/napi_poll")
int poll_ends(__u64 *arguments) {
    struct napi_struct *napi = (void *)arguments[0];
    int packets = arguments[1], budget = arguments[2];
    struct state *state = watched();
    if (!state)
        return 0;
    state->softirq_events++;
    __u64 now = bpf_ktime_get_ns();
    __u64 irqs = state->irq[FOR_PACKETS] + state->irq[FOR_OTHERS];
    if (napi->dev)
        state->entered += kept_by_xdp(state, napi->dev, packets);
    state->poll_handed = state->handed;
    // Before BEGIN, the poll is not counted; only the begin of the next poll is set.
    if (!state->ready) {
        state->poll_begin = now;
        state->poll_irq = irqs;
        return 0;
    }
    struct polled *device = polled(napi->dev);
    int is_threaded = !state->softirq_runs;
    int is_busy = is_threaded && !(bpf_get_current_task_btf()->flags & PF_KTHREAD);
    if (device) {
        device->polls++;
        device->packets += packets;
        device->exhausted += budget > 0 && packets >= budget;
        device->busy += is_busy;
        if (!is_busy) {
            device->threaded += is_threaded;
            device->ns += now - state->poll_begin - (irqs - state->poll_irq);
        }
    } else {
        state->softirq_missed++;
    }
    if (is_busy)
        return 0;
    state->poll_begin = now;
    state->poll_irq = irqs;
    state->polls++;
    state->packets += packets;
    return 0;
}

// Turns of threads, from one scheduler switch to the next.

INLINE void subtract(struct totals *from, const struct totals *less) {
    from->softirq[RX] -= less->softirq[RX];
    from->softirq[TX] -= less->softirq[TX];
    from->softirq[OTHER] -= less->softirq[OTHER];
    from->irq[FOR_PACKETS] -= less->irq[FOR_PACKETS];
    from->irq[FOR_OTHERS] -= less->irq[FOR_OTHERS];
    from->own_call -= less->own_call;
#pragma unroll
    for (int source = 0; source < IRQ_SOURCES; source++) {
        from->interrupts[FOR_PACKETS][source] -= less->interrupts[FOR_PACKETS][source];
        from->interrupts[FOR_OTHERS][source] -= less->interrupts[FOR_OTHERS][source];
    }
}

INLINE void add(struct totals *to, const struct totals *more) {
    to->softirq[RX] += more->softirq[RX];
    to->softirq[TX] += more->softirq[TX];
    to->softirq[OTHER] += more->softirq[OTHER];
    to->irq[FOR_PACKETS] += more->irq[FOR_PACKETS];
    to->irq[FOR_OTHERS] += more->irq[FOR_OTHERS];
    to->own_call += more->own_call;
#pragma unroll
    for (int source = 0; source < IRQ_SOURCES; source++) {
        to->interrupts[FOR_PACKETS][source] += more->interrupts[FOR_PACKETS][source];
        to->interrupts[FOR_OTHERS][source] += more->interrupts[FOR_OTHERS][source];
    }
}

INLINE void charge(struct state *state, struct task_struct *task, __u64 on_cpu, const struct totals *taken) {
    struct thread key = {.tid = task->pid, .cpu = bpf_get_smp_processor_id()};
    struct turns *turns = bpf_map_lookup_elem(&threads, &key);
    if (!turns) {
        struct turns new = {};
        bpf_map_update_elem(&threads, &key, &new, BPF_NOEXIST);
        turns = bpf_map_lookup_elem(&threads, &key);
    }
    if (!turns) {
        state->missed++;
        return;
    }
    turns->on_cpu += on_cpu;
    add(&turns->taken, taken);
    turns->pid = task->tgid;
    turns->flags = task->flags;
    turns->cgroup = bpf_get_current_cgroup_id();
    copy_name(turns->comm, task->comm);
}

// Whether a kernel thread processes packets: ksoftirqd (which also runs other softirqs), and NAPI,
// backlog NAPI and cpumap threads. The names are those of kernel/softirq.c, net/core/dev.c and
// kernel/bpf/cpumap.c (Linux 6.18).
INLINE int is_of_packets(struct task_struct *task) {
    if (!(task->flags & PF_KTHREAD))
        return 0;
    const char *name = task->comm;
    return (name[0] == 'k' && name[1] == 's' && name[2] == 'o' && name[3] == 'f') ||
           (name[0] == 'n' && name[1] == 'a' && name[2] == 'p' && name[3] == 'i' && name[4] == '/') ||
           (name[0] == 'b' && name[1] == 'a' && name[2] == 'c' && name[3] == 'k' && name[4] == 'l') ||
           (name[0] == 'c' && name[1] == 'p' && name[2] == 'u' && name[3] == 'm' && name[4] == 'a');
}

INLINE int could_run_on(struct task_struct *task) {
    if (bpf_core_field_exists(task->__state))
        return !task->__state;
    return !((struct task_struct___old *)task)->state;
}

// Charges the time since the last scheduler switch or reading to the running thread.
INLINE void turn_ends(struct state *state, struct task_struct *task, __u64 now) {
    struct totals totals;
    add_up(state, now, &totals);
    struct totals taken = totals;
    subtract(&taken, &state->turn);
    __u64 on_cpu = now - state->turn_begin;
    __u64 packets = taken.softirq[RX] + taken.softirq[TX] + taken.irq[FOR_PACKETS];
    __u64 own = on_cpu - packets - taken.softirq[OTHER] - taken.irq[FOR_OTHERS];
    state->turn = totals;
    state->turn_begin = now;
    if (!task->pid) {
        state->idle += own;
        state->from_idle += packets;
        return;
    }
    state->tasks += own;
    charge(state, task, on_cpu, &taken);
    if (!is_of_packets(task))
        return;
    if (task->comm[1] != 's') // ksoftirqd
        state->packet_threads += own;
    if (!state->displaced)
        return;
    struct thread key = {.tid = state->displaced, .cpu = bpf_get_smp_processor_id()};
    struct turns *waits = bpf_map_lookup_elem(&threads, &key);
    if (waits)
        waits->displaced += packets + own;
}

SEC("tp_btf/sched_switch")
int turn_changes(__u64 *arguments) {
    struct task_struct *task = (void *)arguments[1], *next = (void *)arguments[2];
    struct state *state = watched();
    if (!state || !state->ready)
        return 0;
    __u64 now = bpf_ktime_get_ns();
    state->task_events++;
    turn_ends(state, task, now);
    // A thread that is still runnable waits if the next thread processes packets. A preempted
    // thread is runnable, also if it was about to sleep.
    if (!is_of_packets(next))
        state->displaced = 0;
    else if (!is_of_packets(task))
        state->displaced = arguments[0] || could_run_on(task) ? task->pid : 0;
    state->poll_begin = now;
    state->poll_irq = state->irq[FOR_PACKETS] + state->irq[FOR_OTHERS];
    return 0;
}

EMPTY_PROGRAM

// Commands of user space, which runs `look` on each CPU (BPF_PROG_TEST_RUN) and never attaches it.
// WATCH, before each attachment: observe this CPU. BEGIN: start counting. READ: write a reading.
// END: write a reading and stop counting. BEGIN writes a reading, too. INTERRUPT: do nothing; user
// space only needs the interrupt in which `look` runs on another CPU.
enum { WATCH, BEGIN, READ, END, INTERRUPT };

SEC("raw_tp/look")
int look(__u64 *arguments) {
    __u64 wanted = arguments[0];
    if (wanted == INTERRUPT)
        return 1;
    __u32 only = 0;
    struct state *state = bpf_map_lookup_elem(&states, &only);
    struct cpu_reading *reading = bpf_map_lookup_elem(&cpu_readings, &only);
    if (!state || !reading)
        return 0;
    __u64 now = bpf_ktime_get_ns();
    if (wanted == WATCH) {
        state->is_watched = 1;
        // Forget interrupts and softirqs whose end came while programs were detached. If `look`
        // runs in an interrupt whose begin was counted, irq_ends ignores the end of this interrupt.
        state->irq_depth = 0;
        state->softirq_runs = 0;
        state->displaced = 0;
        state->poll_handed = state->handed;
        return 1;
    }
    if (wanted == BEGIN) {
        add_up(state, now, &state->turn);
        state->turn_begin = now;
        state->poll_begin = now;
        state->poll_irq = state->irq[FOR_PACKETS] + state->irq[FOR_OTHERS];
        state->ready = 1;
    } else if (state->ready) {
        turn_ends(state, bpf_get_current_task_btf(), now);
    } else {
        return 0;
    }
    reading->at = now;
    reading->totals = state->turn;
    reading->idle = state->idle;
    reading->from_idle = state->from_idle;
    reading->tasks = state->tasks;
    reading->packet_threads = state->packet_threads;
    reading->rx_runs = state->rx_runs;
    reading->polls = state->polls;
    reading->packets = state->packets;
    reading->events = state->irq_events + state->softirq_events + state->task_events;
    reading->interrupts = state->interrupts;
    reading->missed = state->missed + state->softirq_missed;
    reading->irq_events = state->irq_events;
    reading->entered = state->entered;
    if (wanted == END)
        state->ready = 0;
    return 1;
}

char _license[] SEC("license") = "Dual MIT/GPL";
