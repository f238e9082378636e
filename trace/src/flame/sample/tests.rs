//! Samples of this process.

use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use linerate_host::Host;
pub(super) use linerate_testkit::skip;
use rustix::thread::{CpuSet as Mask, sched_setaffinity};

use super::*;
use crate::error::skip_unless_permitted;
use crate::flame::{FlameSelection, fold};

/// Tests that use whole CPUs run one at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// Samples while `work` runs in its own thread; `None` if not permitted.
fn sample(test: &str, cpus: Option<Vec<u32>>, work: fn(&AtomicBool)) -> Option<StackProfile> {
    let stop = AtomicBool::new(false);
    let options = ProfileOptions { cpus, ..ProfileOptions::all(Duration::from_millis(1500)) };
    let result = std::thread::scope(|scope| {
        scope.spawn(|| work(&stop));
        let result = StackProfile::observe(&Host::live(), &options, &|| false);
        stop.store(true, Ordering::Relaxed);
        result
    });
    skip_unless_permitted(test, result)
}

/// Arithmetic only, so that even without optimization no other function is called.
macro_rules! spinning_function {
    ($name:ident, $rounds:expr) => {
        #[inline(never)]
        fn $name() -> u64 {
            let (mut value, mut rounds) = (1_u64, $rounds);
            while rounds > 0 {
                value ^= value << 13;
                value ^= value >> 7;
                value ^= value << 17;
                rounds -= 1;
            }
            value
        }
    };
}

spinning_function!(spin, 50_000_u64);
spinning_function!(spin_one_part, 100_000_u64);
spinning_function!(spin_three_parts, 300_000_u64);

/// Samples whose innermost function contains this name, on one CPU or all.
fn inside(profile: &StackProfile, name: &str, cpu: Option<u32>) -> u64 {
    let innermost = |stack: &&crate::flame::SampledStack| {
        profile.frames_of(stack).next_back().is_some_and(|frame| frame.name.contains(name))
    };
    let is_on_cpu = |stack: &&crate::flame::SampledStack| cpu.is_none_or(|cpu| cpu == stack.cpu);
    profile.stacks.iter().filter(innermost).filter(is_on_cpu).map(|stack| stack.samples).sum()
}

#[test]
fn samples_are_proportional_to_function_time() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    // Unequal turns, because samples would always meet the same function of a loop that takes a
    // multiple of their period.
    let work = |stop: &AtomicBool| {
        for repeats in [1, 3, 2, 5, 4].into_iter().cycle().take_while(|_| !stop.load(Ordering::Relaxed)) {
            (0..repeats).for_each(|_| _ = black_box(spin_one_part()));
            (0..repeats).for_each(|_| _ = black_box(spin_three_parts()));
        }
    };
    let (mut one, mut three) = (0, 0);
    // If a hypervisor does not run this CPU, the last activity gets the samples of that time.
    for _ in 0..5 {
        let Some(profile) = sample("samples_are_proportional_to_function_time", None, work) else { return };
        assert_eq!(profile.lost(), 0);
        one += inside(&profile, "spin_one_part", None);
        three += inside(&profile, "spin_three_parts", None);
        if (2.2..4.0).contains(&(three as f64 / one as f64)) {
            return;
        }
    }
    panic!("{three} to {one} samples");
}

#[test]
fn pinned_thread_is_sampled_only_on_its_cpu() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let work = |stop: &AtomicBool| {
        let mut mask = Mask::new();
        mask.set(0);
        if sched_setaffinity(None, &mask).is_ok() {
            while !stop.load(Ordering::Relaxed) {
                black_box(spin());
            }
        }
    };
    let Some(profile) = sample("pinned_thread_is_sampled_only_on_its_cpu", None, work) else { return };
    let (on_cpu, everywhere) = (inside(&profile, "::spin", Some(0)), inside(&profile, "::spin", None));
    if everywhere == 0 {
        return skip("pinned_thread_is_sampled_only_on_its_cpu", "threads may not run on CPU 0 here");
    }
    assert_eq!(on_cpu, everywhere);
}

#[test]
fn only_requested_cpus_are_sampled() {
    let Some(profile) = sample("only_requested_cpus_are_sampled", Some(vec![0, 0]), |_| {}) else {
        return;
    };
    assert_eq!(profile.cpus.iter().map(|cpu| cpu.cpu).collect::<Vec<_>>(), [0]);
    assert!(profile.stacks.iter().all(|stack| stack.cpu == 0));
}

#[test]
fn softirqs_of_a_system_call_begin_at_the_softirq_handler() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let test = "softirqs_of_a_system_call_begin_at_the_softirq_handler";
    let work = |stop: &AtomicBool| {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(socket.local_addr().unwrap()).unwrap();
        socket.set_nonblocking(true).unwrap();
        while !stop.load(Ordering::Relaxed) {
            let _ = socket.send(b"to myself");
            let _ = socket.recv(&mut [0; 16]);
        }
    };
    let Some(profile) = sample(test, None, work) else { return };
    if let Some(why) = profile.notes.iter().find(|note| note.contains("kernel functions have no names")) {
        return skip(test, why);
    }
    let own = profile
        .stacks
        .iter()
        .filter(|stack| stack.context == CpuContext::SoftirqOwn && stack.pid == std::process::id());
    let mut samples = 0;
    for stack in own {
        samples += stack.samples;
        let entry = &profile.frames[stack.frames[stack.entry as usize] as usize].name;
        assert!(
            entry == "handle_softirqs" || entry == "__do_softirq" || entry == "do_softirq_own_stack",
            "{entry}"
        );
    }
    assert!(samples > 0, "{}", fold::folded(&profile, FlameSelection::default()));
    let irq = fold::folded(&profile, FlameSelection { irq_only: true, per_cpu: false });
    assert!(
        irq.lines()
            .any(|line| line.starts_with("softirq in a system call;") && line.contains("net_rx_action")),
        "{irq}"
    );
    if profile.event != SampleEvent::CpuCycles {
        assert!(!irq.contains("perf_swevent_hrtimer"), "the sample's own interrupt: {irq}");
    }
}

