//! A copy of a descriptor of another process's socket.
//!
//! `pidfd_getfd` (Linux 5.6) creates a descriptor of the same socket, as if the process had sent it
//! over a Unix socket: an option set on the copy changes the socket of the process, which does not
//! notice. If the process closes its descriptor, the socket exists until the copy is closed, so a
//! copy must not be kept.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::FileType;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use super::owners::{DescriptorKind, descriptors};
use crate::Host;
use crate::root::ExplainedErrno;

/// A copy of this descriptor of a process, which must be the socket with this inode.
///
/// Requires permission to trace the process (`PTRACE_MODE_ATTACH_REALCREDS`, pidfd_getfd of
/// kernel/pid.c, Linux 6.18).
///
/// # Errors
/// `ENOENT` if the process has ended or the descriptor is another file; `EPERM` names the
/// capability.
pub(crate) fn copy(inode: u64, (pid, descriptor): (u32, u32)) -> io::Result<OwnedFd> {
    let number = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
    let target_descriptor = i32::try_from(descriptor).map_err(|_| io::ErrorKind::InvalidInput)?;
    let copied = pidfd_open(number, PidfdFlags::empty())
        .and_then(|process| pidfd_getfd(&process, target_descriptor, PidfdGetfdFlags::empty()))
        .map_err(|error| explain_error(error.into(), pid, descriptor))?;
    // The descriptor may have been closed and reused since it was listed.
    let stat = rustix::fs::fstat(&copied)?;
    if stat.st_ino == inode && FileType::from_raw_mode(stat.st_mode) == FileType::Socket {
        Ok(copied)
    } else {
        let words = format!("descriptor {descriptor} of process {pid} is another thing now");
        Err(ExplainedErrno::error(libc::ENOENT, words))
    }
}

/// Like [`copy`], or from any other process that holds the socket: forked workers share sockets,
/// and the first known process may have ended.
///
/// # Errors
/// As [`copy`]; `ENOENT` if no process holds it, and `EACCES` if a process that might hold it
/// cannot be read.
pub(crate) fn copy_of_any(host: &Host, inode: u64, first: (u32, u32)) -> io::Result<OwnedFd> {
    match copy(inode, first) {
        Err(error) if is_gone(&error) => {}
        result => return result,
    }
    let mut unreadable_pid = None;
    for pid in host.list_numbers("/proc", "").map_err(io::Error::other)? {
        let descriptors = match descriptors(host, pid) {
            Ok(descriptors) => descriptors,
            Err(error) => {
                unreadable_pid = unreadable_pid.or(error.is_denied().then_some(pid));
                continue;
            }
        };
        for (descriptor, link) in descriptors {
            if DescriptorKind::of(&link) == DescriptorKind::Socket(inode) {
                match copy(inode, (pid, descriptor)) {
                    // The descriptor was closed in the meantime.
                    Err(error) if is_gone(&error) => {}
                    result => return result,
                }
            }
        }
    }
    let message =
        |pid| format!("/proc/{pid}/fd may not be read: this requires CAP_SYS_PTRACE, so run it as root");
    Err(unreadable_pid.map_or_else(
        || ExplainedErrno::error(libc::ENOENT, "no process has that socket any more"),
        |pid| ExplainedErrno::error(libc::EACCES, message(pid)),
    ))
}

fn is_gone(error: &io::Error) -> bool {
    ExplainedErrno::of(error).is_some_and(|explained| explained.errno == libc::ENOENT)
}

/// Maps an ended process or closed descriptor to `ENOENT`, and names the required privilege.
fn explain_error(error: io::Error, pid: u32, descriptor: u32) -> io::Error {
    let (errno, words) = match error.raw_os_error() {
        Some(libc::ESRCH) => (libc::ENOENT, format!("process {pid} has ended")),
        Some(libc::EBADF) => (libc::ENOENT, format!("process {pid} has no descriptor {descriptor}")),
        Some(errno @ (libc::EPERM | libc::EACCES)) => {
            (errno, format!("copying a descriptor of process {pid} requires CAP_SYS_PTRACE: run it as root"))
        }
        Some(errno @ libc::ENOSYS) => {
            (errno, "pidfd_getfd requires Linux 5.6, and a sandbox that allows it".to_owned())
        }
        _ => return error,
    };
    ExplainedErrno::error(errno, words)
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::{AsFd, AsRawFd};

    use linerate_testkit::skip;

    use super::*;

    fn inode(file: &impl AsFd) -> u64 {
        rustix::fs::fstat(file).expect("an inode").st_ino
    }

    fn descriptor(file: &impl AsRawFd) -> (u32, u32) {
        (std::process::id(), u32::try_from(file.as_raw_fd()).expect("a descriptor"))
    }

    #[test]
    fn copied_descriptor_is_the_same_socket_and_others_are_refused() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("bound");
        let file = std::fs::File::open("/proc/self/stat").expect("open");
        let copied_socket = match copy(inode(&socket), descriptor(&socket)) {
            Ok(copied) => UdpSocket::from(copied),
            Err(error) => return skip("copied_descriptor_is_the_same_socket_and_others_are_refused", error),
        };
        assert_eq!(copied_socket.local_addr().expect("bound"), socket.local_addr().expect("bound"));
        for (inode, at) in [
            (inode(&socket) + 1, descriptor(&socket)),
            (inode(&file), descriptor(&file)),
            (inode(&socket), (std::process::id(), 1 << 20)),
            (inode(&socket), (i32::MAX.unsigned_abs(), 3)),
        ] {
            let error = copy(inode, at).expect_err("not that socket");
            assert!(is_gone(&error), "{error}");
        }
    }

    #[test]
    fn a_socket_is_copied_from_another_open_descriptor() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("bound");
        let other = socket.try_clone().expect("another descriptor");
        let (inode, at) = (inode(&socket), descriptor(&socket));
        drop(socket);
        match copy_of_any(&Host::live(), inode, at) {
            Ok(copied) => assert_eq!(rustix::fs::fstat(&copied).expect("an inode").st_ino, inode),
            Err(error) => return skip("a_socket_is_copied_from_another_open_descriptor", error),
        }
        drop(other);
        // Children of concurrent tests hold it between fork and exec.
        let error = (0..1000).find_map(|_| copy_of_any(&Host::live(), inode, at).err()).expect("closed");
        // Another user's processes might hold it.
        let expected = if is_gone(&error) { "no process" } else { "CAP_SYS_PTRACE" };
        assert!(error.to_string().contains(expected), "{error}");
    }
}
