//! Replies on their way into the kernel: a slot each, with a message header and a buffer.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::slice;

use super::memory::Memory;
use super::pool::Message;
use crate::sys::batch::{Outgoing, Shape, stride};

/// When a slot, and the request's buffer it refers to, is free again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Release {
    /// When the submission is over: the kernel has copied it.
    Sent,
    /// When the kernel says so.
    Notified,
}

#[repr(C)]
struct Slot {
    header: libc::msghdr,
    iov: libc::iovec,
    /// The buffer of the request, which has the name and the control data, and for an echo the payload.
    request: u16,
    zero_copy: bool,
}

/// All slots of a ring. Allocates when made and never again.
pub(super) struct Sends {
    slots: Memory,
    count: usize,
    replies: Memory,
    stride: usize,
    reply: usize,
    /// Most of them in one submission.
    most: usize,
    free: Vec<u16>,
    /// Those of this submission that are free when it is over.
    copied: Vec<u16>,
    /// Those that the kernel lets go later, and how many of them are in this submission.
    held: usize,
    queued_held: usize,
    /// Most that it may hold, so that slots and buffers are left.
    most_held: usize,
}

impl Sends {
    pub(super) fn new(shape: Shape, zero_copy: bool, buffers: u16) -> io::Result<Self> {
        let most = shape.messages;
        let most_held = if zero_copy { (3 * most).min(usize::from(buffers) / 2) } else { 0 };
        let count = most + most_held;
        let stride = stride(shape.reply);
        let numbers = u16::try_from(count).map_err(|_| io::ErrorKind::InvalidInput)?;
        Ok(Self {
            slots: Memory::new(count * size_of::<Slot>())?,
            count,
            replies: Memory::new(count * stride)?,
            stride,
            reply: shape.reply,
            most,
            free: (0..numbers).rev().collect(),
            copied: Vec::with_capacity(most),
            held: 0,
            queued_held: 0,
            most_held,
        })
    }

    pub(super) fn slots(&self) -> usize {
        self.count
    }

    /// Replies in the submission to come.
    #[inline]
    pub(super) fn queued(&self) -> usize {
        self.copied.len() + self.queued_held
    }

    #[inline]
    pub(super) fn queued_zero_copy(&self) -> usize {
        self.queued_held
    }

    /// Replies that the kernel holds.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    #[inline]
    pub(super) fn full(&self) -> bool {
        self.queued() >= self.most
    }

    /// Whether the kernel may hold one more.
    #[inline]
    pub(super) fn may_hold(&self) -> bool {
        self.held < self.most_held
    }

    /// The slot that comes next. There is one unless [`full`](Self::full): those that are held are others.
    #[inline]
    fn upcoming(&self) -> u16 {
        self.free.last().copied().unwrap_or(0)
    }

    #[inline]
    fn at(&self, slot: u16) -> *mut Slot {
        self.slots.start().cast::<Slot>().wrapping_add(usize::from(slot).min(self.count - 1))
    }

    #[inline]
    fn reply_at(&self, slot: u16) -> *mut u8 {
        self.replies.start().wrapping_add(usize::from(slot).min(self.count - 1) * self.stride)
    }

    /// The buffer of the slot that comes next.
    #[inline]
    pub(super) fn reply_buffer(&mut self) -> &mut [u8] {
        // SAFETY: inside the replies, `reply` long; the kernel has no use of a free slot's, and `self` is borrowed mutably.
        unsafe { slice::from_raw_parts_mut(self.reply_at(self.upcoming()), self.reply) }
    }

    /// Puts the reply to `message` into the next slot; returns its number and header.
    #[inline]
    pub(super) fn fill(
        &mut self,
        message: &mut Message,
        request: u16,
        outgoing: &Outgoing,
        release: Release,
    ) -> (u16, *const libc::msghdr) {
        let number = self.upcoming();
        self.free.pop();
        let (base, length, elsewhere) = match outgoing {
            Outgoing::Nothing | Outgoing::Same => (message.payload(), message.payload_length(), None),
            Outgoing::Reply(length) => (self.reply_at(number), (*length).min(self.reply), None),
            Outgoing::With(length, options) => (self.reply_at(number), (*length).min(self.reply), options.to),
        };
        let (name, control, control_length) = message.make_reply(elsewhere);
        // SAFETY: a slot of ours, zeroed at allocation, which is valid for all its fields; the kernel has no use of it.
        let slot = unsafe { &mut *self.at(number) };
        slot.iov = libc::iovec { iov_base: base.cast(), iov_len: length };
        slot.header.msg_name = name.cast();
        slot.header.msg_namelen = message.family().name_length();
        slot.header.msg_iov = &raw mut slot.iov;
        slot.header.msg_iovlen = 1;
        slot.header.msg_control = if control_length > 0 { control.cast() } else { std::ptr::null_mut() };
        slot.header.msg_controllen = control_length as _;
        slot.request = request;
        slot.zero_copy = release == Release::Notified;
        match release {
            Release::Sent => self.copied.push(number),
            Release::Notified => {
                self.held += 1;
                self.queued_held += 1;
            }
        }
        (number, &raw const slot.header)
    }

    /// The submission is over: its slots are free, but for those that are held. `give` gets the requests' buffers.
    #[inline]
    pub(super) fn sent(&mut self, mut give: impl FnMut(u16)) {
        for slot in self.copied.drain(..) {
            let at = self.slots.start().cast::<Slot>().wrapping_add(usize::from(slot));
            // SAFETY: a slot of ours, filled.
            give(unsafe { (*at).request });
            self.free.push(slot);
        }
        self.queued_held = 0;
    }

    /// The kernel let go of a slot; returns the buffer of its request.
    pub(super) fn release(&mut self, slot: u16) -> u16 {
        self.held -= 1;
        self.free.push(slot);
        // SAFETY: a slot of ours, filled.
        unsafe { (*self.at(slot)).request }
    }

    pub(super) fn is_zero_copy(&self, slot: u16) -> bool {
        // SAFETY: a slot of ours, filled.
        unsafe { (*self.at(slot)).zero_copy }
    }

    /// Sends what is in a slot by a call of its own, waiting for room as long as the socket says.
    pub(super) fn send(&self, slot: u16, socket: &impl AsFd) -> io::Result<()> {
        loop {
            // SAFETY: the slot was filled, and neither it nor what it refers to has been given back.
            let sent =
                unsafe { libc::sendmsg(socket.as_fd().as_raw_fd(), &raw const (*self.at(slot)).header, 0) };
            if sent >= 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }

    /// Never frees the slots.
    pub(super) fn leak(&mut self) {
        self.slots.leak();
        self.replies.leak();
    }
}
