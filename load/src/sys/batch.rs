//! Many datagrams per system call: sendmmsg(2) and recvmmsg(2) on buffers that are allocated once.

use std::ffi::c_void;
use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::null_mut;

/// Datagrams to send over a connected socket.
pub(crate) struct SendBatch {
    payloads: Box<[u8]>,
    payload_bytes: usize,
    lengths: Box<[usize]>,
    vectors: Box<[libc::iovec]>,
    messages: Box<[libc::mmsghdr]>,
}

impl SendBatch {
    // Room for `count` datagrams, each a copy of `blank`, which must not be empty.
    pub(crate) fn new(count: usize, blank: &[u8]) -> Self {
        SendBatch {
            payloads: blank.repeat(count).into_boxed_slice(),
            payload_bytes: blank.len(),
            lengths: vec![blank.len(); count].into_boxed_slice(),
            vectors: empty_vectors(count),
            messages: empty_messages(count),
        }
    }

    /// The buffer of each datagram in turn, and the length of its sent part.
    pub(crate) fn payload_slots(&mut self) -> impl Iterator<Item = (&mut [u8], &mut usize)> {
        self.payloads.chunks_exact_mut(self.payload_bytes).zip(&mut self.lengths)
    }

    // Passes the first `count` datagrams to the kernel; returns the number that it accepted. Never
    // blocks.
    pub(crate) fn send(&mut self, socket: BorrowedFd<'_>, count: usize) -> io::Result<usize> {
        let count = count.min(self.messages.len());
        let chunks = self.payloads.chunks_exact_mut(self.payload_bytes).zip(&self.lengths);
        let parts = chunks.zip(&mut self.vectors).zip(&mut self.messages).take(count);
        for (((chunk, length), vector), message) in parts {
            vector.iov_base = chunk.as_mut_ptr().cast();
            vector.iov_len = chunk.len().min(*length);
            message.msg_hdr.msg_iov = vector;
            message.msg_hdr.msg_iovlen = 1;
        }
        // SAFETY: the first `count` headers each point to one vector, and that to one payload; all are owned by
        // `self`, borrowed mutably for the call, and the kernel keeps no pointer after it.
        let result = unsafe {
            libc::sendmmsg(
                socket.as_raw_fd(),
                self.messages.as_mut_ptr(),
                count as libc::c_uint,
                libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
            )
        };
        usize::try_from(result).map_err(|_| io::Error::last_os_error())
    }
}

/// Room for one control message with a time in it, aligned for its header.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct TimestampControl([u8; 64]);

// Datagrams received, with the kernel's receive time.
pub(crate) struct ReceiveBatch {
    buffers: Box<[u8]>,
    buffer_bytes: usize,
    controls: Box<[TimestampControl]>,
    vectors: Box<[libc::iovec]>,
    messages: Box<[libc::mmsghdr]>,
    received: usize,
}

pub(crate) struct ReplyDatagram<'a> {
    /// Its payload, up to the size of the buffer.
    pub(crate) bytes: &'a [u8],
    /// Whether it was longer than the buffer.
    pub(crate) truncated: bool,
    // When the kernel received it: CLOCK_REALTIME, ns.
    pub(crate) realtime_ns: Option<i64>,
}

impl ReceiveBatch {
    /// Room for `count` datagrams of up to `buffer_bytes` each.
    pub(crate) fn new(count: usize, buffer_bytes: usize) -> Self {
        ReceiveBatch {
            buffers: vec![0; count * buffer_bytes].into_boxed_slice(),
            buffer_bytes,
            controls: vec![TimestampControl([0; 64]); count].into_boxed_slice(),
            vectors: empty_vectors(count),
            messages: empty_messages(count),
            received: 0,
        }
    }

    /// Most datagrams per call.
    pub(crate) fn capacity(&self) -> usize {
        self.messages.len()
    }

