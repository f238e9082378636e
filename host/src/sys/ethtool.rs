//! The ethtool ioctl: values that are one word (`struct ethtool_value`), and drivers.

mod flow_spec;
pub(crate) mod receive;
mod strings;
mod words;

use std::io;
use std::os::fd::AsRawFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::setting::Offload;
use crate::stage::link::Driver;

pub(crate) use flow_spec::any_rule;
pub(crate) use strings::{features, statistics};
pub(crate) use words::{channels, coalesce, rings, set_channels, set_rings};

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

/// `ETHTOOL_GDRVINFO` and the size of struct ethtool_drvinfo (linux/ethtool.h); its texts follow the command.
const GET_DRIVER: u32 = 3;
const DRIVER_INFO_BYTES: usize = 196;
const DRIVER_NAME: std::ops::Range<usize> = 4..36;
const DRIVER_VERSION: std::ops::Range<usize> = 36..68;
const DRIVER_FIRMWARE: std::ops::Range<usize> = 68..100;
const DRIVER_BUS: std::ops::Range<usize> = 100..132;

/// An interface's driver.
pub(crate) fn driver(interface: &str) -> io::Result<Driver> {
    let mut info = [0_u8; DRIVER_INFO_BYTES];
    info[..4].copy_from_slice(&GET_DRIVER.to_ne_bytes());
    // SAFETY: `info` has the size and the command of struct ethtool_drvinfo, whose fields are bytes and words.
    unsafe { ioctl(interface, (&raw mut info).cast()) }?;
    let text = |range: std::ops::Range<usize>| {
        let bytes = &info[range];
        let length = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    };
    Ok(Driver {
        name: text(DRIVER_NAME),
        version: text(DRIVER_VERSION),
        firmware: text(DRIVER_FIRMWARE),
        bus: text(DRIVER_BUS),
    })
}

fn value(interface: &str, command: u32, data: u32) -> io::Result<u32> {
    let mut value = EthtoolValue { command, data };
    // SAFETY: `value` has the layout that these commands read and write.
    unsafe { ioctl(interface, (&raw mut value).cast()) }?;
    Ok(value.data)
}

/// Hands a structure to the interface.
///
/// # Safety
/// `structure` points to one that lives across the call, with the layout and size that its command (its first word) asks
/// for.
unsafe fn ioctl(interface: &str, structure: *mut libc::c_char) -> io::Result<()> {
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
    request.ifr_ifru.ifru_data = structure;
    let socket =
        rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    // SAFETY: `request` lives across the call and has the layout SIOCETHTOOL takes; the caller answers for the rest.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
