//! Sentences and names of a profile.

use linerate_host::Known;
use linerate_trace::contention::{LockContention, LockKind, WaitSite};
use linerate_trace::flame::{SampleEvent, StackProfile};

use crate::render::format::{cpu_list, grouped, percent, time_span};

/// The uncertainty of a share of this number of samples; empty if it is small.
pub(super) fn share_uncertainty(samples: u64) -> String {
    /// With this number of samples, two standard deviations are about three points.
    const MANY: u64 = 1_000;
    if samples == 0 || samples >= MANY {
        return String::new();
    }
    // Two standard deviations of a share of one half, which has the largest deviation.
    let points = 100.0 / (samples as f64).sqrt();
    format!("so each share may be off by {points:.0} points")
}

/// The cost of sampling, as a sentence without its end.
pub(super) fn overhead_text(profile: &StackProfile, with_locks: bool) -> String {
    let locks = if with_locks { "; the cost of tracing locks is not included" } else { "" };
    match &profile.own {
        Known::Value(overhead) => format!(
            "sampling took {} of these CPUs: {} per sample, and {} of this process{locks}",
            percent(overhead.share),
            time_span(overhead.ns_a_sample),
            time_span(overhead.process_ns as f64),
        ),
        Known::Unknown { why } => format!("the cost of sampling is unknown: {why}"),
    }
}

/// The sampled CPUs, time and frequency: `CPUs 0-1 for 10.0 s at 999 Hz, by the CPU clock`.
pub(super) fn sampling_text(profile: &StackProfile) -> String {
    let cpus: Vec<u32> = profile.cpus.iter().map(|cpu| cpu.cpu).collect();
    let event = match &profile.event {
        SampleEvent::CpuCycles => "cycles",
        SampleEvent::CpuClock { .. } => "the CPU clock",
    };
    let lost_text = match profile.lost() {
        0 => String::new(),
        1 => "; 1 sample lost".to_owned(),
        count => format!("; {} samples lost", grouped(count)),
    };
    format!(
        "CPUs {} for {:.1} s at {} Hz, by {event}{lost_text}",
        cpu_list(&cpus),
        profile.seconds,
        profile.frequency_hz
    )
}

/// Time lost in all waits.
pub(super) fn lock_total(contention: &LockContention) -> String {
    let seconds = contention.seconds;
    if contention.waits == 0 {
        return format!("No waits for locks within {seconds:.1} s.");
    }
    let cpu_ns = seconds * 1e9 * contention.cpus.len().max(1) as f64;
    let spinning = contention.spinning_ns as f64;
    let waits_text =
        |count: u64| if count == 1 { "1 wait".to_owned() } else { format!("{} waits", grouped(count)) };
    let missed_text = match contention.missed {
        0 => String::new(),
        count => format!("; {} more could not be counted", waits_text(count)),
    };
    format!(
        "{} within {seconds:.1} s took {}, of it {} spinning ({} of CPU time){missed_text}.",
        waits_text(contention.waits),
        time_span(contention.total_ns as f64),
        time_span(spinning),
        percent(spinning / cpu_ns)
    )
}

/// Functions on the way to a lock, innermost first.
pub(super) fn callers(wait_site: &WaitSite) -> String {
    if wait_site.callers.is_empty() { "unknown".to_owned() } else { wait_site.callers.join(" < ") }
}

pub(super) fn lock_kind(lock: LockKind) -> &'static str {
    match lock {
        LockKind::Spinlock => "spinlock",
        LockKind::RwlockRead => "rwlock read",
        LockKind::RwlockWrite => "rwlock write",
        LockKind::MutexSpin => "mutex, spinning",
        LockKind::Mutex => "mutex",
        LockKind::RwsemRead => "rwsem read",
        LockKind::RwsemWrite => "rwsem write",
        LockKind::PercpuRwsemRead => "percpu rwsem read",
        LockKind::PercpuRwsemWrite => "percpu rwsem write",
        LockKind::Rt => "rt mutex",
        LockKind::Other => "other",
    }
}
