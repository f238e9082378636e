//! Memory mapped with `mmap(2)`.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};

// A mapping to read and write, populated at once, until this is dropped.
#[derive(Debug)]
pub(crate) struct MappedMemory {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping is this value's own; nothing of it belongs to a thread.
unsafe impl Send for MappedMemory {}

impl MappedMemory {
    /// New memory on the calling thread's NUMA node.
    pub(crate) fn anonymous(bytes: usize) -> io::Result<Self> {
        Self::map(bytes, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
    }

    /// Memory of a file, shared with the kernel.
    pub(crate) fn shared(file: BorrowedFd<'_>, offset: libc::off_t, bytes: usize) -> io::Result<Self> {
        Self::map(bytes, libc::MAP_SHARED, file.as_raw_fd(), offset)
    }

    fn map(bytes: usize, flags: libc::c_int, file: libc::c_int, offset: libc::off_t) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at a place of the kernel's choice, without MAP_FIXED.
        let start = unsafe {
            libc::mmap(ptr::null_mut(), bytes, protection, flags | libc::MAP_POPULATE, file, offset)
        };
        match NonNull::new(start.cast()) {
            Some(place) if start != libc::MAP_FAILED => Ok(Self { start: place, bytes }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Aligned to a page.
    #[inline]
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for MappedMemory {
    fn drop(&mut self) {
        // SAFETY: mapped in `map` with this length, and unmapped once.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
