//! A BPF array in the memory of this process (`BPF_F_MMAPABLE`, Linux 5.5).

use std::ffi::c_void;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

use super::layout::{TupleEntry, XdpFlow, XdpRequest, XdpRow};

/// A value that a program and this process may both write at any time.
///
/// # Safety
///
/// It consists of atomic integers only, and its size equals the distance of the map's entries (its
/// value's size, rounded up to 8; kernel/bpf/arraymap.c, array_map_alloc).
pub(crate) unsafe trait Shared {}

// SAFETY: only atomics; a multiple of 8 bytes as asserted in layout.rs.
unsafe impl Shared for XdpFlow {}
// SAFETY: as above.
unsafe impl Shared for XdpRequest {}
// SAFETY: as above.
unsafe impl Shared for XdpRow {}
// SAFETY: an atomic; aligned to 8 bytes and so as long.
unsafe impl Shared for TupleEntry {}

/// All entries of a map.
#[derive(Debug)]
pub(crate) struct MappedArray<T: Shared> {
    place: NonNull<T>,
    count: usize,
    bytes: usize,
}

// SAFETY: the memory belongs to no thread, and its content is atomic.
unsafe impl<T: Shared> Send for MappedArray<T> {}
// SAFETY: as above.
unsafe impl<T: Shared> Sync for MappedArray<T> {}

impl<T: Shared> MappedArray<T> {
    /// Maps `map`, which is an array of `count` entries.
    pub(crate) fn new(map: BorrowedFd<'_>, count: usize) -> io::Result<Self> {
        let bytes = count * size_of::<T>();
        // SAFETY: a new mapping at a place of the kernel's choice; it fails if the map is shorter.
        let place = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                map.as_raw_fd(),
                0,
            )
        };
        match NonNull::new(place.cast::<T>()) {
            Some(place) if place.as_ptr().cast::<c_void>() != libc::MAP_FAILED => {
                Ok(MappedArray { place, count, bytes })
            }
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl<T: Shared> Deref for MappedArray<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the mapping holds `count` entries until it is dropped, it is aligned to a page,
        // and any bytes are valid atomic integers, whichever side writes them.
        unsafe { std::slice::from_raw_parts(self.place.as_ptr(), self.count) }
    }
}

impl<T: Shared> Drop for MappedArray<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`, and no reference outlives `self`.
        unsafe { libc::munmap(self.place.as_ptr().cast(), self.bytes) };
    }
}