#[test]
fn samples_lost_to_a_full_ring_buffer_are_counted() {
    let options = ProfileOptions { frequency_hz: 5000, ..ProfileOptions::all(Duration::from_millis(300)) };
    // A page has room for few samples, and is not read for 100 ms.
    let idle = || {
        std::thread::sleep(Duration::from_millis(100));
        false
    };
    let result = observe_with(&Host::live(), &options, &idle, &[4096]);
    let Some(profile) = skip_unless_permitted("samples_lost_to_a_full_ring_buffer_are_counted", result)
    else {
        return;
    };
    let samples: u64 = profile.cpus.iter().map(|cpu| cpu.samples).sum();
    assert!(profile.lost() > samples && samples > 0, "{:?}", profile.cpus);
}

#[test]
fn samples_are_taken_without_kernel_symbols() {
    let host = Host::scripted([
        ("/sys/devices/system/cpu/online", "0\n"),
        ("/proc/kallsyms", "0000000000000000 T _text\n"),
        ("/proc/sys/kernel/kptr_restrict", "2\n"),
    ]);
    let result = StackProfile::observe(&host, &ProfileOptions::all(Duration::from_millis(200)), &|| false);
    let Some(profile) = skip_unless_permitted("samples_are_taken_without_kernel_symbols", result) else {
        return;
    };
    assert!(
        profile.notes.iter().any(|note| note.contains("kernel.kptr_restrict is 2")),
        "{:?}",
        profile.notes
    );
    assert!(profile.cpus[0].samples > 0);
    let kernel = profile.frames.iter().filter(|frame| frame.kind == crate::flame::FrameKind::Kernel);
    assert!(kernel.into_iter().all(|frame| frame.name == crate::flame::StackFrame::UNKNOWN));
}

#[test]
fn too_high_sample_rate_is_refused_in_one_line() {
    let options = ProfileOptions { frequency_hz: u32::MAX, ..ProfileOptions::all(Duration::ZERO) };
    match StackProfile::observe(&Host::live(), &options, &|| false) {
        Err(error @ (TraceError::NotPermitted { .. } | TraceError::NotHere { .. })) => {
            skip("too_high_sample_rate_is_refused_in_one_line", error.to_string());
        }
        Err(error) => {
            assert!(
                error.to_string().contains("perf_event_max_sample_rate") && !error.to_string().contains('\n')
            );
        }
        Ok(_) => panic!("a sample each quarter of a nanosecond"),
    }
}

#[test]
fn missing_samples_of_a_halted_cpu_are_idle() {
    let mut profile = crate::flame::fixture::profile("40 x task main;aes\n5 swapper idle do_idle\n");
    let guests = BTreeMap::new();
    let cpus = add_halted_samples(profile.cpus.clone(), &mut profile.stacks, (1.0, 100.0), &guests);
    assert_eq!(cpus, [CpuProfile { cpu: 0, samples: 100, idle: 60, lost: 0 }]);
    profile.cpus = cpus;
    assert_eq!((profile.busy(), profile.samples_in(CpuContext::Idle, Some(0))), (40, 60));
    assert!(profile.stacks.is_sorted_by_key(|stack| std::cmp::Reverse(stack.samples)));
    let text = serde_json::to_string(&profile).unwrap();
    assert_eq!(serde_json::from_str::<StackProfile>(&text).unwrap(), profile);
    // More samples than requested, as at a higher clock rate, are kept.
    assert_eq!(add_halted_samples(profile.cpus.clone(), &mut Vec::new(), (1.0, 90.0), &guests), profile.cpus);
}

#[test]
fn missing_samples_of_virtual_machines_are_busy() {
    let mut profile = crate::flame::fixture::profile("40 x task main;aes\n5 swapper idle do_idle\n");
    let stat = "cpu  9 0 0 0 0 0 0 0 80 0\ncpu0 40 0 0 0 0 0 0 0 20 5\ncpu1 9 0 0 0 0 0 0 0 60 0\nintr 5\n";
    let guests = guest_seconds(&Host::scripted([("/proc/stat", stat)]));
    assert_eq!(guests.into_values().collect::<Vec<_>>(), [0.25, 0.6]);
    for (guest, idle) in [(0.25, 35), (0.9, 5)] {
        let cpus =
            add_halted_samples(profile.cpus.clone(), &mut profile.stacks, (1.0, 100.0), &[(0, guest)].into());
        assert_eq!(cpus, [CpuProfile { cpu: 0, samples: 100, idle, lost: 0 }]);
    }
    assert!(profile.stacks.iter().any(|stack| stack.comm == GUESTS && stack.samples == 25));
}
