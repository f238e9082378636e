//! Control groups (v2) of the copies of a server. Their names identify the supervisor, so that the
//! remains of a killed supervisor can be found without a file.
//!
//! `linerate-boost-PID-STARTED` is the group of a supervisor, with a group per copy (`0`, `1`, ...)
//! and an empty group per shared port (`port-53`). The supervisor locks the empty group `supervised`
//! as long as it runs. An additional group `taking-over` means that it is taking the port over, and
//! `replaced` that other copies have taken the port over.

use std::fs::{self, File};
use std::io;
use std::os::fd::IntoRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use linerate_host::{Host, process};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, XattrFlags, getxattr, setxattr};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use rustix::process::{Pid, Signal, kill_process};

use super::ReplicaError;
use crate::boost::ObservedServer;

/// Longest wait for the processes of a control group to end or freeze.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

const PREFIX: &str = "linerate-boost-";
const PORT_PREFIX: &str = "port-";
/// A group below the group of a supervisor whose port was handed over.
const REPLACED: &str = "replaced";
/// A group that the supervisor locks: in another PID namespace its process id is that of another
/// process, or of none.
const SUPERVISED: &str = "supervised";
/// A group below the group of a supervisor that takes a port over, until the old server has ended.
const TAKING_OVER: &str = "taking-over";
/// Attribute of a copy's group. Groups have attributes of users since Linux 5.7.
const RESTARTS: &str = "user.linerate.restarts";

/// The hierarchy of control groups, v2.
pub(super) struct CgroupTree {
    root: PathBuf,
}

/// The group of one supervisor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaCgroup {
    pub path: PathBuf,
    pub supervisor: u32,
    /// Start time of the supervisor in clock ticks since boot.
    started: u64,
    pub ports: Vec<u16>,
}

/// Only one process at a time steers the port of a group.
pub(super) struct SwitchLock {
    _directory: File,
    path: PathBuf,
}

impl SwitchLock {
    /// From now on the supervisor neither restarts copies nor steers them.
    pub(super) fn mark_replaced(&self) -> io::Result<()> {
        fs::create_dir(self.path.join(REPLACED))
    }

    /// The supervisor restarts copies again.
    pub(super) fn clear_replaced(&self) -> io::Result<()> {
        fs::remove_dir(self.path.join(REPLACED))
    }
}

impl CgroupTree {
    /// The mounted hierarchy. If it is not visible, as in a namespace with its own `/sys`, a
    /// detached mount.
    pub(super) fn open(host: &Host) -> Result<Self, ReplicaError> {
        let mounts = host.read("/proc/self/mountinfo")?;
        let is_mounted = |root: &PathBuf| root.join("cgroup.procs").exists();
        if let Some(root) = mount_points(&mounts).map(PathBuf::from).find(is_mounted) {
            return Ok(Self { root });
        }
        let mount = fsopen(c"cgroup2", FsOpenFlags::FSOPEN_CLOEXEC).and_then(|context| {
            fsconfig_create(&context)?;
            fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
        });
        let mount = mount.map_err(|errno| ReplicaError::NoCgroups { source: errno.into() })?;
        // Paths of groups begin with it, so it stays open as long as this process runs.
        let root = PathBuf::from(format!("/proc/self/fd/{}", mount.into_raw_fd()));
        Ok(Self { root })
    }

    fn own_group(&self, host: &Host) -> Result<PathBuf, ReplicaError> {
        let groups = host.read("/proc/self/cgroup")?;
        let path = groups.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
        let group = self.root.join(path);
        Ok(if group.is_dir() { group } else { self.root.clone() })
    }

    /// Creates a group below the group of this process, so that its limits apply and systemd knows
    /// the copies.
    pub(super) fn create(&self, host: &Host, copies: u32) -> Result<ReplicaCgroup, ReplicaError> {
        let supervisor = std::process::id();
        let started = process::start_time(host, "/proc/self")?;
        let path = self.own_group(host)?.join(format!("{PREFIX}{supervisor}-{started}"));
        let make_directory = |path: &Path| {
            fs::create_dir(path).map_err(|error| {
                ReplicaError::Refused(format!(
                    "cannot make the control group {}: {error}; in a container use linerate boost attach --cgroup PATH \
                     on the host",
                    path.display()
                ))
            })
        };
        make_directory(&path)?;
        let group = ReplicaCgroup { path, supervisor, started, ports: Vec::new() };
        for copy in 0..copies {
            make_directory(&group.copy_path(copy))?;
        }
        Ok(group)
    }

