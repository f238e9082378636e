//! The cgroup of a process.

use linerate_host::{Host, Known};

// From the most specific hierarchy.
pub(super) fn path(host: &Host, pid: u32) -> Known<String> {
    let file = format!("/proc/{pid}/cgroup");
    Known::from(host.read(&file))
        .and_then(|text| parse(&text).ok_or_else(|| format!("{file}: no cgroup in it")).into())
}

// One line per hierarchy: number, controllers and path separated by colons; number 0 is the unified
// hierarchy (cgroups(7)). If it is unused, containers use version 1, with the longest path.
pub(crate) fn parse(text: &str) -> Option<String> {
    let lines = text.lines().filter_map(|line| {
        let (hierarchy, controllers_and_path) = line.split_once(':')?;
        let (_, path) = controllers_and_path.split_once(':')?;
        path.starts_with('/').then_some((hierarchy == "0", path))
    });
    let best = lines.max_by_key(|(is_unified, path)| (*is_unified && *path != "/", path.len()));
    best.map(|(_, path)| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unified_cgroup_path_is_preferred_unless_it_is_the_root() {
        for (text, expected) in [
            ("0::/system.slice/nsd.service\n", Some("/system.slice/nsd.service")),
            ("4:memory:/a/very/long/path/of/version/1\n0::/user.slice\n", Some("/user.slice")),
            ("9:name=systemd:/\n4:memory:/docker/12ab\n0::/\n", Some("/docker/12ab")),
            ("0::/\n", Some("/")),
            ("0::/with:colons\n", Some("/with:colons")),
            ("", None),
            ("0::\n", None),
        ] {
            assert_eq!(parse(text).as_deref(), expected, "{text}");
        }
    }
}
