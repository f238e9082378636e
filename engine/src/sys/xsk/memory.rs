//! The memory of frames (UMEM).

use std::io;

use crate::sys::mapping::MappedMemory;

// Memory for frames, shared by one or more sockets and the kernel.
#[derive(Debug)]
pub(crate) struct Umem {
    area: MappedMemory,
    frame_bytes: u32,
}

impl Umem {
    /// Maps memory for `frames` frames of `frame_bytes`, a power of two, on the calling thread's NUMA node.
    pub(crate) fn new(frames: usize, frame_bytes: u32) -> io::Result<Self> {
        // Populated by this thread, so that it is the one that first touches the memory.
        let area = MappedMemory::anonymous(frames * frame_bytes as usize)?;
        Ok(Self { area, frame_bytes })
    }

    pub(crate) fn address(&self) -> u64 {
        self.area.start().as_ptr() as u64
    }

    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.area.bytes()
    }

    pub(crate) fn frame_bytes(&self) -> u32 {
        self.frame_bytes
    }

    // The packet at an address from the receive ring, up to the end of its frame, and its length.
    // `None` if the ring names memory that is not ours.
    #[inline]
    pub(crate) fn packet(&mut self, address: u64, length: u32) -> Option<(&mut [u8], usize)> {
        let start = usize::try_from(address).ok()?;
        let frame_bytes = self.frame_bytes as usize;
        let room = frame_bytes - (start & (frame_bytes - 1));
        if start >= self.bytes() || length as usize > room {
            return None;
        }
        // SAFETY: inside the mapping, whose length is a multiple of the frames'. The kernel writes only to frames that
        // are in a fill ring, and takes one from there before it is in a receive ring.
        let packet = unsafe { std::slice::from_raw_parts_mut(self.area.start().as_ptr().add(start), room) };
        Some((packet, length as usize))
    }

    /// Prefetches the beginning of a packet that is processed soon.
    #[inline]
    pub(crate) fn prefetch(&self, address: u64) {
        #[cfg(target_arch = "x86_64")]
        if (address as usize) < self.bytes() {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: inside the mapping; a prefetch changes nothing that a program sees.
            unsafe { _mm_prefetch(self.area.start().as_ptr().add(address as usize).cast(), _MM_HINT_T0) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = address;
    }
}
