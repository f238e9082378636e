//! Several requests per system call: recvmmsg(2) on buffers allocated once.

use std::ffi::c_void;
use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::null_mut;

use socket2::{SockAddr, SockAddrStorage};

// The longest datagram.
const BUFFER_BYTES: usize = 1 << 16;

/// Room for one control message with a time in it, aligned for its header.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct ReflectorControl([u8; 64]);

// Datagrams received, with their sources and the kernel's receive time.
pub(crate) struct ReflectorReceiveBatch {
    buffers: Box<[u8]>,
    sources: Box<[libc::sockaddr_storage]>,
    controls: Box<[ReflectorControl]>,
    vectors: Box<[libc::iovec]>,
    messages: Box<[libc::mmsghdr]>,
    received: usize,
}

pub(crate) struct ReflectorDatagram<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) from: SockAddr,
    // When the kernel received it: CLOCK_REALTIME, ns.
    pub(crate) realtime_ns: Option<u64>,
}

impl ReflectorReceiveBatch {
    /// Room for `count` datagrams of any length.
    pub(crate) fn new(count: usize) -> Self {
        // SAFETY: sockaddr_storage consists of integers, for which zeroes are valid.
        let empty_source: libc::sockaddr_storage = unsafe { zeroed() };
        // SAFETY: mmsghdr consists of integers and pointers, for which zeroes are valid: no name,
        // no buffers.
        let empty_message: libc::mmsghdr = unsafe { zeroed() };
        ReflectorReceiveBatch {
            buffers: vec![0; count * BUFFER_BYTES].into_boxed_slice(),
            sources: vec![empty_source; count].into_boxed_slice(),
            controls: vec![ReflectorControl([0; 64]); count].into_boxed_slice(),
            vectors: vec![libc::iovec { iov_base: null_mut(), iov_len: 0 }; count].into_boxed_slice(),
            messages: vec![empty_message; count].into_boxed_slice(),
            received: 0,
        }
    }

    /// Receives the queued datagrams, without waiting; returns their number.
    pub(crate) fn receive(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        self.received = 0;
        let buffers = self.buffers.chunks_exact_mut(BUFFER_BYTES).zip(&mut self.sources);
        let parts = buffers.zip(&mut self.controls).zip(&mut self.vectors).zip(&mut self.messages);
        for ((((buffer, source), control), vector), message) in parts {
            vector.iov_base = buffer.as_mut_ptr().cast();
            vector.iov_len = buffer.len();
            let header = &mut message.msg_hdr;
            header.msg_iov = vector;
            header.msg_iovlen = 1;
            // The kernel shortens both lengths to the bytes it wrote.
            header.msg_name = (&raw mut *source).cast::<c_void>();
            header.msg_namelen = size_of_val(source) as libc::socklen_t;
            header.msg_control = control.0.as_mut_ptr().cast::<c_void>();
            header.msg_controllen = control.0.len() as _;
        }
        // SAFETY: every header points to one vector with its own buffer, to its own source and to
        // its own control area, with their true lengths; all are owned by `self` and borrowed
        // mutably for the call. No timeout is passed.
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

    pub(crate) fn iter(&self) -> impl Iterator<Item = ReflectorDatagram<'_>> {
        let parts = self.buffers.chunks_exact(BUFFER_BYTES).zip(&self.sources).zip(&self.messages);
        parts.take(self.received).map(|((buffer, source), message)| ReflectorDatagram {
            bytes: &buffer[..(message.msg_len as usize).min(buffer.len())],
            from: address(source, message.msg_hdr.msg_namelen),
            realtime_ns: receive_stamp(&message.msg_hdr),
        })
    }
}

/// The address that recvmmsg wrote into `source`, of `length` bytes.
fn address(source: &libc::sockaddr_storage, length: libc::socklen_t) -> SockAddr {
    let mut storage = SockAddrStorage::zeroed();
    // SAFETY: the storage is a sockaddr_storage in a wrapper (socket2), and the kernel wrote a
    // valid address of `length` bytes into the source of the copy.
    unsafe {
        *storage.view_as::<libc::sockaddr_storage>() = *source;
        SockAddr::new(storage, length)
    }
}

/// The SCM_TIMESTAMPNS of a message that recvmmsg filled in.
fn receive_stamp(header: &libc::msghdr) -> Option<u64> {
    // SAFETY: only called on headers of a `ReflectorReceiveBatch` after recvmmsg, so that control
    // pointer and length describe the part of a live, aligned `ReflectorControl` that the kernel
    // wrote; the CMSG macros stay within that length, and the data is read unaligned after its
    // length was checked.
    unsafe {
        let mut control = libc::CMSG_FIRSTHDR(header);
        while !control.is_null() {
            let min_length = libc::CMSG_LEN(size_of::<libc::timespec>() as libc::c_uint) as usize;
            if (*control).cmsg_level == libc::SOL_SOCKET
                && (*control).cmsg_type == libc::SCM_TIMESTAMPNS
                && (*control).cmsg_len as usize >= min_length
            {
                let time = libc::CMSG_DATA(control).cast::<libc::timespec>().read_unaligned();
                return u64::try_from((time.tv_sec as i64) * 1_000_000_000 + time.tv_nsec as i64).ok();
            }
            control = libc::CMSG_NXTHDR(header, control);
        }
    }
    None
}
