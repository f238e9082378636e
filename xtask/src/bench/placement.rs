//! The CPUs on which a receiving host processes packets. They matter more than most differences
//! between servers.

use std::path::Path;

use anyhow::{Context, ensure};
use linerate_host::CpuSet;
use linerate_lab::LabHost;
use rustix::thread::Pid;

use crate::machine;

// Packets that may wait for `process_backlog` on a CPU; one value per machine
// (net/core/sysctl_net_core.c).
const BACKLOG: &str = "/proc/sys/net/core/netdev_max_backlog";

// About 30 ms at the highest rate that a socket server answered.
const BACKLOG_PACKETS: u64 = 16_384;

/// Keeps [`BACKLOG`] at [`BACKLOG_PACKETS`] or more, and restores it.
///
/// RPS steers packets to the CPU of a server while the scheduler runs the server. `process_backlog`
/// leaves the packets beyond its budget to ksoftirqd, which shares the CPU with the server. With
/// time slices of 4 ms, the default backlog of 1,000 packets is full from 250,000 packets per
/// second on.
#[derive(Debug)]
pub(super) struct LongBacklog {
    original: String,
}

impl LongBacklog {
    // `None` if the backlog is long enough.
    pub(super) fn set() -> anyhow::Result<Option<Self>> {
        let text = std::fs::read_to_string(BACKLOG).with_context(|| format!("reading {BACKLOG}"))?;
        let original = text.trim().to_owned();
        if original.parse::<u64>().with_context(|| format!("{BACKLOG}: {original}"))? >= BACKLOG_PACKETS {
            return Ok(None);
        }
        write(Path::new(BACKLOG), &BACKLOG_PACKETS.to_string())?;
        Ok(Some(Self { original }))
    }
}

impl Drop for LongBacklog {
    fn drop(&mut self) {
        if let Err(reason) = write(Path::new(BACKLOG), &self.original) {
            eprintln!("{reason:#}: restore it by hand");
        }
    }
}

/// Writes a file of a device in the sysfs of a host.
pub(super) fn set_device(host: &LabHost, interface: &str, file: &str, value: &str) -> anyhow::Result<()> {
    write(&host.sys_path()?.join("class/net").join(interface).join(file), value)
}

/// Makes RPS steer the packets of all receive queues to these CPUs.
pub(super) fn steer_by_rps(host: &LabHost, interface: &str, queues: u32, cpus: &[u32]) -> anyhow::Result<()> {
    let mask = cpus.iter().copied().collect::<CpuSet>().to_mask();
    (0..queues)
        .try_for_each(|queue| set_device(host, interface, &format!("queues/rx-{queue}/rps_cpus"), &mask))
}

// Pins the threads that poll an interface (threaded NAPI) to these CPUs in turn.
//
// The kernel names the threads `napi/INTERFACE-ID` (net/core/dev.c, `napi_kthread_create`). Threads
// of other network namespaces may be among them.
pub(super) fn pin_napi_threads(interface: &str, cpus: &[u32]) -> anyhow::Result<()> {
    let prefix = format!("napi/{interface}-");
    let mut threads = Vec::new();
    for entry in std::fs::read_dir("/proc").context("listing /proc")? {
        let entry = entry?;
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let name = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        threads.extend(Pid::from_raw(pid).filter(|_| name.starts_with(&prefix)));
    }
    ensure!(!threads.is_empty(), "{interface} has no NAPI thread");
    threads
        .into_iter()
        .zip(cpus.iter().cycle())
        .try_for_each(|(thread, cpu)| machine::pin(Some(thread), *cpu))
}

fn write(file: &Path, value: &str) -> anyhow::Result<()> {
    std::fs::write(file, value).with_context(|| format!("writing {value} to {}", file.display()))
}
