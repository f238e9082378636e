//! Many messages per system call: `recvmmsg(2)` and `sendmmsg(2)` over memory laid out once.
//!
//! One array of headers serves both directions: a request's header, name and control data become
//! the reply's. If a request gets no reply, its header swaps places with a later header, so that
//! the replies stay in one run; a header always keeps its own [`HeaderSlot`].
//!
//! Between two receives only the fields that differ are written back: the buffer's address and
//! length, and the length of the control data. The kernel writes the name's length too, but on one
//! socket always the same, and uses the header's flags as output only (net/socket.c,
//! `___sys_recvmsg`, `___sys_sendmsg`).
//!
//! The system calls are made without the C library's wrappers: glibc's spend most of their instructions on thread
//! cancellation, which Rust does not use, and musl's `sendmmsg` is a loop over `sendmsg`.

use std::io;
use std::marker::PhantomData;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::{ptr, slice};

use super::control::{ControlBuffer, ControlRequest, PktinfoMode, ReceivedControl, SendExtras};
use super::name::{AddressFamily, SocketName};
use crate::reply::ReplyOptions;

#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchShape {
    // Messages per call, at least 1.
    pub(crate) messages: usize,
    /// Bytes of a request that are kept.
    pub(crate) request: usize,
    /// Bytes a reply may have.
    pub(crate) reply: usize,
    pub(crate) family: AddressFamily,
    pub(crate) asked: ControlRequest,
}

// The part of the batch that belongs to one header permanently.
#[repr(C)]
struct HeaderSlot {
    // First, so that a header's `msg_iov` points to its slot.
    iov: libc::iovec,
    /// The buffer for requests; the reply buffer follows at `MessageBatch::reply_offset`.
    request: *mut u8,
    name: SocketName,
    control: ControlBuffer,
}

/// A received message, as passed to the closure that decides about it.
pub(crate) struct IncomingMessage<'a> {
    pub(crate) payload: &'a [u8],
    pub(crate) name: &'a SocketName,
    pub(crate) control: Option<ReceivedControl<'a>>,
    pub(crate) truncated: bool,
    pub(crate) reply: &'a mut [u8],
}

pub(crate) enum OutgoingMessage {
    Nothing,
    /// The request itself.
    Same,
    // This number of bytes of the reply buffer, cut to its size.
    Reply(usize),
    // The same with other options. An address that the socket cannot send to becomes one that the
    // kernel refuses.
    With(usize, ReplyOptions),
}

// Headers, names, control data and buffers for one worker. Allocates only when it is created.
pub(crate) struct MessageBatch<K> {
    headers: *mut libc::mmsghdr,
    slots: *mut [HeaderSlot],
    buffers: *mut [u8],
    reply_offset: usize,
    shape: BatchShape,
    // The headers that the last receive filled; never past the last header.
    received: Range<usize>,
    /// The received headers that hold replies not yet sent.
    replies: Range<usize>,
    // Whether a reply buffer has replaced a request's since the last rearming.
    moved: bool,
    // Whether control data was added to a message without any since then.
    extended: bool,
    kind: PhantomData<K>,
}

/// The control data of a batch as a type, so that no message needs a check of its kind.
pub(crate) trait ControlKind {
    // The socket's request; must agree with `shape`.
    fn control_request(shape: &BatchShape) -> ControlRequest;
}

/// [`PktinfoMode::Off`].
pub(crate) struct NoControl;
/// [`PktinfoMode::V4`].
pub(crate) struct PktinfoV4;
/// [`PktinfoMode::V6`].
pub(crate) struct PktinfoV6;
/// Any control data; checked per message.
pub(crate) struct DynamicControl;

impl ControlKind for NoControl {
    #[inline(always)]
    fn control_request(_: &BatchShape) -> ControlRequest {
        ControlRequest::NOTHING
    }
}
impl ControlKind for PktinfoV4 {
    #[inline(always)]
    fn control_request(_: &BatchShape) -> ControlRequest {
        ControlRequest::only_pktinfo(PktinfoMode::V4)
    }
}
impl ControlKind for PktinfoV6 {
    #[inline(always)]
    fn control_request(_: &BatchShape) -> ControlRequest {
        ControlRequest::only_pktinfo(PktinfoMode::V6)
    }
}
impl ControlKind for DynamicControl {
    #[inline(always)]
    fn control_request(shape: &BatchShape) -> ControlRequest {
        shape.asked
    }
}

