//! The state that the guard's program shares with this process.

use std::io;
use std::ops::Deref;
use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicU64;

use super::mapping::MappedMemory;

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
pub(crate) struct MappedGuardState(MappedMemory);

// SAFETY: the memory belongs to no thread, and all accesses to it are atomic.
unsafe impl Sync for MappedGuardState {}

impl MappedGuardState {
    /// Maps `map`, which is an array of one state.
    pub(crate) fn new(map: BorrowedFd<'_>) -> io::Result<Self> {
        MappedMemory::shared(map, 0, size_of::<GuardState>()).map(Self)
    }
}

impl Deref for MappedGuardState {
    type Target = GuardState;

    fn deref(&self) -> &GuardState {
        // SAFETY: the mapping holds a state until it is dropped, is aligned to a page, and any bytes make atomic integers.
        unsafe { self.0.start().cast().as_ref() }
    }
}
