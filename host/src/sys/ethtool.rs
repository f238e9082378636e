//! The ethtool ioctl, for values that are one word (`struct ethtool_value`).

use std::io;
use std::os::fd::AsRawFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::setting::Offload;

const SIOCETHTOOL: libc::c_ulong = 0x8946;

impl Offload {
    /// The commands that read and set it (linux/ethtool.h).
    fn commands(self) -> (u32, u32) {
        match self {
            Offload::TcpSegmentation => (0x1e, 0x1f),
            Offload::GenericReceive => (0x2b, 0x2c),
        }
    }
}

#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

pub(crate) fn offload(interface: &str, offload: Offload) -> io::Result<bool> {
    value(interface, offload.commands().0, 0).map(|data| data != 0)
}

pub(crate) fn set_offload(interface: &str, offload: Offload, on: bool) -> io::Result<()> {
    value(interface, offload.commands().1, u32::from(on)).map(|_| ())
}

fn value(interface: &str, command: u32, data: u32) -> io::Result<u32> {
    // SAFETY: all-zero is a valid ifreq: it holds integers, bytes and a null pointer.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let name = interface.as_bytes();
    if name.is_empty() || name.len() >= request.ifr_name.len() || name.contains(&0) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("'{interface}' is no interface name"),
        ));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name) {
        *to = libc::c_char::from_ne_bytes([*from]);
    }
    let mut value = EthtoolValue { command, data };
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    let socket =
        rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    // SAFETY: `request` and the `value` it points to live across the call, and both have the
    // layout that SIOCETHTOOL with this command reads and writes.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(value.data) }
}
