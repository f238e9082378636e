//! Socket options that no safe wrapper has.

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

// Requests the kernel's receive time with each datagram: SCM_TIMESTAMPNS, CLOCK_REALTIME, taken
// when the packet enters the stack (socket(7)).
pub(crate) fn request_receive_stamps(socket: BorrowedFd<'_>) -> io::Result<()> {
    let (value, length) = (1_i32, size_of::<i32>() as libc::socklen_t);
    let pointer = (&raw const value).cast::<c_void>();
    // SAFETY: the value is a live i32 and the length is its size.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, pointer, length)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

// Datagrams that this socket has dropped (SO_MEMINFO, Linux 4.12; SK_MEMINFO_DROPS,
// linux/sock_diag.h).
pub(crate) fn receive_drops(socket: BorrowedFd<'_>) -> io::Result<u32> {
    const SK_MEMINFO_DROPS: usize = 8;
    let mut values = [0_u32; SK_MEMINFO_DROPS + 1];
    let mut length = size_of_val(&values) as libc::socklen_t;
    let pointer = values.as_mut_ptr().cast::<c_void>();
    // SAFETY: the memory is writable for `length` bytes, and any bytes make a u32.
    let result = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_MEMINFO, pointer, &raw mut length)
    };
    if result == 0 { Ok(values[SK_MEMINFO_DROPS]) } else { Err(io::Error::last_os_error()) }
}
