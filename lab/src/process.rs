//! Processes from /proc: whether they run, and in which network namespace; and the wait for the end
//! of one, or for any other descriptor.

use std::fs::{self, File};
use std::io::{self, Read};
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use linerate_host::Host;
use linerate_host::stage::thread::TaskStat;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use crate::namespace::NamespaceId;

/// Identifies a process even if its number is reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    pub pid: i32,
    /// When it started, in clock ticks since boot (field 22 of /proc/PID/stat).
    pub start_ticks: u64,
}

/// A process found in a namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FoundProcess {
    pub pid: i32,
    /// Name of its program, 15 bytes at most (/proc/PID/comm).
    pub command: String,
}

/// Longest wait for a killed process. Only an uninterruptible wait takes longer.
const DEATH_DEADLINE: Duration = Duration::from_secs(5);
/// Most searches for processes that were forked while other processes were killed.
const KILL_ROUNDS: usize = 20;

impl ProcessId {
    pub(crate) fn own() -> io::Result<Self> {
        Self::from_pid(rustix::process::getpid().as_raw_nonzero().get())
    }

    fn from_pid(pid: i32) -> io::Result<Self> {
        let start_ticks = read_stat(pid)?.started.ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { pid, start_ticks })
    }

    pub fn is_alive(self) -> bool {
        read_stat(self.pid).is_ok_and(|stat| !stat.ended && stat.started == Some(self.start_ticks))
    }

    /// Sends a signal and waits at most `max_wait` for the process to end; `false` if it still runs.
    pub(crate) fn end(self, signal: Signal, max_wait: Duration) -> io::Result<bool> {
        end(self.pid, signal, max_wait, || self.is_alive())
    }
}

/// Kills every chosen process except this one. Returns the killed processes and the processes that
/// still run.
pub(crate) fn end_all(is_chosen: impl Fn(i32) -> bool) -> (Vec<FoundProcess>, Vec<FoundProcess>) {
    let own_pid = rustix::process::getpid().as_raw_nonzero().get();
    let is_chosen = |pid: i32| pid != own_pid && is_chosen(pid);
    let mut killed: Vec<FoundProcess> = Vec::new();
    for _ in 0..KILL_ROUNDS {
        let pids = matching_pids(is_chosen);
        if pids.is_empty() {
            break;
        }
        let mut all_ended = true;
        for pid in pids {
            let process = FoundProcess::describe(pid);
            // The number may belong to another process by now.
            let end_result = end(pid, Signal::KILL, DEATH_DEADLINE, || is_chosen(pid));
            if !end_result.unwrap_or(false) {
                all_ended = false;
            } else if !killed.contains(&process) {
                killed.push(process);
            }
        }
        if !all_ended {
            break;
        }
    }
    (killed, matching_pids(is_chosen).into_iter().map(FoundProcess::describe).collect())
}

impl FoundProcess {
    fn describe(pid: i32) -> Self {
        let command = fs::read(path(pid, "comm")).unwrap_or_default();
        Self { pid, command: String::from_utf8_lossy(&command).trim_end().to_owned() }
    }
}

/// Whether the first thread of a process is in one of the namespaces; `None` if that is hidden.
///
/// It is hidden from other users, and from processes in another user namespace that is not below the present one
/// (ptrace access mode, see proc_pid_ns(5)).
pub(crate) fn is_inside(pid: i32, namespaces: &[NamespaceId]) -> Option<bool> {
    match NamespaceId::from_path(&path(pid, "ns/net")) {
        Ok(id) => Some(namespaces.contains(&id)),
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => None,
        Err(_) => Some(false),
    }
}

/// Whether the current user may kill a process.
pub(crate) fn is_own(pid: i32) -> bool {
    let user_id = rustix::process::geteuid().as_raw();
    fs::metadata(path(pid, "")).is_ok_and(|metadata| metadata.uid() == user_id)
}

