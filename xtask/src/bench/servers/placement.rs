//! Which CPU does a receiving host's work: the answer makes more of a difference than most servers do.

use std::path::Path;

use anyhow::{Context, ensure};
use clap::ValueEnum;
use linerate_host::stage::softirq::SoftirqState;
use linerate_host::{Host, Known};
use linerate_lab::LabHost;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::Serialize;

/// Where packets are received. A veth pair has no interrupts: what is sent is received on the CPU that sent it, unless told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ReceivePlacement {
    /// RPS takes packets to the servers' CPUs. XDP programs run before that, on the generator's.
    Rps,
    /// A thread polls the interface on the servers' CPUs (threaded NAPI): XDP programs and the stack alike.
    Threaded,
    /// All on the generator's CPU.
    Sent,
}

impl ReceivePlacement {
    pub(super) fn describe(self) -> &'static str {
        match self {
            Self::Rps => {
                "RPS takes packets to the servers' CPUs, in softirqs, where many may wait; XDP programs run on the generator's CPU"
            }
            Self::Threaded => {
                "threaded NAPI on the servers' CPUs: XDP programs and the stack share them with the servers"
            }
            Self::Sent => "all receiving is done on the generator's CPU",
        }
    }

    /// Sets it for an interface, and reads it back.
    pub(super) fn set(
        self,
        host: &LabHost,
        interface: &str,
        queues: u32,
        cpus: &[u32],
    ) -> anyhow::Result<()> {
        let device = host.sys_path()?.join("class/net").join(interface);
        match self {
            Self::Sent => Ok(()),
            Self::Rps => {
                let mask = cpus.iter().fold(0_u64, |mask, cpu| mask | 1 << (cpu % 64));
                for queue in 0..queues {
                    write(&device.join(format!("queues/rx-{queue}/rps_cpus")), &format!("{mask:x}"))?;
                }
                Ok(())
            }
            Self::Threaded => {
                write(&device.join("threaded"), "1")?;
                let threads = host.run(|| napi_threads(host))??;
                ensure!(!threads.is_empty(), "{interface} has no NAPI thread, although threaded is 1");
                for (thread, cpu) in threads.into_iter().zip(cpus.iter().copied().cycle()) {
                    let mut set = CpuSet::new();
                    set.set(cpu as usize);
                    sched_setaffinity(rustix::process::Pid::from_raw(thread.cast_signed()), &set)
                        .with_context(|| format!("pinning the NAPI thread {thread} to CPU {cpu}"))?;
                }
                Ok(())
            }
        }
    }
}

/// The threads that poll a host's interfaces. Called in its network namespace.
fn napi_threads(host: &LabHost) -> anyhow::Result<Vec<u32>> {
    match SoftirqState::observe(&Host::live_with_sys(host.sys_path()?), &[]).napi {
        Known::Value(Some(instances)) => Ok(instances.iter().filter_map(|napi| napi.pid).collect()),
        Known::Value(None) => anyhow::bail!("this kernel does not tell of NAPI threads (Linux 6.8)"),
        Known::Unknown { why } => anyhow::bail!("looking for NAPI threads: {why}"),
    }
}

fn write(file: &Path, value: &str) -> anyhow::Result<()> {
    std::fs::write(file, value).with_context(|| format!("writing {value} to {}", file.display()))
}

/// Keeps the calling thread, and what it starts in a lab, off the servers' CPUs.
pub(super) fn stay_on(cpu: u32, servers: &[u32]) -> anyhow::Result<()> {
    ensure!(
        !servers.contains(&cpu),
        "CPU {cpu} cannot both serve and ask: see --server-cpus and --generator-cpu"
    );
    let allowed = sched_getaffinity(None).context("reading this thread's CPUs")?;
    for wanted in servers.iter().chain([&cpu]) {
        let there = (*wanted as usize) < CpuSet::MAX_CPU && allowed.is_set(*wanted as usize);
        ensure!(
            there,
            "there is no CPU {wanted} here: two are needed, see --server-cpus and --generator-cpu"
        );
    }
    let mut set = CpuSet::new();
    set.set(cpu as usize);
    sched_setaffinity(None, &set).with_context(|| format!("pinning the bench to CPU {cpu}"))
}
