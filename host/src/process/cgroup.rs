//! The control group of a process in cgroup v2.

use crate::known::UnknownReason;
use crate::{Host, Known};

/// The path of the group from the root of the hierarchy, such as `/system.slice/dns.service`.
/// `None` with cgroup v1, and for a process or thread that has ended. `directory` is such as
/// `/proc/50`.
///
/// The kernel prints the path from the root of the reader's cgroup namespace, with `/..` for each
/// level up from there (proc_cgroup_show in kernel/cgroup/cgroup.c). The group of process 1 is not
/// below that root, so its path shows how many levels lead to the root of the hierarchy.
pub fn cgroup_path(host: &Host, directory: &str) -> Known<Option<String>> {
    read_path(host, directory).into()
}

fn read_path(host: &Host, directory: &str) -> Result<Option<String>, UnknownReason> {
    let Some(path) = printed_path(host, directory)? else { return Ok(None) };
    let first_path = printed_path(host, "/proc/1").ok().flatten().unwrap_or_default();
    let (levels, path_below) = split_levels(&path);
    if levels == split_levels(&first_path).0 {
        return Ok(Some(path_below.to_owned()));
    }
    Err(format!(
        "{directory}/cgroup: the path {path} starts at the cgroup namespace of linerate, \
         and the host's path is not known"
    )
    .into())
}

fn printed_path(host: &Host, directory: &str) -> Result<Option<String>, UnknownReason> {
    let text = match host.read(&format!("{directory}/cgroup")) {
        Err(error) if error.is_ended() => return Ok(None),
        text => text?,
    };
    Ok(text.lines().find_map(|line| line.strip_prefix("0::")).map(|path| path.trim_end().to_owned()))
}

/// The number of leading `/..`, and the rest.
fn split_levels(path: &str) -> (usize, &str) {
    let (mut levels, mut rest) = (0, path);
    while let Some(tail) = rest.strip_prefix("/..").filter(|tail| tail.is_empty() || tail.starts_with('/')) {
        (levels, rest) = (levels + 1, tail);
    }
    (levels, if rest.is_empty() { "/" } else { rest })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroup_paths_start_at_the_root_of_the_hierarchy() {
        let path_with = |first: &str, path: &str| {
            let files = [("/proc/1/cgroup", first), ("/proc/50/cgroup", path)];
            cgroup_path(&Host::scripted(files), "/proc/50")
        };
        let service = Known::Value(Some("/system.slice/dns.service".to_owned()));
        assert_eq!(path_with("0::/init.scope\n", "4:cpu:/a\n0::/system.slice/dns.service\n"), service);
        let init = "0::/../../../init.scope\n";
        assert_eq!(path_with(init, "0::/../../../system.slice/dns.service\n"), service);
        assert_eq!(path_with("0::/../..\n", "0::/../..\n"), Known::Value(Some("/".to_owned())));
        // The group of another container, of linerate's own container, and of no container.
        for path in ["/../other.scope", "/", "/../../../../system.slice"] {
            let reason = path_with(init, &format!("0::{path}\n"));
            assert!(reason.why_contains(path), "{reason:?}");
        }
        assert_eq!(path_with(init, "4:cpu:/a\n"), Known::Value(None));
        assert_eq!(cgroup_path(&Host::scripted([("/proc/1/cgroup", init)]), "/proc/50"), Known::Value(None));
    }
}