    /// Receives the queued datagrams, without waiting; returns their number.
    pub(crate) fn receive(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        self.received = 0;
        let buffers = self.buffers.chunks_exact_mut(self.buffer_bytes);
        let parts = buffers.zip(&mut self.controls).zip(&mut self.vectors).zip(&mut self.messages);
        for (((buffer, control), vector), message) in parts {
            vector.iov_base = buffer.as_mut_ptr().cast();
            vector.iov_len = buffer.len();
            let header = &mut message.msg_hdr;
            header.msg_iov = vector;
            header.msg_iovlen = 1;
            header.msg_control = control.0.as_mut_ptr().cast::<c_void>();
            // The kernel shortens this to the length that it wrote, so set it each time.
            header.msg_controllen = control.0.len() as _;
        }
        // SAFETY: every header points to one vector with its own buffer and to its own control area, with their
        // true lengths; all are owned by `self` and borrowed mutably for the call. No timeout is passed.
        let count = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                self.messages.as_mut_ptr(),
                self.messages.len() as libc::c_uint,
                libc::MSG_DONTWAIT as _,
                null_mut(),
            )
        };
        self.received = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
        Ok(self.received)
    }

    /// The datagrams that the last call received.
    pub(crate) fn iter(&self) -> impl Iterator<Item = ReplyDatagram<'_>> {
        let buffers = self.buffers.chunks_exact(self.buffer_bytes);
        buffers.zip(&self.messages).take(self.received).map(|(buffer, message)| ReplyDatagram {
            bytes: &buffer[..(message.msg_len as usize).min(buffer.len())],
            truncated: message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
            realtime_ns: receive_stamp(&message.msg_hdr),
        })
    }
}

/// The SCM_TIMESTAMPNS of a message that recvmmsg filled in.
fn receive_stamp(header: &libc::msghdr) -> Option<i64> {
    // SAFETY: only called on headers of a `ReceiveBatch` after recvmmsg, so that control pointer and length
    // describe the part of a live, aligned `TimestampControl` that the kernel wrote; the CMSG macros stay within that
    // length, and the data is read unaligned after its length was checked.
    unsafe {
        let mut control = libc::CMSG_FIRSTHDR(header);
        while !control.is_null() {
            let required_length = libc::CMSG_LEN(size_of::<libc::timespec>() as libc::c_uint) as usize;
            if (*control).cmsg_level == libc::SOL_SOCKET
                && (*control).cmsg_type == libc::SCM_TIMESTAMPNS
                && (*control).cmsg_len as usize >= required_length
            {
                let time = libc::CMSG_DATA(control).cast::<libc::timespec>().read_unaligned();
                return (time.tv_sec as i64).checked_mul(1_000_000_000)?.checked_add(time.tv_nsec as i64);
            }
            control = libc::CMSG_NXTHDR(header, control);
        }
    }
    None
}

fn empty_vectors(count: usize) -> Box<[libc::iovec]> {
    vec![libc::iovec { iov_base: null_mut(), iov_len: 0 }; count].into_boxed_slice()
}

fn empty_messages(count: usize) -> Box<[libc::mmsghdr]> {
    // SAFETY: mmsghdr consists of integers and pointers, for which zeroes are valid: no name, no buffers.
    let empty: libc::mmsghdr = unsafe { zeroed() };
    vec![empty; count].into_boxed_slice()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    #[test]
    fn received_datagrams_have_timestamp_bytes_and_truncation_flag() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.connect(server.local_addr().unwrap()).unwrap();
        server.connect(client.local_addr().unwrap()).unwrap();
        crate::sys::request_receive_stamps(client.as_fd()).unwrap();

        let mut send = SendBatch::new(3, &[7; 50]);
        assert_eq!(send.send(server.as_fd(), 3).unwrap(), 3);
        server.send(&[8; 200]).unwrap();

        let mut receive = ReceiveBatch::new(8, 100);
        assert_eq!(receive.receive(client.as_fd()).unwrap(), 4);
        let datagrams: Vec<_> = receive.iter().collect();
        assert!(datagrams[..3].iter().all(|datagram| datagram.bytes == [7; 50] && !datagram.truncated));
        assert!(datagrams[3].truncated && datagrams[3].bytes == [8; 100]);
        assert!(datagrams.iter().all(|datagram| datagram.realtime_ns.is_some_and(|ns| ns > 0)));
        let empty = receive.receive(client.as_fd()).unwrap_err();
        assert_eq!(empty.kind(), io::ErrorKind::WouldBlock);
        assert_eq!(receive.iter().count(), 0);
    }
}