/// Whether the network namespace of a process has all these addresses.
///
/// This is never hidden, because /proc/PID/net is readable by all users.
pub(crate) fn has_addresses(pid: i32, addresses: &[Ipv4Addr]) -> bool {
    let mut table = Vec::new();
    let read_result =
        File::open(path(pid, "net/fib_trie")).and_then(|file| file.take(TABLE_LIMIT).read_to_end(&mut table));
    read_result.is_ok() && lists_all(&String::from_utf8_lossy(&table), addresses)
}

/// Bytes of a routing table that are read. A lab's table is far shorter.
const TABLE_LIMIT: u64 = 1 << 20;

fn lists_all(table: &str, addresses: &[Ipv4Addr]) -> bool {
    let is_listed = |address: &Ipv4Addr| {
        let address = address.to_string();
        table.split_ascii_whitespace().any(|word| word == address)
    };
    addresses.iter().all(is_listed)
}

fn matching_pids(is_chosen: impl Fn(i32) -> bool) -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| is_chosen(*pid))
        .collect()
}

fn end(pid: i32, signal: Signal, max_wait: Duration, is_same_process: impl Fn() -> bool) -> io::Result<bool> {
    let Some(raw) = Pid::from_raw(pid) else {
        return Ok(true);
    };
    let descriptor = match pidfd_open(raw, PidfdFlags::empty()) {
        Ok(descriptor) => descriptor,
        Err(Errno::SRCH) => return Ok(true),
        Err(errno) => return Err(errno.into()),
    };
    // From here on the descriptor refers to one process. Check that it is the right process.
    if !is_same_process() {
        return Ok(true);
    }
    match pidfd_send_signal(&descriptor, signal) {
        Ok(()) => wait_readable(descriptor.as_fd(), max_wait),
        Err(Errno::SRCH) => Ok(true),
        Err(errno) => Err(errno.into()),
    }
}

/// Waits until something can be read; `false` when the time is over.
pub(crate) fn wait_readable(fd: BorrowedFd<'_>, max_wait: Duration) -> io::Result<bool> {
    let deadline = Instant::now() + max_wait;
    loop {
        let remaining = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: i64::try_from(remaining.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: remaining.subsec_nanos().into(),
        };
        let mut poll_fds = [PollFd::new(&fd, PollFlags::IN)];
        match poll(&mut poll_fds, Some(&timeout)) {
            Ok(ready) => return Ok(ready > 0),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

fn read_stat(pid: i32) -> io::Result<TaskStat> {
    TaskStat::of_process(&Host::live(), pid.cast_unsigned()).map_err(io::Error::other)
}

fn path(pid: i32, file: &str) -> PathBuf {
    Path::new("/proc").join(pid.to_string()).join(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_killed_process_is_not_alive_before_wait() {
        let mut child = std::process::Command::new("/bin/sleep").arg("60").spawn().unwrap();
        let id = ProcessId::from_pid(i32::try_from(child.id()).unwrap()).unwrap();
        assert!(id.is_alive());
        assert!(id.end(Signal::KILL, Duration::from_secs(10)).unwrap());
        assert!(!id.is_alive());
        child.wait().unwrap();
    }

    #[test]
    fn lists_all_requires_every_address_in_fib_trie() {
        let table = "Local:\n  +-- 127.0.0.0/8 2 0 2\n     |-- 127.0.0.1\n        /32 host LOCAL\n     \
                     |-- 127.200.1.2\n        /32 host LOCAL\n";
        let a = Ipv4Addr::new(127, 200, 1, 2);
        let b = Ipv4Addr::new(127, 200, 1, 20);
        assert!(lists_all(table, &[a, Ipv4Addr::LOCALHOST]));
        assert!(!lists_all(table, &[a, b]));
        let own = rustix::process::getpid().as_raw_nonzero().get();
        assert!(!has_addresses(own, &[a, b]));
    }
}