    /// The groups whose copies or supervisor are in this network namespace, and groups without
    /// processes.
    pub(super) fn groups(&self, host: &Host) -> Vec<ReplicaCgroup> {
        let mut groups = Vec::new();
        search(&self.root, &mut groups);
        // Other users may use such a name in their own part of the hierarchy.
        let euid = rustix::process::geteuid().as_raw();
        groups.retain(|group| fs::metadata(&group.path).is_ok_and(|metadata| metadata.uid() == euid));
        let own_namespace = host.read_link("/proc/self/ns/net").ok();
        let is_in_namespace =
            |pid: &u32| host.read_link(&format!("/proc/{pid}/ns/net")).ok() == own_namespace;
        groups.retain(|group| {
            let mut processes = group.processes();
            if group.is_supervisor_visible(host) {
                processes.push(group.supervisor);
            }
            // Processes of other PID namespaces may be in any network namespace.
            processes.is_empty() && !group.has_hidden_processes() || processes.iter().any(is_in_namespace)
        });
        groups
    }
}

/// The mount points of cgroup2, the unified hierarchy.
fn mount_points(mountinfo: &str) -> impl Iterator<Item = &str> {
    mountinfo.lines().filter_map(|line| {
        let (mount, filesystem) = line.split_once(" - ")?;
        if filesystem.split(' ').next() == Some("cgroup2") { mount.split(' ').nth(4) } else { None }
    })
}

fn search(directory: &Path, groups: &mut Vec<ReplicaCgroup>) {
    for name in directories(directory) {
        let path = directory.join(&name);
        match parse_group(&path, &name) {
            Some(group) => groups.push(group),
            None => search(&path, groups),
        }
    }
}

fn parse_group(path: &Path, name: &str) -> Option<ReplicaCgroup> {
    let (supervisor, started) = name.strip_prefix(PREFIX)?.split_once('-')?;
    let ports =
        directories(path).iter().filter_map(|name| name.strip_prefix(PORT_PREFIX)?.parse().ok()).collect();
    Some(ReplicaCgroup {
        path: path.to_owned(),
        supervisor: supervisor.parse().ok()?,
        started: started.parse().ok()?,
        ports,
    })
}

