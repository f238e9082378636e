//! Threads and processes that a pinned thread started. They inherit its CPUs (sched(7)), so undo
//! restores their CPUs, too.

use std::collections::{BTreeMap, BTreeSet};

use linerate_host::stage::thread::TaskStat;
use linerate_host::{Host, Setting, SettingValue};

use crate::journal::RecordedTune;
use crate::journal::record::BeginRecord;

// `USER_HZ`: the unit of start times in `/proc/PID/stat` on all architectures of Linux but alpha.
const TICKS_PER_SECOND: u64 = 100;

/// The threads in and below the tune's processes that started after the tune and have the CPUs that
/// it gave a thread; each with the original CPUs of that thread.
pub(super) fn inherited(host: &Host, tune: &RecordedTune) -> Vec<(Setting, SettingValue)> {
    // Process, CPUs set by the tune, original CPUs.
    let pins = tune.tracked.iter().filter_map(|tracked| match tracked.setting {
        Setting::ThreadCpus { pid, started, .. } if has_thread_since(host, pid, started) => {
            Some((pid, tracked.wanted.as_ref()?, &tracked.original))
        }
        _ => None,
    });
    let pinned: Vec<_> = pins.collect();
    let Some(start) = (!pinned.is_empty()).then(|| start_ticks(host, &tune.begun)).flatten() else {
        return Vec::new();
    };
    let roots: BTreeSet<u32> = pinned.iter().map(|(pid, ..)| *pid).collect();
    let mut inherited = Vec::new();
    for (pid, root) in descendants(host, &roots) {
        for tid in host.list_numbers(&format!("/proc/{pid}/task"), "").unwrap_or_default() {
            let Ok(setting) = Setting::thread_cpus(host, pid, tid) else { continue };
            let Setting::ThreadCpus { started, .. } = setting else { continue };
            if started < start || tune.tracked(&setting).is_some() {
                continue;
            }
            let Ok(current) = setting.read(host) else { continue };
            let mut own_pins = pinned.iter().filter(|(owner, ..)| *owner == root);
            if let Some((_, _, original)) =
                own_pins.find(|(_, pinned_cpus, _)| setting.same(pinned_cpus, &current))
            {
                inherited.push((setting, (*original).clone()));
            }
        }
    }
    inherited
}

/// Whether the process can have a thread that started then. Otherwise another process got its id.
fn has_thread_since(host: &Host, pid: u32, started: u64) -> bool {
    let process_started = TaskStat::of_process(host, pid).ok().and_then(|stat| stat.started);
    process_started.is_some_and(|process_started| process_started <= started)
}

/// `roots` and their descendants, each with its root.
fn descendants(host: &Host, roots: &BTreeSet<u32>) -> BTreeMap<u32, u32> {
    let pids = host.list_numbers("/proc", "").unwrap_or_default().into_iter();
    let parent = |pid: u32| TaskStat::of_process(host, pid).ok()?.parent;
    let parents: BTreeMap<u32, u32> = pids.filter_map(|pid| Some((pid, parent(pid)?))).collect();
    let root = |pid: u32| {
        let mut ancestor = pid;
        // Reused process ids could form a cycle: a chain has at most as many links as processes exist.
        for _ in 0..=parents.len() {
            if roots.contains(&ancestor) {
                return Some((pid, ancestor));
            }
            ancestor = *parents.get(&ancestor)?;
        }
        None
    };
    parents.keys().copied().filter_map(root).collect()
}

// The start of a tune in clock ticks since boot, rounded down by a second.
fn start_ticks(host: &Host, begun: &BeginRecord) -> Option<u64> {
    if let Some(seconds) = begun.boot_seconds {
        return Some(seconds * TICKS_PER_SECOND);
    }
    let text = host.read("/proc/stat").ok()?;
    let boot: u64 = text.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    Some(begun.unix_seconds.saturating_sub(boot + 1) * TICKS_PER_SECOND)
}
