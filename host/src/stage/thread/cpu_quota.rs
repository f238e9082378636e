//! The CPU quota of a process's cgroup (cgroup v2: `cpu.max` and `cpu.stat`).

use serde::Serialize;

use crate::process::cgroup_path;
use crate::{Host, Known};

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CpuQuota {
    pub cgroup: String,
    /// CPUs' worth of time for all its processes.
    pub cpus: f64,
    /// Periods in which they ran.
    pub periods: u64,
    /// Periods in which they used up the quota and waited for the next.
    pub throttled: u64,
}

impl CpuQuota {
    /// The most exhausted of [`CpuQuota::all_of_process`], the innermost of equal ones.
    pub(super) fn of_process(host: &Host, pid: u32) -> Known<Option<Self>> {
        let most_throttled = |quotas: Vec<Self>| quotas.into_iter().rev().max_by_key(|quota| quota.throttled);
        Self::all_of_process(host, pid).map(most_throttled)
    }

    /// The quotas of the process's cgroup and its parents, the innermost first. Empty without a
    /// quota, for an ended process, and with cgroup v1.
    pub fn all_of_process(host: &Host, pid: u32) -> Known<Vec<Self>> {
        cgroup_path(host, &format!("/proc/{pid}")).map(|path| {
            let path = path.unwrap_or_default();
            let parents = std::iter::successors(Some(path.as_str()), |path| Some(path.rsplit_once('/')?.0));
            let cgroups = parents.filter(|path| path.len() > 1);
            cgroups.filter_map(|path| Self::of_cgroup(host, format!("/sys/fs/cgroup{path}"))).collect()
        })
    }

    /// `cpu.max` is a quota and a period in microseconds, or `max` for no limit
    /// (Documentation/admin-guide/cgroup-v2.rst).
    fn of_cgroup(host: &Host, cgroup: String) -> Option<Self> {
        let max = host.read(&format!("{cgroup}/cpu.max")).ok()?;
        let (quota, period) = max.trim().split_once(' ')?;
        let cpus = quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?;
        let stat = host.read(&format!("{cgroup}/cpu.stat")).ok()?;
        let count = |name: &str| {
            let line = stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.and_then(|value| value.parse().ok())
        };
        Some(Self { cgroup, cpus, periods: count("nr_periods")?, throttled: count("nr_throttled")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_quota_of_a_parent_cgroup_applies_to_the_process() {
        let stat =
            "usage_usec 5\nuser_usec 4\nsystem_usec 1\nnr_periods 91\nnr_throttled 77\nthrottled_usec 9\n";
        let host = Host::scripted([
            ("/proc/50/cgroup", "0::/system.slice/dns.service\n"),
            ("/sys/fs/cgroup/system.slice/dns.service/cpu.max", "max 100000\n"),
            ("/sys/fs/cgroup/system.slice/dns.service/cpu.stat", "usage_usec 5\n"),
            ("/sys/fs/cgroup/system.slice/cpu.max", "20000 100000\n"),
            ("/sys/fs/cgroup/system.slice/cpu.stat", stat),
            ("/proc/51/cgroup", "0::/\n"),
        ]);
        let cgroup = "/sys/fs/cgroup/system.slice".to_owned();
        let expected = CpuQuota { cgroup, cpus: 0.2, periods: 91, throttled: 77 };
        assert_eq!(CpuQuota::of_process(&host, 50), Known::Value(Some(expected)));
        assert_eq!(CpuQuota::of_process(&host, 51), Known::Value(None));
        assert_eq!(CpuQuota::of_process(&host, 52), Known::Value(None));
    }
}
