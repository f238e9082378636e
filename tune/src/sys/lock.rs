//! Locks on an open file that can be queried without taking them.
//!
//! Open file description locks (Linux 3.15, fcntl(2)): unlike flock(2), `F_OFD_GETLK` reports
//! whether another process holds a lock, so that a reader never makes a writer believe that it is
//! held. Unlike locks of `F_SETLK`, they belong to the open file, not to the process, and end with
//! it however the process ends.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LockWait {
    Yes,
    No,
}

/// A lock that is held until this is dropped.
#[derive(Debug)]
pub(crate) struct FileLock(File);

impl FileLock {
    /// Locks a file that is open for writing. Returns the file if another process holds its lock.
    pub(crate) fn take(file: File, wait: LockWait) -> io::Result<Result<Self, File>> {
        Ok(if take(&file, wait)? { Ok(Self(file)) } else { Err(file) })
    }

    pub(crate) fn file(&self) -> &File {
        &self.0
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // Closing the file is not enough: a child that another thread just forked has the file open,
        // too, until its exec.
        let _ = call(&self.0, libc::F_OFD_SETLK, &mut whole_file(libc::F_UNLCK));
    }
}

fn take(file: &File, wait: LockWait) -> io::Result<bool> {
    let command = match wait {
        LockWait::Yes => libc::F_OFD_SETLKW,
        LockWait::No => libc::F_OFD_SETLK,
    };
    loop {
        match call(file, command, &mut whole_file(libc::F_WRLCK)) {
            Ok(()) => return Ok(true),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {
                return Ok(false);
            }
            Err(error) => return Err(error),
        }
    }
}

// Whether another open file holds the lock.
pub(crate) fn is_held(file: &File) -> io::Result<bool> {
    let mut lock = whole_file(libc::F_WRLCK);
    call(file, libc::F_OFD_GETLK, &mut lock)?;
    Ok(i32::from(lock.l_type) != libc::F_UNLCK)
}

fn whole_file(kind: libc::c_int) -> libc::flock {
    // The kernel requires l_pid to be 0 (fcntl(2)).
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

fn call(file: &File, command: libc::c_int, lock: &mut libc::flock) -> io::Result<()> {
    // SAFETY: the descriptor is open as long as `file` is borrowed, and the commands of this module read and
    // write a `struct flock` only, to which `lock` is a unique reference.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), command, std::ptr::from_mut(lock)) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_is_exclusive_and_released_despite_a_duplicate_descriptor() {
        let path = tempfile::NamedTempFile::new().expect("a file");
        let open = || File::options().read(true).write(true).open(path.path()).expect("opened");
        let (first, second) = (open(), open());
        // A forked child has the file open like this until its exec.
        let _duplicate = first.try_clone().expect("duplicated");
        assert!(!is_held(&second).expect("queried"));
        let lock = FileLock::take(first, LockWait::No).expect("tried").expect("free");
        assert!(is_held(&second).expect("queried") && !is_held(lock.file()).expect("queried"));
        let second = FileLock::take(second, LockWait::No).expect("tried").expect_err("held");
        drop(lock);
        assert!(FileLock::take(second, LockWait::No).expect("tried").is_ok());
    }
}
