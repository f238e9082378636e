//! Rings of one producer and one consumer, one of which is the kernel (net/xdp/xsk_queue.h).

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::net::xdp::XdpRingOffset;

use crate::sys::mapping::MappedMemory;

/// `struct xdp_desc`: a packet in memory.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct XdpDescriptor {
    pub(crate) address: u64,
    pub(crate) length: u32,
    pub(crate) options: u32,
}

#[derive(Debug)]
pub(super) struct SharedRing<T> {
    _area: MappedMemory,
    producer: *const AtomicU32,
    consumer: *const AtomicU32,
    flags: *const AtomicU32,
    entries: *mut T,
    size: u32,
}

// SAFETY: the mapping is this value's own; nothing of it belongs to a thread.
unsafe impl<T: Send> Send for SharedRing<T> {}

impl<T> SharedRing<T> {
    /// Maps a ring of `size` entries, a power of two.
    pub(super) fn map(
        socket: BorrowedFd<'_>,
        size: u32,
        offsets: XdpRingOffset,
        file_offset: libc::off_t,
    ) -> io::Result<Self> {
        // Linux 5.4.
        let flags_offset = offsets.flags.ok_or(io::Error::from_raw_os_error(libc::EOPNOTSUPP))?;
        let bytes = offsets.desc as usize + size as usize * size_of::<T>();
        let area = MappedMemory::shared(socket, file_offset, bytes)?;
        let start = area.start().as_ptr();
        // SAFETY: the kernel's offsets are inside the mapping, which is aligned to pages, and the fields to their sizes.
        let (producer, consumer, flags, entries) = unsafe {
            (
                start.add(offsets.producer as usize),
                start.add(offsets.consumer as usize),
                start.add(flags_offset as usize),
                start.add(offsets.desc as usize),
            )
        };
        Ok(Self {
            _area: area,
            producer: producer.cast(),
            consumer: consumer.cast(),
            flags: flags.cast(),
            entries: entries.cast(),
            size,
        })
    }

    #[inline]
    fn producer(&self) -> &AtomicU32 {
        // SAFETY: inside the mapping, which lives as long as this; both sides use it atomically.
        unsafe { &*self.producer }
    }

    #[inline]
    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as `producer`.
        unsafe { &*self.consumer }
    }

    #[inline]
    fn entry(&self, index: u32) -> *mut T {
        // SAFETY: the remainder is below `size`.
        unsafe { self.entries.add((index & (self.size - 1)) as usize) }
    }
}

/// A ring that we put entries into.
#[derive(Debug)]
pub(crate) struct ProducerRing<T> {
    shared: SharedRing<T>,
    // Place of the next entry. The kernel does not see entries before it that are not submitted.
    next: u32,
    // The kernel's position when it was last read.
    consumed: u32,
}

impl<T: Copy> ProducerRing<T> {
    pub(super) fn new(shared: SharedRing<T>) -> Self {
        Self { shared, next: 0, consumed: 0 }
    }

    // The number of free entries. Reads the kernel's index only if fewer than `required` are known
    // to be free.
    #[inline]
    pub(crate) fn room(&mut self, required: u32) -> u32 {
        let known_free = self.shared.size - self.next.wrapping_sub(self.consumed);
        if known_free >= required {
            return known_free;
        }
        self.shared.size - self.pending()
    }

    // Entries that the kernel has not taken yet.
    #[inline]
    pub(crate) fn pending(&mut self) -> u32 {
        // Acquire: the kernel has read the entries before it moved its index.
        self.consumed = self.shared.consumer().load(Ordering::Acquire);
        self.next.wrapping_sub(self.consumed)
    }

    /// Adds an entry; false if the ring is full.
    #[inline]
    pub(crate) fn push(&mut self, entry: T) -> bool {
        if self.room(1) == 0 {
            return false;
        }
        // SAFETY: inside the ring, at a place that the kernel has consumed and does not read before `submit`.
        unsafe { self.shared.entry(self.next).write(entry) };
        self.next = self.next.wrapping_add(1);
        true
    }

    // Publishes the entries to the kernel.
    #[inline]
    pub(crate) fn submit(&mut self) {
        // Release: the kernel must see the entries before the index.
        self.shared.producer().store(self.next, Ordering::Release);
    }

    /// Takes the last entry back that was not submitted.
    pub(crate) fn withdraw(&mut self) -> Option<T> {
        if self.next == self.shared.producer().load(Ordering::Relaxed) {
            return None;
        }
        self.next = self.next.wrapping_sub(1);
        // SAFETY: inside the ring, and written by `push`.
        Some(unsafe { self.shared.entry(self.next).read() })
    }

    // Whether the kernel needs a call to continue. It decides this after it has found the ring
    // empty.
    #[inline]
    pub(crate) fn needs_wakeup(&self) -> bool {
        // The kernel must see the submitted entries before the flag is read, or both sides wait for
        // each other.
        std::sync::atomic::fence(Ordering::SeqCst);
        // SAFETY: as `SharedRing::producer`.
        let flags = unsafe { &*self.shared.flags };
        flags.load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

/// A ring that we take entries from.
#[derive(Debug)]
pub(crate) struct ConsumerRing<T> {
    shared: SharedRing<T>,
    /// The entry that is taken next.
    next: u32,
    // The kernel's position when it was last read.
    produced: u32,
}

impl<T: Copy> ConsumerRing<T> {
    pub(super) fn new(shared: SharedRing<T>) -> Self {
        Self { shared, next: 0, produced: 0 }
    }

    #[inline]
    pub(crate) fn available(&mut self) -> u32 {
        // Acquire: the kernel wrote the entries before it moved its index.
        self.produced = self.shared.producer().load(Ordering::Acquire);
        self.produced.wrapping_sub(self.next).min(self.shared.size)
    }

    /// Takes the next of the entries that `available` counted.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<T> {
        let entry = self.peek(0)?;
        self.next = self.next.wrapping_add(1);
        Some(entry)
    }

    /// Reads a later one of the entries that `available` counted.
    #[inline]
    pub(crate) fn peek(&self, ahead: u32) -> Option<T> {
        if self.produced.wrapping_sub(self.next) <= ahead {
            return None;
        }
        // SAFETY: inside the ring, and produced: the kernel does not write there before `release`.
        Some(unsafe { self.shared.entry(self.next.wrapping_add(ahead)).read() })
    }

    // Returns the entries that were taken.
    #[inline]
    pub(crate) fn release(&mut self) {
        // Release: our reads of the entries end before the kernel may overwrite them.
        self.shared.consumer().store(self.next, Ordering::Release);
    }
}
