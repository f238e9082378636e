//! Several replies per system call: sendmmsg(2).

use std::ffi::c_void;
use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::null_mut;

use socket2::SockAddr;

/// Headers for replies, allocated once.
pub(crate) struct ReflectorSendBatch {
    vectors: Box<[libc::iovec]>,
    messages: Box<[libc::mmsghdr]>,
}

impl ReflectorSendBatch {
    /// For `count` replies per call.
    pub(crate) fn new(count: usize) -> Self {
        // SAFETY: mmsghdr consists of integers and pointers, for which zeroes are valid: no name,
        // no buffers.
        let empty_message: libc::mmsghdr = unsafe { zeroed() };
        ReflectorSendBatch {
            vectors: vec![libc::iovec { iov_base: null_mut(), iov_len: 0 }; count].into_boxed_slice(),
            messages: vec![empty_message; count].into_boxed_slice(),
        }
    }

    // Sends the first of `replies`, in order, and waits for buffer space. Returns how many the
    // kernel accepted.
    pub(crate) fn send<'a>(
        &mut self,
        socket: BorrowedFd<'_>,
        replies: impl Iterator<Item = (&'a [u8], &'a SockAddr)>,
    ) -> io::Result<usize> {
        let mut count = 0;
        for (((bytes, to), vector), message) in replies.zip(&mut self.vectors).zip(&mut self.messages) {
            vector.iov_base = bytes.as_ptr().cast_mut().cast::<c_void>();
            vector.iov_len = bytes.len();
            message.msg_hdr.msg_iov = vector;
            message.msg_hdr.msg_iovlen = 1;
            message.msg_hdr.msg_name = to.as_ptr().cast_mut().cast::<c_void>();
            message.msg_hdr.msg_namelen = to.len();
            count += 1;
        }
        // SAFETY: the first `count` headers were pointed above at a vector of `self` and through it
        // at the bytes of a reply, and at its address; replies and addresses live for 'a, which
        // outlives the call. The kernel only reads them, so that the lost constness does no harm,
        // and keeps no pointer.
        let sent = unsafe {
            libc::sendmmsg(socket.as_raw_fd(), self.messages.as_mut_ptr(), count, libc::MSG_NOSIGNAL)
        };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }
}
