//! The machine that a chore runs on.

use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, ensure};
use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};

/// The kernel's release.
pub(crate) fn kernel() -> std::io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().to_owned())
}

pub(crate) fn cpu_model() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    model.map_or_else(|| "unknown".to_owned(), |(_, model)| model.trim().to_owned())
}

/// Runnable tasks over the last minute: other work on the machine spoils figures.
pub(crate) fn load_average() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

/// Seconds since 1970; `None` if the clock is before that.
pub(crate) fn unix_seconds() -> Option<u64> {
    SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs())
}

/// Prints SKIP and returns the exit code if the chore is not run by root.
pub(crate) fn skip_unless_root(chore: &str) -> Option<ExitCode> {
    (!rustix::process::geteuid().is_root()).then(|| {
        println!("SKIP {chore}: needs root for network namespaces and BPF");
        ExitCode::SUCCESS
    })
}

pub(crate) fn exit_code(passed: bool) -> ExitCode {
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Pins a thread, or the calling one, to a CPU.
pub(crate) fn pin(thread: Option<Pid>, cpu: u32) -> anyhow::Result<()> {
    ensure!((cpu as usize) < CpuSet::MAX_CPU, "there is no CPU {cpu}");
    let mut set = CpuSet::new();
    set.set(cpu as usize);
    sched_setaffinity(thread, &set).with_context(|| format!("pinning a thread to CPU {cpu}: does it exist?"))
}

/// The CPUs that the calling thread may run on.
pub(crate) fn allowed_cpus() -> anyhow::Result<Vec<u32>> {
    let allowed = sched_getaffinity(None).context("reading this thread's CPUs")?;
    Ok((0..).take(CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu as usize)).collect())
}
