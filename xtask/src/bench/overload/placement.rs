//! Where packets are received before a server gets them.

use std::fmt;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, ensure};
use clap::ValueEnum;
use linerate_lab::Lab;
use rustix::thread::{CpuSet, Pid, sched_setaffinity};

/// Which CPU runs the network stack for a server's packets, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum SoftirqPlacement {
    /// RPS brings packets to the server's CPU: softirqs and server share it.
    SameCpu,
    /// On another CPU than the server's.
    Away,
    /// By a thread of NAPI on the server's CPU.
    Threaded,
    /// By the server, which polls the device; interrupts are deferred.
    Deferred,
}

impl SoftirqPlacement {
    /// Whether the server polls the device.
    pub(super) fn polls(self) -> bool {
        self == Self::Deferred
    }

    /// Whether packets wait in a CPU's backlog.
    pub(super) fn steers(self) -> bool {
        self == Self::SameCpu
    }

    /// Sets the receiver's device so.
    pub(super) fn set_up(self, lab: &Lab, server_cpu: u32) -> anyhow::Result<()> {
        match self {
            Self::SameCpu => set(lab, "queues/rx-0/rps_cpus", &format!("{:x}", 1u64 << (server_cpu % 64))),
            Self::Away => Ok(()),
            Self::Threaded => set(lab, "threaded", "1"),
            Self::Deferred => {
                set(lab, "napi_defer_hard_irqs", "2")?;
                set(lab, "gro_flush_timeout", "200000")
            }
        }
    }

    /// What has to be done again for each server, since its XDP program may have the device made anew.
    pub(super) fn arrange(self, lab: &Lab, server_cpu: u32) -> anyhow::Result<()> {
        if self != Self::Threaded {
            return Ok(());
        }
        let mut cpu = CpuSet::new();
        cpu.set(server_cpu as usize);
        let threads = napi_threads(&lab.links()[0].receiver.interface)?;
        ensure!(!threads.is_empty(), "no thread of NAPI runs");
        for thread in threads {
            sched_setaffinity(Some(thread), &cpu).context("pinning a thread of NAPI")?;
        }
        Ok(())
    }
}

fn set(lab: &Lab, file: &str, value: &str) -> anyhow::Result<()> {
    let interface = &lab.links()[0].receiver.interface;
    let path: PathBuf = lab.receiver().sys_path()?.join("class/net").join(interface).join(file);
    fs::write(&path, value).with_context(|| format!("writing {value} to {}", path.display()))
}

/// The kernel names them `napi/INTERFACE-ID` (net/core/dev.c, `napi_kthread_create`); other namespaces' may be among them.
fn napi_threads(interface: &str) -> anyhow::Result<Vec<Pid>> {
    let prefix = format!("napi/{interface}-");
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").context("listing /proc")? {
        let entry = entry?;
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        found.extend(Pid::from_raw(pid).filter(|_| name.starts_with(&prefix)));
    }
    Ok(found)
}

impl fmt::Display for SoftirqPlacement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SameCpu => "in softirqs on the server's CPU",
            Self::Away => "in softirqs on another CPU",
            Self::Threaded => "by threaded NAPI on the server's CPU",
            Self::Deferred => "by busy polling, interrupts deferred",
        })
    }
}
