//! Socket options that no library wraps.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// `SOL_UDP` equals the protocol number.
pub(crate) const SOL_UDP: libc::c_int = libc::IPPROTO_UDP;

pub(crate) fn word(socket: &impl AsFd, level: libc::c_int, option: libc::c_int) -> io::Result<libc::c_int> {
    number(socket, level, option)
}

/// `SO_NETNS_COOKIE` (Linux 5.14): a number of the socket's network namespace, unique since boot.
pub(crate) fn network_namespace(socket: &impl AsFd) -> io::Result<u64> {
    number(socket, libc::SOL_SOCKET, libc::SO_NETNS_COOKIE)
}

/// `T` is an integer type.
fn number<T: Default>(socket: &impl AsFd, level: libc::c_int, option: libc::c_int) -> io::Result<T> {
    let mut value = T::default();
    let mut length = libc::socklen_t::try_from(size_of_val(&value)).map_err(io::Error::other)?;
    // SAFETY: `value` and `length` live across the call, and `length` is the size of `value`, in which
    // all bytes are valid.
    let result = unsafe {
        libc::getsockopt(socket.as_fd().as_raw_fd(), level, option, (&raw mut value).cast(), &raw mut length)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

pub(crate) fn set_word(
    socket: &impl AsFd,
    level: libc::c_int,
    option: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    let length = libc::socklen_t::try_from(size_of_val(&value)).map_err(io::Error::other)?;
    // SAFETY: `value` lives across the call, which reads `length` bytes of it: its size.
    let result = unsafe {
        libc::setsockopt(socket.as_fd().as_raw_fd(), level, option, (&raw const value).cast(), length)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
