//! A lab without root: in a user namespace of its own.

use std::fs;
use std::io;

use linerate_host::Host;
use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::thread::{CapabilitySet, UnshareFlags, capabilities};

use crate::rtnetlink::{self, RtnetlinkConnection};
use crate::sys;

/// The rights of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LabPrivilege {
    /// It has the capabilities that a lab requires.
    Root,
    /// It is root in its own user namespace: enough for a lab, not for settings of the whole machine.
    UserNamespace,
    /// Neither is possible.
    Forbidden {
        /// The rule of this machine that forbids it.
        why: String,
        /// How to allow it, or what to do instead.
        how_to_allow: String,
    },
}

/// Makes the process root in a user namespace of its own, if it lacks the capabilities for a lab.
///
/// Call it before any thread starts: only a process with one thread can change its user namespace.
/// The process also gets a network namespace (with loopback up) and a mount namespace. The current
/// user becomes root there, and files belong to that user.
///
/// After [`LabPrivilege::Forbidden`] the process may be inside a useless user namespace (Ubuntu's AppArmor rule allows to
/// create it and removes its rights), so it should report the reason and end.
pub fn enter_if_needed() -> LabPrivilege {
    if has_capabilities() {
        return LabPrivilege::Root;
    }
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    if let Err(errno) = sys::unshare(NEEDED) {
        return forbidden(errno);
    }
    match become_root(uid.as_raw(), gid.as_raw()) {
        Ok(()) => LabPrivilege::UserNamespace,
        Err((operation, error)) => {
            let failure = format!("a user namespace was made, but {operation} failed: {error}");
            match restriction(&Host::live()) {
                Some((rule, remedy)) => LabPrivilege::Forbidden {
                    why: format!("{rule} ({failure})"),
                    how_to_allow: format!("{remedy}, or run as root"),
                },
                None => LabPrivilege::Forbidden { why: failure, how_to_allow: "run as root".to_owned() },
            }
        }
    }
}

/// Returns the expected result of [`enter_if_needed`], tried in a child process.
pub fn probe() -> LabPrivilege {
    if has_capabilities() {
        return LabPrivilege::Root;
    }
    match sys::try_unshare(NEEDED) {
        Ok(()) => LabPrivilege::UserNamespace,
        Err(error) => forbidden(error),
    }
}

const NEEDED: UnshareFlags = UnshareFlags::NEWUSER.union(UnshareFlags::NEWNS).union(UnshareFlags::NEWNET);

fn has_capabilities() -> bool {
    capabilities(None)
        .is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN))
}