/// The length of a header's control data. An integer of another width in some C libraries.
#[inline]
#[allow(clippy::unnecessary_cast, reason = "necessary on musl")]
fn control_length(header: &libc::mmsghdr) -> usize {
    header.msg_hdr.msg_controllen as usize
}

// Distance between two buffers in bytes. An odd number of cache lines: with a power of two the first line of every
// buffer, the only one that short requests use, would fall in the same few sets of the cache.
pub(super) fn stride(length: usize) -> usize {
    (length.div_ceil(64) | 1) * 64
}

impl<K: ControlKind> MessageBatch<K> {
    pub(crate) fn new(shape: BatchShape) -> Self {
        let control_request = K::control_request(&shape);
        let reply_offset = stride(shape.request);
        // Two odd numbers of lines make an even one: one line more.
        let pair_bytes = reply_offset + stride(shape.reply) + 64;
        let buffers = Box::into_raw(vec![0u8; pair_bytes * shape.messages].into_boxed_slice());
        let base: *mut u8 = buffers.cast();
        let slots: Vec<HeaderSlot> = (0..shape.messages)
            .map(|index| {
                let request = base.wrapping_add(pair_bytes * index);
                HeaderSlot {
                    iov: libc::iovec { iov_base: request.cast(), iov_len: shape.request },
                    request,
                    name: SocketName::ZERO,
                    control: ControlBuffer::EMPTY,
                }
            })
            .collect();
        let slots = Box::into_raw(slots.into_boxed_slice());
        let first_slot: *mut HeaderSlot = slots.cast();
        let headers: Vec<libc::mmsghdr> = (0..shape.messages)
            .map(|index| {
                let slot = first_slot.wrapping_add(index);
                // SAFETY: all-zero bytes are a valid mmsghdr; it has private padding on some targets, hence zeroed.
                let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
                // SAFETY: `slot` is inside the allocation made above, and nothing else refers to it now.
                let slot = unsafe { &mut *slot };
                header.msg_hdr.msg_name = slot.name.as_mut_ptr().cast();
                header.msg_hdr.msg_namelen = shape.family.name_length();
                header.msg_hdr.msg_iov = first_slot.wrapping_add(index).cast();
                header.msg_hdr.msg_iovlen = 1;
                if !control_request.is_nothing() {
                    header.msg_hdr.msg_control = slot.control.as_mut_ptr();
                    header.msg_hdr.msg_controllen = control_request.capacity() as _;
                }
                header
            })
            .collect();
        let headers: *mut [libc::mmsghdr] = Box::into_raw(headers.into_boxed_slice());
        Self {
            headers: headers.cast(),
            slots,
            buffers,
            reply_offset,
            shape,
            received: 0..0,
            replies: 0..0,
            moved: false,
            extended: false,
            kind: PhantomData,
        }
    }

    // Receives up to a batch; returns the number of messages, 0 if the socket was shut down.
    #[inline]
    pub(crate) fn receive(&mut self, socket: &impl AsFd, flags: i32) -> io::Result<usize> {
        // SAFETY: `headers` are `messages` valid headers, whose pointers lead to memory that `self` owns and that is
        // as long as the headers say. No timeout.
        let count = unsafe {
            libc::syscall(
                libc::SYS_recvmmsg,
                socket.as_fd().as_raw_fd(),
                self.headers,
                self.shape.messages as libc::c_uint,
                flags,
                ptr::null_mut::<libc::timespec>(),
            )
        };
        if count < 0 {
            return Err(io::Error::last_os_error());
        }
        self.received = 0..count as usize;
        // SAFETY: a batch has at least one message.
        let first_header = unsafe { &mut *self.headers };
        if first_header.msg_hdr.msg_namelen == 0 {
            // A datagram has a sender, even one without bytes. The blocking first receive came back from shutdown.
            first_header.msg_hdr.msg_namelen = self.shape.family.name_length();
            first_header.msg_hdr.msg_controllen = K::control_request(&self.shape).capacity() as _;
            self.received.start = 1;
        }
        Ok(self.received.len())
    }

