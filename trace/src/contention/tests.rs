//! Real locks of the running kernel, and captured stacks.

use std::io::Write as _;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use rustix::thread::{CpuSet as Cpus, sched_setaffinity};

use super::callers::callers;
use super::program::{ContentionCounts, WaitPlace};
use super::*;
use crate::error::skip_unless_permitted;
use linerate_testkit::skip;

/// The waits while each of two CPUs repeats its `work`, and the number of repetitions. Prints the
/// reason and returns `None` if that is not possible here.
fn observe(test: &str, work: &[&(dyn Fn() + Sync); 2]) -> Option<(LockContention, u64)> {
    observe_on(test, None, work)
}

fn observe_on(
    test: &str,
    cpus: Option<&[u32]>,
    work: &[&(dyn Fn() + Sync); 2],
) -> Option<(LockContention, u64)> {
    if thread::available_parallelism().map_or(1, std::num::NonZero::get) < 2 {
        skip(test, "requires two CPUs");
        return None;
    }
    let (over, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let repeat = |cpu: usize, work: &(dyn Fn() + Sync)| {
        let mut cpus = Cpus::new();
        cpus.set(cpu);
        sched_setaffinity(None, &cpus).expect("pinned");
        while !over.load(Ordering::Relaxed) {
            work();
            done.fetch_add(1, Ordering::Relaxed);
        }
    };
    let duration = Duration::from_millis(700);
    let result = thread::scope(|scope| {
        for (cpu, work) in work.iter().enumerate() {
            scope.spawn(move || repeat(cpu, *work));
        }
        let result = LockContention::observe(&Host::live(), duration, cpus, &|| false);
        over.store(true, Ordering::Relaxed);
        result
    });
    Some((skip_unless_permitted(test, result)?, done.into_inner()))
}

/// One at a time, because each requires two CPUs.
static MACHINE: Mutex<()> = Mutex::new(());

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("bound");
    socket.set_nonblocking(true).expect("set");
    socket
}

fn read(socket: &UdpSocket) {
    // The socket is empty.
    let _ = socket.recv(&mut [0; 8]);
}

/// Waits of socket readers for the lock of the socket's queue. Other programs and concurrent tests
/// may wait longer for other locks.
fn of_readers(contention: &LockContention) -> Option<&WaitSite> {
    let of_readers = |lock: &&WaitSite| {
        lock.callers.first().is_some_and(|name| name == "__skb_recv_udp") && lock.lock == LockKind::Spinlock
    };
    contention.locks.iter().find(of_readers)
}

/// Time of these waits per million reads, ns.
fn wait_ns((contention, done): &(LockContention, u64)) -> u64 {
    of_readers(contention).map_or(0, |lock| lock.waited_ns) * 1_000_000 / done.max(&1)
}

#[test]
fn threads_sharing_a_socket_wait_for_its_lock_and_others_do_not() {
    let test = "threads_sharing_a_socket_wait_for_its_lock_and_others_do_not";
    let _machine = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let (first, second) = (socket(), socket());
    let mut tries = Vec::new();
    // Two threads contend only while both run, which other work on two CPUs may prevent.
    for _ in 0..5 {
        let Some(shared) = observe(test, &[&|| read(&first), &|| read(&first)]) else { return };
        if !shared.0.locks.iter().any(|lock| lock.lock.spins()) {
            return skip(test, shared.0.notes.join("; "));
        }
        let Some(apart) = observe(test, &[&|| read(&first), &|| read(&second)]) else { return };
        let differ = wait_ns(&shared) > 10 * wait_ns(&apart);
        if let Some(lock) = of_readers(&shared.0).filter(|_| differ) {
            assert_eq!(lock.spot.as_deref(), Some("socket-lock"), "{lock:?}");
            assert_eq!(lock.by_cpu_ns.values().sum::<u64>(), lock.waited_ns);
            assert!(lock.longest_ns <= lock.waited_ns && lock.waits > 0, "{lock:?}");
            return;
        }
        tries.push((shared, apart));
    }
    panic!("the shared socket never waits 10 times as long: {tries:#?}");
}

#[test]
fn mutex_waits_are_observed_only_on_the_requested_cpus() {
    let test = "mutex_waits_are_observed_only_on_the_requested_cpus";
    let _machine = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let (_out, into) = std::io::pipe().expect("a pipe");
    rustix::io::ioctl_fionbio(&into, true).expect("set");
    // A full pipe only takes and releases its mutex.
    let write = || drop((&into).write(&[0; 4096]));
    let Some((contention, _)) = observe_on(test, Some(&[1]), &[&write, &write]) else { return };
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
    let kinds = [
        (1, LockKind::Spinlock),
        (3, LockKind::RwlockRead),
        (5, LockKind::RwlockWrite),
        (33, LockKind::MutexSpin),
        (32, LockKind::Mutex),
        (2, LockKind::RwsemRead),
        (4, LockKind::RwsemWrite),
        (18, LockKind::PercpuRwsemRead),
        (20, LockKind::PercpuRwsemWrite),
        (10, LockKind::Rt),
        (0, LockKind::Other),
    ];
    for (flags, lock) in kinds {
        assert_eq!(LockKind::from_flags(flags), lock, "{flags}");
    }
}
