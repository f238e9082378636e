//! The ring of buffers from which the kernel takes one for each request (`IORING_REGISTER_PBUF_RING`, Linux 5.19).
//!
//! The kernel puts into each, one after the other, a `struct io_uring_recvmsg_out`, the name, the control data and the
//! payload (`io_recvmsg_multishot` in io_uring/net.c). Name and control data have room for a [`Name`] and a [`Control`]
//! whatever the socket's family, so that they lie where those may.

use std::io;
use std::net::SocketAddr;
use std::slice;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::IoUring;
use io_uring::types::BufRingEntry;

use super::GROUP;
use super::memory::Memory;
use crate::sys::batch::{Incoming, Shape, stride};
use crate::sys::control::{Control, Filled};
use crate::sys::name::{Family, Name};

/// `struct io_uring_recvmsg_out`: lengths of what came, and the message's flags.
#[repr(C)]
struct Head {
    name: u32,
    control: u32,
    payload: u32,
    flags: u32,
}

const NAME: usize = size_of::<Head>();
const CONTROL: usize = NAME + size_of::<Name>();

/// The buffers, and which of them the kernel has.
pub(super) struct Pool {
    entries: Memory,
    buffers: Memory,
    /// Number of buffers less one.
    mask: u16,
    stride: usize,
    /// Where the payload starts.
    payload: usize,
    shape: Shape,
    /// What the kernel is told of names and control data.
    header: Box<libc::msghdr>,
    /// Entries filled so far, as the kernel counts them.
    tail: u16,
}

/// One received message.
pub(super) struct Message {
    start: *mut u8,
    payload: usize,
    shape: Shape,
}

impl Pool {
    pub(super) fn new(buffers: u16, shape: Shape) -> io::Result<Self> {
        let count = usize::from(buffers);
        let control = if shape.asked.is_nothing() { 0 } else { size_of::<Control>() };
        let payload = CONTROL + control;
        let stride = stride(payload + shape.request);
        // SAFETY: all-zero bytes are a valid msghdr.
        let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
        header.msg_namelen = size_of::<Name>() as libc::socklen_t;
        header.msg_controllen = control as _;
        let mut pool = Self {
            // The kernel takes whole pages only (io_register_pbuf_ring in io_uring/kbuf.c).
            entries: Memory::new(count * size_of::<BufRingEntry>())?,
            buffers: Memory::new(count * stride)?,
            mask: buffers - 1,
            stride,
            payload,
            shape,
            header: Box::new(header),
            tail: 0,
        };
        for buffer in 0..buffers {
            pool.give(buffer);
        }
        pool.publish();
        Ok(pool)
    }

    /// Tells the kernel of the buffers.
    pub(super) fn register(&self, ring: &IoUring) -> io::Result<()> {
        // SAFETY: the ring of entries is page-aligned, as long as said, and outlives the kernel's use of it.
        unsafe {
            ring.submitter().register_buf_ring_with_flags(
                self.entries.start() as u64,
                self.mask + 1,
                GROUP,
                0,
            )
        }
    }

    /// What a receive into these buffers is armed with.
    pub(super) fn header(&self) -> *const libc::msghdr {
        &raw const *self.header
    }

    /// Where `buffer` starts. One that does not exist would be another one.
    #[inline]
    fn start(&self, buffer: u16) -> *mut u8 {
        self.buffers.start().wrapping_add(usize::from(buffer & self.mask) * self.stride)
    }

    /// The message in `buffer`, which the kernel has filled and not been given back.
    #[inline]
    pub(super) fn message(&self, buffer: u16) -> Message {
        Message { start: self.start(buffer), payload: self.payload, shape: self.shape }
    }

