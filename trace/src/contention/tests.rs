//! Real locks of the running kernel, and captured stacks.

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustix::thread::{CpuSet as Cpus, sched_setaffinity};

use super::callers::callers;
use super::program::{ContentionCounts, WaitPlace};
use super::*;
use crate::error::skip_unless_permitted;
use linerate_testkit::skip;

/// The waits on these CPUs while each of two CPUs repeats `work`. Prints the reason and returns
/// `None` if that is not possible here.
fn observe_on(test: &str, cpus: &[u32], work: &(dyn Fn() + Sync)) -> Option<LockContention> {
    if thread::available_parallelism().map_or(1, std::num::NonZero::get) < 2 {
        skip(test, "requires two CPUs");
        return None;
    }
    let over = AtomicBool::new(false);
    let repeat = |cpu: usize| {
        let mut cpus = Cpus::new();
        cpus.set(cpu);
        sched_setaffinity(None, &cpus).expect("pinned");
        while !over.load(Ordering::Relaxed) {
            work();
        }
    };
    let result = thread::scope(|scope| {
        for cpu in 0..2 {
            let repeat = &repeat;
            scope.spawn(move || repeat(cpu));
        }
        let duration = Duration::from_millis(700);
        let result = LockContention::observe(&Host::live(), duration, Some(cpus), &|| false);
        over.store(true, Ordering::Relaxed);
        result
    });
    skip_unless_permitted(test, result)
}

#[test]
fn mutex_waits_are_observed_only_on_the_requested_cpus() {
    let test = "mutex_waits_are_observed_only_on_the_requested_cpus";
    let (_out, into) = std::io::pipe().expect("a pipe");
    rustix::io::ioctl_fionbio(&into, true).expect("set");
    // A full pipe only takes and releases its mutex.
    let write = || drop((&into).write(&[0; 4096]));
    let Some(contention) = observe_on(test, &[1], &write) else { return };
    assert_eq!(contention.cpus, [1]);
    let at_pipe = |lock: &&WaitSite| lock.callers.first().is_some_and(|name| name.ends_with("pipe_write"));
    let pipe = contention.locks.iter().find(at_pipe).expect("a wait for the pipe");
    assert!(matches!(pipe.lock, LockKind::Mutex | LockKind::MutexSpin), "{pipe:?}");
    assert_eq!(pipe.by_cpu_ns.keys().collect::<Vec<_>>(), [&1], "{pipe:?}");
    assert_eq!(pipe.spot, None);
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn callers_omit_lock_functions_and_end_at_the_entry_point() {
    let stack = "bpf_prog_6deef7357e7b4530_begins bpf_trace_run2 __traceiter_contention_begin \
                 __pv_queued_spin_lock_slowpath _raw_spin_lock_bh __skb_recv_udp udp_recvmsg __sys_recvfrom do_syscall_64 \
                 entry_SYSCALL_64_after_hwframe";
    assert_eq!(callers(&words(stack)), words("__skb_recv_udp udp_recvmsg __sys_recvfrom"));
    let softirq = "bpf_prog_1 __pv_queued_spin_lock_slowpath enqueue_to_backlog net_rx_action handle_softirqs udp_sendmsg";
    assert_eq!(callers(&words(softirq)), words("enqueue_to_backlog net_rx_action"));
    assert_eq!(callers(&[]), words(""));
}

#[test]
fn wait_sites_merge_cpus_and_separate_lock_kinds() {
    let place = |stack, flags, cpu, waits, waited_ns, longest_ns| WaitPlace {
        stack,
        flags,
        cpu,
        waits,
        waited_ns,
        longest_ns,
    };
    let places = vec![
        place(Some(1), 1, 0, 2, 200, 150),
        place(Some(2), 1, 1, 1, 50, 50),
        place(Some(1), 1, 9, 1, 1000, 1000),
        place(None, 32, 0, 1, 70, 70),
    ];
    let (one, two) = (0xffff_ffff_8100_0010, 0xffff_ffff_8100_0020);
    let stacks = [(1, vec![one, two]), (2, vec![one, two + 3])].into();
    let kallsyms = "ffffffff81000000 T _raw_spin_lock\nffffffff81000015 T __udp_enqueue_schedule_skb\n\
                    ffffffff81000100 T other\n";
    let host = Host::scripted([("/proc/kallsyms", kallsyms)]);
    let symbols = KernelSymbols::kernel(&host).expect("symbols");
    let contention =
        table::lock_report(&ContentionCounts { places, stacks, missed: 3 }, &symbols, vec![0, 1], 2.0);
    let first = WaitSite {
        callers: words("__udp_enqueue_schedule_skb"),
        lock: LockKind::Spinlock,
        waits: 3,
        waited_ns: 250,
        longest_ns: 150,
        by_cpu_ns: [(0, 200), (1, 50)].into(),
        spot: Some("socket-lock".into()),
    };
    assert_eq!(contention.locks[0], first);
    assert_eq!((contention.locks[1].lock, contention.locks[1].callers.len()), (LockKind::Mutex, 0));
    assert_eq!(
        (contention.total_ns, contention.spinning_ns, contention.waits, contention.missed),
        (320, 250, 4, 3)
    );
    assert_eq!(contention.notes.len(), 3, "{:?}", contention.notes);
    let parsed: LockContention =
        serde_json::from_str(&serde_json::to_string(&contention).expect("JSON")).expect("the same");
    assert_eq!(parsed, contention);
}

#[test]
fn lock_kind_is_derived_from_the_tracepoint_flags() {
    let kinds = [1, 3, 5, 33, 32, 2, 4, 18, 20, 10, 0].map(LockKind::from_flags);
    assert_eq!(
        format!("{kinds:?}"),
        "[Spinlock, RwlockRead, RwlockWrite, MutexSpin, Mutex, RwsemRead, RwsemWrite, PercpuRwsemRead, \
         PercpuRwsemWrite, Rt, Other]"
    );
}