fn directories(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let is_directory = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    entries.filter(is_directory).filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

impl ReplicaCgroup {
    pub(super) fn copy_path(&self, copy: u32) -> PathBuf {
        self.path.join(copy.to_string())
    }

    /// The ID of the group in BPF programs and in the kernel.
    pub(super) fn id_of_copy(&self, copy: u32) -> io::Result<u64> {
        Ok(fs::metadata(self.copy_path(copy))?.ino())
    }

    pub(super) fn procs_of_copy(&self, copy: u32) -> io::Result<File> {
        File::options().write(true).open(self.copy_path(copy).join("cgroup.procs"))
    }

    pub(super) fn copies(&self) -> Vec<u32> {
        let mut copies: Vec<u32> =
            directories(&self.path).iter().filter_map(|name| name.parse().ok()).collect();
        copies.sort_unstable();
        copies
    }

    /// How many times a copy was started again.
    pub(super) fn restarts(&self, copy: u32) -> io::Result<u32> {
        let mut text = [0_u8; 10];
        let length = match getxattr(self.copy_path(copy), RESTARTS, &mut text) {
            Err(Errno::NODATA) => return Ok(0),
            result => result?,
        };
        let text = std::str::from_utf8(&text[..length]).map_err(io::Error::other)?;
        text.parse().map_err(io::Error::other)
    }

    pub(super) fn set_restarts(&self, copy: u32, restarts: u32) -> io::Result<()> {
        let text = restarts.to_string();
        Ok(setxattr(self.copy_path(copy), RESTARTS, text.as_bytes(), XattrFlags::empty())?)
    }

    pub(super) fn add_port(&mut self, port: u16) -> io::Result<()> {
        if !self.ports.contains(&port) {
            self.ports.push(port);
            fs::create_dir(self.path.join(format!("{PORT_PREFIX}{port}")))?;
        }
        Ok(())
    }

    /// Marks the group as supervised until the file is closed.
    pub(super) fn supervise(&self) -> io::Result<File> {
        let path = self.path.join(SUPERVISED);
        fs::create_dir(&path)?;
        let directory = File::open(path)?;
        rustix::fs::flock(&directory, FlockOperation::LockExclusive)?;
        Ok(directory)
    }

    /// Whether the process that created the group still runs, in any PID namespace.
    pub fn is_supervised(&self, host: &Host) -> bool {
        let is_locked = |directory: File| {
            rustix::fs::flock(&directory, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK)
        };
        self.is_supervisor_visible(host) || File::open(self.path.join(SUPERVISED)).is_ok_and(is_locked)
    }

    /// Whether the process that created the group still runs, and has the same process id here.
    pub fn is_supervisor_visible(&self, host: &Host) -> bool {
        process::start_time(host, &format!("/proc/{}", self.supervisor))
            .is_ok_and(|started| started == self.started)
    }

    /// Whether the port of its copies was handed over to other copies.
    pub fn is_replaced(&self) -> bool {
        self.path.join(REPLACED).exists()
    }

    pub(super) fn begin_takeover(&self) -> io::Result<()> {
        fs::create_dir(self.path.join(TAKING_OVER))
    }

    pub(super) fn end_takeover(&self) -> io::Result<()> {
        fs::remove_dir(self.path.join(TAKING_OVER))
    }

    pub(super) fn is_taking_over(&self) -> bool {
        self.path.join(TAKING_OVER).exists()
    }

    /// Held while the port is steered, by the supervisor or by another process that takes the port
    /// over.
    pub(super) fn lock_steering(&self) -> io::Result<SwitchLock> {
        let directory = File::open(&self.path)?;
        rustix::fs::flock(&directory, FlockOperation::LockExclusive)?;
        Ok(SwitchLock { _directory: directory, path: self.path.clone() })
    }

    pub fn processes(&self) -> Vec<u32> {
        directories(&self.path).iter().flat_map(|name| processes(&self.path.join(name))).collect()
    }

    /// Whether it is the same group, whose path may lead through another mount.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        (self.supervisor, self.started) == (other.supervisor, other.started)
    }

    pub(super) fn has_server(&self, server: &ObservedServer) -> bool {
        self.processes().iter().any(|pid| server.processes.iter().any(|process| process.pid == *pid))
    }

    /// Why another server cannot have the port.
    pub(super) fn conflict(&self, host: &Host, port: u16) -> ReplicaError {
        let supervisor = self.supervisor;
        let owner = match (self.is_supervisor_visible(host), self.is_supervised(host)) {
            (true, _) => format!("linerate process {supervisor} already: end that process first"),
            (false, true) => format!(
                "a linerate process in another PID namespace (process {supervisor} there, as in a container): end that \
                 process first, or run linerate there"
            ),
            (false, false) => format!(
                "linerate process {supervisor}, which was killed: end the copies first: linerate boost undo --port {port}"
            ),
        };
        ReplicaError::Refused(format!("port {port} is shared by the copies of {owner}"))
    }

    /// Whether it has processes whose ids are not visible in this PID namespace.
    fn has_hidden_processes(&self) -> bool {
        let procs = |name: String| fs::read_to_string(self.path.join(name).join("cgroup.procs"));
        let mut lists = directories(&self.path).into_iter().filter_map(|name| procs(name).ok());
        lists.any(|list| list.lines().any(|pid| pid == "0"))
    }

    pub(super) fn processes_of_copy(&self, copy: u32) -> Vec<u32> {
        processes(&self.copy_path(copy))
    }

    /// Ends all processes, with SIGKILL if they ignore SIGTERM, and removes the group.
    pub(super) fn remove(&self) -> io::Result<()> {
        for pid in self.processes() {
            if let Some(pid) = Pid::from_raw(pid.cast_signed()) {
                // It may have ended meanwhile.
                let _ = kill_process(pid, Signal::TERM);
            }
        }
        if !wait_until_empty(&self.path, PATIENCE)? {
            kill(&self.path)?;
            wait_until_empty(&self.path, PATIENCE)?;
        }
        self.remove_directories()
    }

    pub(super) fn remove_directories(&self) -> io::Result<()> {
        remove(&self.path)
    }
}

