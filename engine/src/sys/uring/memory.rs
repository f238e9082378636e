//! Memory that the kernel reads and writes while nothing here refers to it.

use std::io;
use std::ptr;

/// Zeroed bytes at a fixed place, which starts a page. It is a mapping of its own and not the allocator's: a worker that is
/// started anew has new ones, and the allocator keeps what it was given back in pieces that do not fit the next.
pub(super) struct Memory {
    start: *mut u8,
    bytes: usize,
    leaked: bool,
}

impl Memory {
    /// `bytes` must not be 0.
    pub(super) fn new(bytes: usize) -> io::Result<Self> {
        // SAFETY: a new anonymous mapping at a place that the kernel chooses. It refuses one of no bytes.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { start: start.cast(), bytes, leaked: false })
    }

    /// Where it starts. What lies at the offsets below its size may be read and written.
    #[inline]
    pub(super) fn start(&self) -> *mut u8 {
        self.start
    }

    /// Never gives it back, because the kernel may still write to it.
    pub(super) fn leak(&mut self) {
        self.leaked = true;
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if !self.leaked {
            // SAFETY: mapped in `new` with this length, and unmapped once.
            unsafe { libc::munmap(self.start.cast(), self.bytes) };
        }
    }
}
