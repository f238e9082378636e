//! Socket options that the libraries lack, all of them `int`.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Sets an option that is an `int`.
pub(crate) fn set(socket: &impl AsFd, level: i32, name: i32, value: i32) -> io::Result<()> {
    // SAFETY: the pointer and length describe `value`, which outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

// Attaches a classic BPF program that chooses the socket of a reuseport group (`SO_ATTACH_REUSEPORT_CBPF`).
pub(crate) fn attach_reuseport_cbpf(socket: &impl AsFd, program: &[libc::sock_filter]) -> io::Result<()> {
    let length = u16::try_from(program.len()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    // The kernel only reads the program; the field is a mutable pointer for C's sake.
    let header = libc::sock_fprog { len: length, filter: program.as_ptr().cast_mut() };
    // SAFETY: `header` points to `length` instructions that live until the call returns; the kernel copies them.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const header).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
