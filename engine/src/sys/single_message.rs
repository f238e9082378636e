//! One message per system call: `recvfrom` and `sendto`, or `recvmsg` and `sendmsg` for control
//! data.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use super::control::{ControlBuffer, ControlRequest};
use super::name::{AddressFamily, SocketName};

pub(crate) struct ReceivedDatagram {
    /// Its real length in bytes, which may be more than the buffer holds.
    pub(crate) length: usize,
    /// Bytes of control data that came with it.
    pub(crate) control: usize,
    // Whether it has a sender. A message without one is no datagram: the socket was shut down.
    pub(crate) named: bool,
}

// `recvfrom(2)`.
#[inline]
pub(crate) fn receive_from(
    socket: &impl AsFd,
    buffer: &mut [u8],
    name: &mut SocketName,
    flags: i32,
) -> io::Result<ReceivedDatagram> {
    let mut name_length = size_of::<SocketName>() as libc::socklen_t;
    // SAFETY: pointers and lengths describe `buffer` and `name`, borrowed mutably for the call.
    let length = unsafe {
        libc::recvfrom(
            socket.as_fd().as_raw_fd(),
            buffer.as_mut_ptr().cast(),
            buffer.len(),
            flags | libc::MSG_TRUNC,
            name.as_mut_ptr(),
            &raw mut name_length,
        )
    };
    match usize::try_from(length) {
        Ok(length) => Ok(ReceivedDatagram { length, control: 0, named: name_length != 0 }),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

// `sendto(2)`.
#[inline]
pub(crate) fn send_to(
    socket: &impl AsFd,
    payload: &[u8],
    name: &SocketName,
    family: AddressFamily,
) -> io::Result<()> {
    // SAFETY: pointers and lengths describe `payload` and `name`, which the kernel only reads.
    let result = unsafe {
        libc::sendto(
            socket.as_fd().as_raw_fd(),
            payload.as_ptr().cast(),
            payload.len(),
            0,
            name.as_ptr(),
            family.name_length(),
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

// `recvmsg(2)`, for the control data.
#[inline]
pub(crate) fn receive_message(
    socket: &impl AsFd,
    buffer: &mut [u8],
    name: &mut SocketName,
    control: &mut ControlBuffer,
    control_request: ControlRequest,
    flags: i32,
) -> io::Result<ReceivedDatagram> {
    let mut iov = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: all-zero bytes are a valid msghdr.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_name = name.as_mut_ptr().cast();
    header.msg_namelen = size_of::<SocketName>() as libc::socklen_t;
    header.msg_iov = &raw mut iov;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr();
    header.msg_controllen = control_request.capacity() as _;
    // SAFETY: the header's pointers and lengths describe `buffer`, `name` and `control`, borrowed
    // mutably for the call; `capacity` is at most the capacity of a Control.
    let length =
        unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut header, flags | libc::MSG_TRUNC) };
    let Ok(length) = usize::try_from(length) else {
        return Err(io::Error::last_os_error());
    };
    Ok(ReceivedDatagram { length, control: header.msg_controllen as _, named: header.msg_namelen != 0 })
}

// `sendmsg(2)`, with the source that the control data names.
#[inline]
pub(crate) fn send_message(
    socket: &impl AsFd,
    payload: &[u8],
    name: &SocketName,
    family: AddressFamily,
    control: &mut ControlBuffer,
    control_length: usize,
) -> io::Result<()> {
    let mut iov = libc::iovec { iov_base: payload.as_ptr().cast_mut().cast(), iov_len: payload.len() };
    // SAFETY: all-zero bytes are a valid msghdr.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_name = name.as_ptr().cast_mut().cast();
    header.msg_namelen = family.name_length();
    header.msg_iov = &raw mut iov;
    header.msg_iovlen = 1;
    if control_length > 0 {
        header.msg_control = control.as_mut_ptr();
        header.msg_controllen = control_length.min(size_of::<ControlBuffer>()) as _;
    }
    // SAFETY: the header's pointers and lengths describe `payload`, `name` and `control`; the kernel only reads them.
    let result = unsafe { libc::sendmsg(socket.as_fd().as_raw_fd(), &raw const header, 0) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