fn become_root(uid: u32, gid: u32) -> Result<(), (&'static str, io::Error)> {
    // Without this the kernel refuses a group map from an ordinary user (since Linux 3.19).
    write("/proc/self/setgroups", "deny")?;
    write("/proc/self/uid_map", &format!("0 {uid} 1"))?;
    write("/proc/self/gid_map", &format!("0 {gid} 1"))?;
    mount_change(c"/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .map_err(|e| ("making mounts private", e.into()))?;
    RtnetlinkConnection::open()
        .map_err(|e| ("opening a netlink socket", e))?
        .change(&rtnetlink::link_up(rtnetlink::LOOPBACK))
        .map_err(|e| ("bringing up lo", e))
}

fn write(path: &'static str, text: &str) -> Result<(), (&'static str, io::Error)> {
    fs::write(path, text).map_err(|e| (path, e))
}

fn forbidden(errno: Errno) -> LabPrivilege {
    let (why, how_to_allow) = explain(&Host::live(), errno);
    LabPrivilege::Forbidden { why, how_to_allow }
}

/// Why `unshare` refuses a network namespace here, for an error message.
pub(crate) fn why_not_unshare(errno: Errno) -> String {
    if errno != Errno::PERM {
        // Limits, or a kernel without network namespaces.
        let (why, remedy) = explain(&Host::live(), errno);
        return format!("{why}; {remedy}");
    }
    match probe() {
        LabPrivilege::Forbidden { why, how_to_allow } => format!("{why}; {how_to_allow}"),
        LabPrivilege::UserNamespace => {
            "they are allowed here, but this process did not enter one before it had threads".to_owned()
        }
        LabPrivilege::Root => {
            "the capability is there, and yet the kernel refuses; a container's seccomp filter \
             does that: allow unshare and mount in it"
                .to_owned()
        }
    }
}

/// Settings that may forbid unprivileged user namespaces, with the value that does and one that does not.
const RESTRICTIONS: [(&str, &str, &str); 3] = [
    ("user.max_user_namespaces", "0", "10000"),
    // Debian's and Arch's patch.
    ("kernel.unprivileged_userns_clone", "0", "1"),
    // Ubuntu 23.10 and later.
    ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
];

/// The rule that forbids unprivileged user namespaces, and how to lift it.
fn restriction(host: &Host) -> Option<(String, String)> {
    let forbids = |(name, forbidding, _): &&(&str, &str, &str)| {
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        host.read(&path).is_ok_and(|value| value.trim() == *forbidding)
    };
    let (name, value, allowing) = RESTRICTIONS.iter().find(forbids)?;
    Some((format!("{name} is {value}"), format!("allow it: sysctl -w {name}={allowing}")))
}

/// The reason for an error of `unshare`, and its remedy.
fn explain(host: &Host, errno: Errno) -> (String, String) {
    const ROOT: &str = "run as root";
    if let Some((why, remedy)) = restriction(host) {
        return (why, format!("{remedy}, or {ROOT}"));
    }
    let is_filtered = host.read("/proc/self/status").is_ok_and(|status| {
        let mode = status.lines().find_map(|line| line.strip_prefix("Seccomp:"));
        mode.is_some_and(|mode| mode.trim() == "2")
    });
    match errno {
        Errno::PERM if is_filtered => (
            "a seccomp filter forbids unshare (a container's, most likely)".to_owned(),
            format!("start the container with --security-opt seccomp=unconfined, or {ROOT}"),
        ),
        Errno::PERM | Errno::ACCESS => {
            ("a security module or a chroot forbids it".to_owned(), ROOT.to_owned())
        }
        Errno::NOSPC | Errno::USERS => (
            "the limit of namespaces is reached (user.max_user_namespaces, \
             user.max_net_namespaces, user.max_mnt_namespaces)"
                .to_owned(),
            format!("raise it, or {ROOT}"),
        ),
        Errno::INVAL => (
            "the process has more than one thread, or the kernel has no user namespaces \
             (CONFIG_USER_NS)"
                .to_owned(),
            ROOT.to_owned(),
        ),
        other => (io::Error::from(other).to_string(), ROOT.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_forbidding_sysctl_is_reported_with_its_fix() {
        for (file, setting, value) in [
            ("user/max_user_namespaces", "user.max_user_namespaces", "0"),
            ("kernel/unprivileged_userns_clone", "kernel.unprivileged_userns_clone", "0"),
            (
                "kernel/apparmor_restrict_unprivileged_userns",
                "kernel.apparmor_restrict_unprivileged_userns",
                "1",
            ),
        ] {
            let file = format!("/proc/sys/{file}");
            let (why, how) = explain(&Host::scripted([(file, value)]), Errno::PERM);
            assert!(why.contains(setting), "{why}");
            assert!(how.contains(&format!("sysctl -w {setting}=")), "{how}");
            assert!(how.ends_with("or run as root"), "{how}");
        }
    }

    #[test]
    fn seccomp_filters_are_reported() {
        let host = Host::scripted([("/proc/self/status", "Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t1")]);
        assert!(explain(&host, Errno::PERM).0.contains("seccomp"));
        let host = Host::scripted([("/proc/self/status", "Name:\tx\nSeccomp:\t0")]);
        assert!(!explain(&host, Errno::PERM).0.contains("seccomp"));
    }

    #[test]
    fn enospc_is_reported_as_a_limit() {
        let host = Host::scripted([("/proc/sys/user/max_user_namespaces", "10000")]);
        assert!(explain(&host, Errno::NOSPC).0.contains("limit"));
    }
}
