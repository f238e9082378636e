//! Threads that take packets from a device's queues (threaded NAPI, Linux 5.12).

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

// Most bytes of a thread's name before Linux 5.17 (`TASK_COMM_LEN` without its end).
const SHORT: usize = 15;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NapiThread {
    pub(super) pid: u32,
    // `napi/INTERFACE-ID` (`napi_kthread_create` in net/core/dev.c).
    pub(super) name: String,
    /// Whether it has a real-time policy, so that it runs before ordinary threads.
    pub(super) real_time: bool,
    /// The CPUs on which it may run.
    pub(super) cpus: BTreeSet<u32>,
}

/// The threads of an interface that `proc` shows. Includes the threads of an interface with the
/// same name in another network namespace.
pub(super) fn list_threads(proc: &Path, interface: &str) -> Vec<NapiThread> {
    let processes = fs::read_dir(proc).into_iter().flatten().flatten();
    processes.filter_map(|entry| read_thread(&entry.path(), interface)).collect()
}

fn read_thread(folder: &Path, interface: &str) -> Option<NapiThread> {
    let pid = folder.file_name()?.to_str()?.parse().ok()?;
    let name = fs::read_to_string(folder.join("comm")).ok()?.trim_end().to_owned();
    let name_prefix = format!("napi/{interface}-");
    let is_cut = name.len() == SHORT && name_prefix.starts_with(&name);
    if !is_cut && !name.starts_with(&name_prefix) {
        return None;
    }
    let stat = fs::read_to_string(folder.join("stat")).ok()?;
    let status = fs::read_to_string(folder.join("status")).ok()?;
    let cpus = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    Some(NapiThread { pid, name, real_time: is_real_time(&stat)?, cpus: parse_cpu_list(cpus.trim())? })
}

// By field 41, `policy` (proc_pid_stat(5)), in a line whose second field is a name in parentheses.
fn is_real_time(stat: &str) -> Option<bool> {
    let (_, from_third) = stat.rsplit_once(") ")?;
    let policy: i32 = from_third.split(' ').nth(41 - 3)?.parse().ok()?;
    Some(matches!(policy, libc::SCHED_FIFO | libc::SCHED_RR | libc::SCHED_DEADLINE))
}

/// A list such as `0-3,8`.
pub(super) fn parse_cpu_list(text: &str) -> Option<BTreeSet<u32>> {
    let mut cpus = BTreeSet::new();
    for range in text.split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        cpus.extend(first..=last);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NAPI threads of Linux 6.18: with the default policy, and after `chrt --fifo --pid 11`.
    const ORDINARY: &str = "21428 (napi/eth0-266) S 2 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 440297 0 0 \
        18446744073709551615 0 0 0 0 0 0 0 2147483647 0 1 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 0\n";
    const REAL_TIME: &str = "21428 (napi/eth0-266) S 2 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 -12 0 1 0 440297 0 0 \
        18446744073709551615 0 0 0 0 0 0 0 2147483647 0 1 0 0 17 1 11 1 0 0 0 0 0 0 0 0 0 0 0\n";

    #[test]
    fn real_time_policy_is_read_from_proc_stat() {
        assert_eq!(is_real_time(ORDINARY), Some(false));
        assert_eq!(is_real_time(REAL_TIME), Some(true));
        assert_eq!(is_real_time(&ORDINARY.replace("napi/eth0", "a) 1 (b")), Some(false));
        assert_eq!(is_real_time("812 (napi/eth0-8193) S 2 0"), None);
    }

    #[test]
    fn napi_threads_are_matched_by_interface_name() -> std::io::Result<()> {
        let root = tempfile::tempdir()?;
        let names = [
            "napi/eth0-8193",
            "napi/eth01-8194",
            "napi/eth0",
            "nsd",
            "napi/enp1s0f0np",
            "napi/enp1s0f0np0-12",
        ];
        for (pid, name) in names.iter().enumerate() {
            let folder = root.path().join(pid.to_string());
            fs::create_dir(&folder)?;
            fs::write(folder.join("comm"), format!("{name}\n"))?;
            fs::write(folder.join("stat"), ORDINARY)?;
            fs::write(folder.join("status"), "Name:\tnapi\nCpus_allowed:\tf\nCpus_allowed_list:\t0-3\n")?;
        }
        let pids_of = |interface| {
            let mut pids: Vec<u32> =
                list_threads(root.path(), interface).iter().map(|thread| thread.pid).collect();
            pids.sort_unstable();
            pids
        };
        assert_eq!(pids_of("eth0"), [0]);
        assert_eq!(pids_of("enp1s0f0np0"), [4, 5]);
        assert_eq!(list_threads(root.path(), "eth0")[0].cpus, BTreeSet::from([0, 1, 2, 3]));
        assert!(pids_of("wlan0").is_empty() && list_threads(&root.path().join("none"), "eth0").is_empty());
        Ok(())
    }
}
