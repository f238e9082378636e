//! The state that the guard's program shares with this process.

use std::io;
use std::ops::Deref;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// The first fields of `struct state` of bpf/guard.bpf.c: those that workers read or write.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct GuardState {
    /// Total of requests that may be admitted.
    pub(crate) granted: AtomicU64,
    /// Requests that may wait at once.
    pub(crate) limit: AtomicU64,
    /// Total of requests that workers took.
    pub(crate) taken: AtomicU64,
    _apart: [u64; 13],
    /// Total of requests that were admitted.
    pub(crate) admitted: AtomicU64,
}

// The state in the memory of this process (`BPF_F_MMAPABLE`, Linux 5.5).
#[derive(Debug)]
pub(crate) struct MappedGuardState {
    place: NonNull<GuardState>,
}

// SAFETY: the memory belongs to no thread, and all accesses to it are atomic.
unsafe impl Send for MappedGuardState {}
// SAFETY: as above.
unsafe impl Sync for MappedGuardState {}

impl MappedGuardState {
    /// Maps `map`, which is an array of one state.
    pub(crate) fn new(map: BorrowedFd<'_>) -> io::Result<Self> {
        // SAFETY: a new mapping at a place of the kernel's choice; it fails if the map is shorter.
        let mapping = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size_of::<GuardState>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                map.as_raw_fd(),
                0,
            )
        };
        match NonNull::new(mapping.cast::<GuardState>()) {
            Some(state) if mapping != libc::MAP_FAILED => Ok(Self { place: state }),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Deref for MappedGuardState {
    type Target = GuardState;

    fn deref(&self) -> &GuardState {
        // SAFETY: the mapping holds a state until it is dropped, is aligned to a page, and any bytes make atomic integers.
        unsafe { self.place.as_ref() }
    }
}

impl Drop for MappedGuardState {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`, and no reference outlives `self`.
        unsafe { libc::munmap(self.place.as_ptr().cast(), size_of::<GuardState>()) };
    }
}
