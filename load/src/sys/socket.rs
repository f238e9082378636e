//! Socket options and system facts.

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

// Requests the kernel's receive time with each datagram: SCM_TIMESTAMPNS, CLOCK_REALTIME, taken
// when the packet enters the stack (socket(7)).
pub(crate) fn request_receive_stamps(socket: BorrowedFd<'_>) -> io::Result<()> {
    set_int(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)
}

// Sets the receive buffer beyond net.core.rmem_max; requires CAP_NET_ADMIN in the initial user
// namespace.
pub(crate) fn force_receive_buffer(socket: BorrowedFd<'_>, bytes: i32) -> io::Result<()> {
    set_int(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, bytes)
}

// IP_MTU_DISCOVER (or IPV6_MTU_DISCOVER) = DO: datagrams over the path MTU are refused, not cut.
pub(crate) fn forbid_fragments(socket: BorrowedFd<'_>, v4: bool) -> io::Result<()> {
    if v4 {
        set_int(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO)
    } else {
        set_int(socket, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DO)
    }
}

// The path MTU of a connected socket, bytes (IP_MTU, ip(7)).
pub(crate) fn path_mtu(socket: BorrowedFd<'_>, v4: bool) -> io::Result<usize> {
    let (level, name) =
        if v4 { (libc::IPPROTO_IP, libc::IP_MTU) } else { (libc::IPPROTO_IPV6, libc::IPV6_MTU) };
    let mut value = [0i32; 1];
    get_ints(socket, level, name, &mut value)?;
    Ok(usize::try_from(value[0]).unwrap_or(0))
}

// Datagrams that this socket has dropped (SO_MEMINFO, Linux 4.12; SK_MEMINFO_DROPS,
// linux/sock_diag.h).
pub(crate) fn receive_drops(socket: BorrowedFd<'_>) -> io::Result<u32> {
    const SK_MEMINFO_DROPS: usize = 8;
    let mut values = [0i32; SK_MEMINFO_DROPS + 1];
    get_ints(socket, libc::SOL_SOCKET, libc::SO_MEMINFO, &mut values)?;
    Ok(values[SK_MEMINFO_DROPS].cast_unsigned())
}

/// CPUs the system is configured for, online or not.
pub(crate) fn configured_cpus() -> usize {
    // SAFETY: sysconf takes no pointer and has no precondition.
    let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    usize::try_from(count).unwrap_or(1).max(1)
}

fn set_int(socket: BorrowedFd<'_>, level: i32, name: i32, value: i32) -> io::Result<()> {
    let length = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the value is a live i32 and the length is its size.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast::<c_void>(), length)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn get_ints(socket: BorrowedFd<'_>, level: i32, name: i32, values: &mut [i32]) -> io::Result<()> {
    let mut length = size_of_val(values) as libc::socklen_t;
    let pointer = values.as_mut_ptr().cast::<c_void>();
    // SAFETY: the memory is writable for `length` bytes, and any bytes make an i32.
    let result = unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, pointer, &raw mut length) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