/// The processes in the group and below it.
fn processes(group: &Path) -> Vec<u32> {
    let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    let mut pids: Vec<u32> =
        text.lines().filter_map(|line| line.parse().ok()).filter(|pid| *pid > 0).collect();
    pids.extend(directories(group).iter().flat_map(|name| processes(&group.join(name))));
    pids
}

fn remove(directory: &Path) -> io::Result<()> {
    for name in directories(directory) {
        remove(&directory.join(name))?;
    }
    fs::remove_dir(directory)
}

/// Kills all processes of a group (`cgroup.kill`, Linux 5.14).
pub(super) fn kill(group: &Path) -> io::Result<()> {
    fs::write(group.join("cgroup.kill"), "1")
}

pub(super) fn is_populated(group: &Path) -> bool {
    fs::read_to_string(group.join("cgroup.events")).is_ok_and(|events| events.contains("populated 1"))
}

/// Whether all processes have ended in time.
pub(super) fn wait_until_empty(group: &Path, patience: Duration) -> io::Result<bool> {
    wait_until(group, "populated 0", patience)
}

/// Restarts the system calls in which the processes wait (`cgroup.freeze`, Linux 5.2).
pub(super) fn restart_calls(group: &Path) -> io::Result<()> {
    let freeze = group.join("cgroup.freeze");
    fs::write(&freeze, "1")?;
    let frozen = wait_until(group, "frozen 1", PATIENCE);
    fs::write(&freeze, "0")?;
    frozen.map(|_| ())
}

/// Waits until this line is in `cgroup.events`; false if it is not in time.
fn wait_until(group: &Path, line: &str, patience: Duration) -> io::Result<bool> {
    let events = File::open(group.join("cgroup.events"))?;
    let deadline = Instant::now() + patience;
    while !fs::read_to_string(group.join("cgroup.events"))?.lines().any(|event| event == line) {
        let remaining = deadline.saturating_duration_since(Instant::now());
        if remaining.is_zero() {
            return Ok(false);
        }
        // The kernel reports changes of the file as an urgent condition.
        let timeout = Timespec::try_from(remaining).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&events, PollFlags::PRI)], Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        // Reading from the start arms the next report.
        rustix::io::pread(&events, &mut [0_u8; 128], 0)?;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroup2_mount_is_found_next_to_cgroup1_mounts() {
        let mountinfo = "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
                         32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu\n\
                         41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:4 - cgroup2 cgroup2 rw\n";
        assert_eq!(mount_points(mountinfo).collect::<Vec<_>>(), ["/sys/fs/cgroup/unified"]);
        assert_eq!(mount_points("").count(), 0);
    }

    #[test]
    fn cgroup_is_supervised_while_its_mark_is_locked() {
        let directory = tempfile::tempdir().expect("a directory");
        // As in another PID namespace, in which the supervisor's process id is that of no process.
        let group = ReplicaCgroup {
            path: directory.path().to_owned(),
            supervisor: 4_000_000_000,
            started: 1,
            ports: Vec::new(),
        };
        let host = Host::live();
        assert!(!group.is_supervised(&host));
        let supervision = group.supervise().expect("locked");
        assert!(group.is_supervised(&host) && !group.is_supervisor_visible(&host));
        drop(supervision);
        assert!(!group.is_supervised(&host));
    }

    #[test]
    fn cgroup_with_processes_of_another_pid_namespace_has_hidden_processes() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().to_owned();
        let group = ReplicaCgroup { path, supervisor: 7, started: 1, ports: Vec::new() };
        fs::create_dir(group.copy_path(0)).expect("made");
        for (text, hidden) in [("", false), ("812\n10\n", false), ("0\n0\n", true)] {
            fs::write(group.copy_path(0).join("cgroup.procs"), text).expect("written");
            assert_eq!(group.has_hidden_processes(), hidden, "{text}");
        }
    }
}