    /// Gives a buffer back, which the kernel sees with the next [`publish`](Self::publish).
    #[inline]
    pub(super) fn give(&mut self, buffer: u16) {
        let entry =
            self.entries.start().cast::<BufRingEntry>().wrapping_add(usize::from(self.tail & self.mask));
        // SAFETY: inside the ring of entries, which are plain numbers. The kernel reads none past the tail it was told. The
        // tail itself lies in the part of the first entry that is not written to here.
        let entry = unsafe { &mut *entry };
        entry.set_addr(self.start(buffer) as u64);
        entry.set_len((self.payload + self.shape.request) as u32);
        entry.set_bid(buffer & self.mask);
        self.tail = self.tail.wrapping_add(1);
    }

    /// Shows the kernel what was given back.
    #[inline]
    pub(super) fn publish(&mut self) {
        // SAFETY: the tail lies in the first entry, 2-aligned, and the kernel only reads it.
        let tail = unsafe {
            let tail = BufRingEntry::tail(self.entries.start().cast());
            AtomicU16::from_ptr(tail.cast_mut())
        };
        tail.store(self.tail, Ordering::Release);
    }

    /// Never frees the buffers.
    pub(super) fn leak(&mut self) {
        self.entries.leak();
        self.buffers.leak();
    }
}

impl Message {
    #[inline]
    fn head(&self) -> &Head {
        // SAFETY: a buffer starts with a head, which the kernel has written, and is aligned to 64.
        unsafe { &*self.start.cast() }
    }

    #[inline]
    fn name_at(&self) -> *mut Name {
        self.start.wrapping_add(NAME).cast()
    }

    #[inline]
    fn control_at(&self) -> *mut Control {
        self.start.wrapping_add(CONTROL).cast()
    }

    /// Whether it has a sender.
    #[inline]
    pub(super) fn named(&self) -> bool {
        self.head().name != 0
    }

    /// Bytes of payload that are here.
    #[inline]
    pub(super) fn payload_length(&self) -> usize {
        (self.head().payload as usize).min(self.shape.request)
    }

    /// Where the payload starts.
    #[inline]
    pub(super) fn payload(&self) -> *mut u8 {
        self.start.wrapping_add(self.payload)
    }

    #[inline]
    fn filled(&self) -> usize {
        (self.head().control as usize).min(self.shape.asked.capacity())
    }

    /// As it is shown to a service, with the buffer for its reply.
    #[inline]
    pub(super) fn incoming<'a>(&'a mut self, reply: &'a mut [u8]) -> Incoming<'a> {
        // SAFETY: both lie in this buffer, aligned, are plain bytes zeroed at allocation, and the kernel has no use of it now.
        let name = unsafe { &*self.name_at() };
        let control = (!self.shape.asked.is_nothing()).then(|| {
            // SAFETY: there is room for one where control data is asked for; else as above.
            let control = unsafe { &*self.control_at() };
            Filled { control, length: self.filled() }
        });
        Incoming {
            // SAFETY: so many bytes follow in this buffer.
            payload: unsafe { slice::from_raw_parts(self.payload(), self.payload_length()) },
            name,
            control,
            truncated: self.head().flags & libc::MSG_TRUNC as u32 != 0,
            reply,
        }
    }

    /// Makes name and control data the reply's, which goes to `elsewhere` if that is given; returns where they are and how
    /// long the latter is.
    #[inline]
    pub(super) fn make_reply(&mut self, elsewhere: Option<SocketAddr>) -> (*mut Name, *mut Control, usize) {
        let mut filled = self.filled();
        if let Some(to) = elsewhere {
            // SAFETY: as in `incoming`, and `self` is borrowed mutably.
            let name = unsafe { &mut *self.name_at() };
            if to.is_ipv4() != name.is_ipv4() {
                filled = 0;
            }
            *name = Name::encode(to, self.shape.family).unwrap_or(Name::ZERO);
        }
        let length = if self.shape.asked.is_nothing() {
            0
        } else {
            // SAFETY: as in `incoming`, and `self` is borrowed mutably.
            unsafe { &mut *self.control_at() }.make_reply(self.shape.asked, filled)
        };
        (self.name_at(), self.control_at(), length)
    }

    /// The family of the socket it came from.
    #[inline]
    pub(super) fn family(&self) -> Family {
        self.shape.family
    }
}
