//! Limits of a process: the CPUs of its control group, its namespaces, and the capabilities of this
//! process.

use std::iter::successors;

use linerate_host::process::cgroup_path;
use linerate_host::{CpuSet, Host};

/// `CAP_SYS_PTRACE` of linux/capability.h: to read and copy the descriptors of other users'
/// processes.
const SYS_PTRACE: u32 = 19;

/// The CPUs that the control group of a thread permits; `None` without a limit, or if it is unknown.
pub(crate) fn cpuset(host: &Host, pid: u32, tid: u32, online: Option<&CpuSet>) -> Option<CpuSet> {
    let (root, group, file) = cpuset_group(host, &format!("/proc/{pid}/task/{tid}"))?;
    // A group without the controller has the limit of the nearest group above that has the
    // controller.
    let mut groups = successors(Some(group.trim_end_matches('/')), |group| Some(group.rsplit_once('/')?.0));
    let list = groups.find_map(|group| host.read(&format!("{root}{group}/{file}")).ok())?;
    let cpus = CpuSet::from_list(&list).ok()?;
    let has_all_online = online.is_some_and(|online| online.iter().all(|cpu| cpus.contains(cpu)));
    (!has_all_online && !cpus.is_empty()).then_some(cpus)
}

/// Where the hierarchy with the CPUs of a thread is mounted, the thread's group in it, and the name of
/// the file.
///
/// From lines such as `0::/system.slice/nsd.service`, or `4:cpuset:/` of version 1 (cgroups(7)). If
/// both versions exist, version 1 has precedence, because a controller is in one version only.
fn cpuset_group(host: &Host, thread: &str) -> Option<(&'static str, String, &'static str)> {
    let groups = host.read(&format!("{thread}/cgroup")).ok()?;
    let mut lines = groups.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
    let cpuset_line = lines.find(|(names, _)| names.split(',').any(|name| name == "cpuset"));
    if let Some((_, group)) = cpuset_line {
        return Some(("/sys/fs/cgroup/cpuset", group.to_owned(), "cpuset.effective_cpus"));
    }
    let group = cgroup_path(host, thread).into_value().flatten()?;
    Some(("/sys/fs/cgroup", group, "cpuset.cpus.effective"))
}

/// Whether this process may trace processes of other users; true if that is unknown.
pub(super) fn may_trace(host: &Host) -> bool {
    let status = host.read("/proc/thread-self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    effective.is_none_or(|bits| bits & (1 << SYS_PTRACE) != 0)
}

/// The PID that a process has in its own PID namespace, if that is not the namespace of `pid`.
pub(super) fn inner_pid(host: &Host, pid: u32) -> Option<u32> {
    let status = host.read(&format!("/proc/{pid}/status")).ok()?;
    let ids = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    let ids: Vec<u32> = ids.split_whitespace().filter_map(|id| id.parse().ok()).collect();
    let index = ids.iter().position(|id| *id == pid)?;
    ids.get(index + 1..)?.last().copied()
}

/// Gives any text to the parsers of a process's files, for the fuzzer.
pub(crate) fn any_text(text: &str) {
    let files = ["/proc/50/task/51/cgroup", "/proc/50/status", "/proc/thread-self/status"];
    let host = Host::scripted(files.map(|file| (file, text)));
    let _ = (cpuset(&host, 50, 51, None), inner_pid(&host, 50), may_trace(&host));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpuset_is_read_from_the_nearest_cgroup_that_has_one() {
        let cgroup = "0::/system.slice/nsd.service\n";
        let of = |files: &[(&str, &str)]| {
            let host = Host::scripted(files.iter().copied());
            cpuset(&host, 50, 51, Some(&(0..4).collect())).map(|cpus| cpus.to_string())
        };
        let at = "/proc/50/task/51/cgroup";
        let v2 = "/sys/fs/cgroup/system.slice/cpuset.cpus.effective";
        assert_eq!(of(&[(at, cgroup), (v2, "0-1\n")]), Some("0-1".to_owned()));
        assert_eq!(of(&[(at, cgroup), (v2, "0-3\n")]), None);
        assert_eq!(
            of(&[(at, cgroup), ("/sys/fs/cgroup/cpuset.cpus.effective", "2\n")]),
            Some("2".to_owned())
        );
        let v1 = [(at, "4:cpu,cpuset:/a\n0::/b\n"), ("/sys/fs/cgroup/cpuset/a/cpuset.effective_cpus", "1\n")];
        assert_eq!(of(&v1), Some("1".to_owned()));
        assert_eq!((of(&[(at, cgroup)]), of(&[(at, "0::/../..\n")]), of(&[])), (None, None, None));
    }

    #[test]
    fn inner_pid_is_the_last_nspid_of_a_nested_process() {
        let of = |ids: &str| {
            inner_pid(&Host::scripted([("/proc/50/status", format!("Name:\tnsd\nNSpid:\t{ids}\n"))]), 50)
        };
        assert_eq!(
            (of("50\t7"), of("50\t9\t7"), of("50"), of("900\t50\t7")),
            (Some(7), Some(7), None, Some(7))
        );
    }

    #[test]
    fn may_trace_checks_the_effective_capability_bits() {
        let may_trace_with = |bits: &str| {
            may_trace(&Host::scripted([("/proc/thread-self/status", format!("CapEff:\t{bits}\n"))]))
        };
        assert!(
            may_trace_with("000001ffffffffff")
                && may_trace_with("0000000000080000")
                && !may_trace_with("0000000000000000")
        );
        assert!(may_trace(&Host::scripted::<String, String>([])));
    }
}
