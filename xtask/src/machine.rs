//! The machine on which a chore runs.

use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use linerate_host::{Host, HostSummary};
use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};

// `Linux 6.18.0, Example CPU`.
pub(crate) fn kernel_and_cpu() -> String {
    let HostSummary { kernel, cpu_model, .. } = HostSummary::observe(&Host::live());
    let text_of = |value: Option<String>| value.unwrap_or_else(|| "unknown".to_owned());
    format!("Linux {}, {}", text_of(kernel), text_of(cpu_model))
}

/// Runnable tasks over the last minute: other work on the machine spoils figures.
pub(crate) fn load_average() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

/// Prints SKIP and returns the exit code if the chore is not run by root.
pub(crate) fn skip_unless_root(chore: &str) -> Option<ExitCode> {
    (!rustix::process::geteuid().is_root()).then(|| {
        println!("SKIP {chore}: needs root for network namespaces and BPF");
        ExitCode::SUCCESS
    })
}

pub(crate) fn exit_code(is_success: bool) -> ExitCode {
    if is_success { ExitCode::SUCCESS } else { ExitCode::FAILURE }
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
    let affinity = sched_getaffinity(None).context("reading this thread's CPUs")?;
    Ok((0..).take(CpuSet::MAX_CPU).filter(|cpu| affinity.is_set(*cpu as usize)).collect())
}