    // Passes every received message to `decide`; its replies are then ready to
    // [`send`](Self::send). Once per receive, because sending overwrites the lengths of the
    // messages.
    #[inline(always)]
    pub(crate) fn process(&mut self, mut decide: impl FnMut(IncomingMessage<'_>) -> OutgoingMessage) {
        let (reply_offset, reply_length) = (self.reply_offset, self.shape.reply);
        let control_request = K::control_request(&self.shape);
        // SAFETY: the kernel fills no more headers than there are, so both are within them or one past them.
        let (mut cursor, end) =
            unsafe { (self.headers.add(self.received.start), self.headers.add(self.received.end)) };
        let mut skipped_count = 0;
        while cursor != end {
            let header_pointer = cursor;
            // SAFETY: before `end`, and so at most `end` after it.
            cursor = unsafe { cursor.add(1) };
            // SAFETY: a header of ours, and nothing else refers to it: `self` is borrowed mutably.
            let header = unsafe { &mut *header_pointer };
            // SAFETY: a header's `msg_iov` points to its slot (`iov` is its first field, the struct is repr(C)) and
            // keeps the slots' provenance. Each slot has one header, so this is the only reference.
            let slot = unsafe { &mut *header.msg_hdr.msg_iov.cast::<HeaderSlot>() };
            // SAFETY: the kernel put `msg_len` bytes here, at most as many as the iovec offered. The reply buffer
            // follows, `reply_length` long, and overlaps nothing. Both were zeroed at allocation.
            let (payload, reply) = unsafe {
                (
                    slice::from_raw_parts(slot.request.cast_const(), header.msg_len as usize),
                    slice::from_raw_parts_mut(slot.request.add(reply_offset), reply_length),
                )
            };
            let received_length = control_length(header);
            let (mut filled_length, mut extras) = (received_length, SendExtras::NONE);
            let outgoing = decide(IncomingMessage {
                payload,
                name: &slot.name,
                control: (!control_request.is_nothing())
                    .then_some(ReceivedControl { control: &slot.control, length: filled_length }),
                truncated: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
                reply,
            });
            let length = match outgoing {
                OutgoingMessage::Nothing => {
                    skipped_count += 1;
                    continue;
                }
                OutgoingMessage::Same => {
                    if control_request.gro {
                        extras.segment =
                            ReceivedControl { control: &slot.control, length: filled_length }.segment();
                    }
                    header.msg_len as usize
                }
                OutgoingMessage::Reply(length) => {
                    slot.iov.iov_base = slot.request.wrapping_add(reply_offset).cast();
                    self.moved = true;
                    length.min(reply_length)
                }
                OutgoingMessage::With(length, options) => {
                    slot.iov.iov_base = slot.request.wrapping_add(reply_offset).cast();
                    self.moved = true;
                    if let Some(reply_address) = options.to {
                        if reply_address.is_ipv4() != slot.name.is_ipv4() {
                            filled_length = 0;
                        }
                        slot.name =
                            SocketName::encode(reply_address, self.shape.family).unwrap_or(SocketName::ZERO);
                    }
                    extras = options.extras();
                    length.min(reply_length)
                }
            };
            slot.iov.iov_len = length;
            if !control_request.is_nothing() {
                let length = slot.control.make_reply(control_request, filled_length);
                if length != received_length {
                    header.msg_hdr.msg_controllen = length as _;
                }
            }
            if !extras.is_none() {
                let end = if control_request.is_nothing() { 0 } else { control_length(header) };
                let end = slot.control.append(end, slot.name.is_ipv4(), extras);
                header.msg_hdr.msg_control = slot.control.as_mut_ptr();
                header.msg_hdr.msg_controllen = end as _;
                self.extended = true;
            }
            if skipped_count > 0 {
                // SAFETY: both are headers of ours, since that many passed since the first received, and `header` is
                // used no more.
                unsafe { ptr::swap(header_pointer.sub(skipped_count), header_pointer) };
            }
        }
        self.replies = self.received.start..self.received.end - skipped_count;
    }

    /// Number of replies that are not yet sent.
    #[inline]
    pub(crate) fn unsent(&self) -> usize {
        self.replies.len()
    }

    // Sends the replies with one call; returns the number of replies that the kernel accepted, from
    // the first on. An error belongs to the first reply.
    #[inline]
    pub(crate) fn send(&mut self, socket: &impl AsFd) -> io::Result<usize> {
        // SAFETY: the replies are among the headers; their pointers lead to memory that `self` owns, as long as they
        // say.
        let result = unsafe {
            libc::syscall(
                libc::SYS_sendmmsg,
                socket.as_fd().as_raw_fd(),
                self.headers.add(self.replies.start),
                self.replies.len() as libc::c_uint,
                0,
            )
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        self.replies.start += result as usize;
        Ok(result as usize)
    }

    /// Gives up on the first reply.
    pub(crate) fn skip(&mut self) {
        self.replies.next();
    }

    /// Prepares the received messages for the next receive.
    #[inline]
    pub(crate) fn rearm(&mut self) {
        if std::mem::take(&mut self.moved) {
            self.for_each_slot(|_, slot| slot.iov.iov_base = slot.request.cast());
        }
        if std::mem::take(&mut self.extended) {
            self.for_each_slot(|header, _| header.msg_hdr.msg_controllen = 0);
        }
        let (request, control_request) = (self.shape.request, K::control_request(&self.shape));
        self.for_each_slot(|header, slot| {
            slot.iov.iov_len = request;
            if !control_request.is_nothing() {
                header.msg_hdr.msg_controllen = control_request.capacity() as _;
            }
        });
    }

    #[inline(always)]
    fn for_each_slot(&mut self, mut action: impl FnMut(&mut libc::mmsghdr, &mut HeaderSlot)) {
        // SAFETY: as in `process`.
        let (mut cursor, end) =
            unsafe { (self.headers.add(self.received.start), self.headers.add(self.received.end)) };
        while cursor != end {
            // SAFETY: as in `process`.
            let header = unsafe { &mut *cursor };
            // SAFETY: as in `process`.
            let slot = unsafe { &mut *header.msg_hdr.msg_iov.cast::<HeaderSlot>() };
            action(header, slot);
            // SAFETY: before `end`, and so at most `end` after it.
            cursor = unsafe { cursor.add(1) };
        }
    }
}

impl<K> Drop for MessageBatch<K> {
    fn drop(&mut self) {
        // SAFETY: all three came from Box::into_raw in `new`, with these lengths, and are freed once.
        unsafe {
            drop(Box::from_raw(ptr::slice_from_raw_parts_mut(self.headers, self.shape.messages)));
            drop(Box::from_raw(self.slots));
            drop(Box::from_raw(self.buffers));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    fn shape() -> BatchShape {
        BatchShape {
            messages: 8,
            request: 64,
            reply: 32,
            family: AddressFamily::V4,
            asked: ControlRequest::NOTHING,
        }
    }

    #[test]
    fn strides_are_odd_numbers_of_cache_lines() {
        for length in [1, 64, 65, 2048, 65_507] {
            assert!(stride(length) >= length);
            assert_eq!(stride(length) / 64 % 2, 1);
        }
    }

    #[test]
    fn batches_with_drops_send_the_remaining_replies_in_order() -> io::Result<()> {
        let server = UdpSocket::bind("127.0.0.1:0")?;
        let client = UdpSocket::bind("127.0.0.1:0")?;
        client.connect(server.local_addr()?)?;
        let mut batch = MessageBatch::<NoControl>::new(shape());
        let mut random = fastrand::Rng::with_seed(7);
        for round in 0..200u8 {
            let count = random.usize(1..=8);
            for index in 0..count {
                client.send(&[round, index as u8])?;
            }
            assert_eq!(batch.receive(&server, libc::MSG_WAITFORONE)?, count);
            let mut expected = Vec::new();
            batch.process(|incoming| {
                assert_eq!(incoming.payload[0], round);
                match random.u8(..3) {
                    0 => OutgoingMessage::Nothing,
                    1 => {
                        expected.push(incoming.payload.to_vec());
                        OutgoingMessage::Same
                    }
                    _ => {
                        incoming.reply[..2].copy_from_slice(&[99, incoming.payload[1]]);
                        expected.push(incoming.reply[..2].to_vec());
                        OutgoingMessage::Reply(2)
                    }
                }
            });
            assert_eq!(batch.unsent(), expected.len());
            if batch.unsent() > 0 {
                assert_eq!(batch.send(&server)?, expected.len());
            }
            batch.rearm();
            let mut answer = [0; 8];
            for want in expected {
                let length = client.recv(&mut answer)?;
                assert_eq!(&answer[..length], want);
            }
        }
        Ok(())
    }
}
