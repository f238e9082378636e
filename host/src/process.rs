//! The processes of a host, by id and name.

mod cgroup;
pub(crate) mod copy;
pub(crate) mod owners;
pub(crate) mod task;

pub use cgroup::cgroup_path;
pub use task::allowed_cpus;

use crate::known::UnknownReason;
use crate::{Host, HostError, Known};
use task::TaskStat;

pub(crate) const IRQBALANCE: &str = "irqbalance";
pub(crate) const TUNED: &str = "tuned";

/// Google's guest agent sets affinity and XPS when it starts (google_set_multiqueue).
pub(crate) const GOOGLE_AGENT: &str = "google_guest_ag";

/// Programs of container engines that hold the sockets of published ports.
pub(crate) const PORT_PROXIES: [&str; 2] = ["docker-proxy", "conmon"];

/// The names by which rules and tune recognise programs. An anonymous capture keeps them.
pub const KNOWN_PROGRAMS: [&str; 13] = [
    IRQBALANCE,
    TUNED,
    GOOGLE_AGENT,
    PORT_PROXIES[0],
    PORT_PROXIES[1],
    "NetworkManager",
    "auditd",
    "auto-cpufreq",
    "firewalld",
    "google_guest_co",
    "kube-proxy",
    "power-profiles-",
    "tuned-ppd",
];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostProcess {
    pub pid: u32,
    /// At most 15 bytes (`TASK_COMM_LEN`, linux/sched.h).
    pub comm: String,
}

impl HostProcess {
    /// Whether it runs as root; true if that is unknown. Any user can run a program with the name of one that manages the
    /// host, and those in user namespaces of containers do not manage it.
    #[must_use]
    pub fn is_of_root(&self, host: &Host) -> bool {
        let status = host.read(&format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
        ids.is_none_or(|ids| ids.split_whitespace().all(|id| id == "0"))
    }
}

/// In the order of process ids. A process that ends during the reading is left out.
pub fn processes(host: &Host) -> Known<Vec<HostProcess>> {
    list_processes(host).into()
}

fn list_processes(host: &Host) -> Result<Vec<HostProcess>, UnknownReason> {
    let pids = host.list_numbers("/proc", "")?;
    let processes: Vec<HostProcess> = pids.into_iter().filter_map(|pid| read_process(host, pid)).collect();
    if processes.is_empty() { Err("/proc: no process in it".into()) } else { Ok(processes) }
}

/// Start time of a process or thread in clock ticks since boot.
pub fn start_time(host: &Host, directory: &str) -> Result<u64, HostError> {
    TaskStat::read(host, directory)?.started.ok_or_else(|| HostError::Garbled {
        path: format!("{directory}/stat"),
        reason: "no start time in field 22".to_owned(),
    })
}

fn read_process(host: &Host, pid: u32) -> Option<HostProcess> {
    let comm = host.read(&format!("/proc/{pid}/comm")).ok()?;
    Some(HostProcess { pid, comm: comm.trim_end_matches('\n').to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_sorted_by_pid_and_ended_processes_are_omitted() {
        let host = Host::scripted([
            ("/proc/1/comm", "systemd\n"),
            ("/proc/20/status", "Name: gone\n"),
            ("/proc/9/comm", "tmux: server\n"),
            ("/proc/uptime", "1 1\n"),
        ]);
        let found = processes(&host).into_value().expect("processes");
        let names: Vec<_> = found.iter().map(|process| (process.pid, process.comm.as_str())).collect();
        assert_eq!(names, [(1, "systemd"), (9, "tmux: server")]);
    }

    #[test]
    fn process_list_without_any_process_is_unknown() {
        let none = Host::scripted([("/proc/uptime", "1 1\n")]);
        assert_eq!(processes(&none).why(), Some("/proc: no process in it"));
        let nothing = processes(&Host::scripted::<String, String>([]));
        assert!(nothing.why_contains("/proc"));
    }
}
