//! The ethtool ioctl, and driver information.

mod flow_names;
mod flow_rule;
pub(crate) mod receive;
mod strings;
mod words;

use std::io;
use std::os::fd::AsRawFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::ethtool::LinkDriver;
use crate::netlink::attribute::text;

pub(crate) use flow_rule::RuleSpec;
pub(crate) use strings::{features, is_feature_changeable, set_feature, statistics};
pub(crate) use words::{CHANNELS, COALESCE, EthtoolWords, RINGS, WordParameter, WordStructure};

const SIOCETHTOOL: libc::c_ulong = 0x8946;

// `ETHTOOL_GDRVINFO` and the size of struct ethtool_drvinfo (linux/ethtool.h); its texts follow
// the command.
const GET_DRIVER: u32 = 3;
const DRIVER_INFO_BYTES: usize = 196;
const DRIVER_NAME: std::ops::Range<usize> = 4..36;
const DRIVER_VERSION: std::ops::Range<usize> = 36..68;
const DRIVER_FIRMWARE: std::ops::Range<usize> = 68..100;
const DRIVER_BUS: std::ops::Range<usize> = 100..132;

pub(crate) fn driver(interface: &str) -> io::Result<LinkDriver> {
    let mut info = [0_u8; DRIVER_INFO_BYTES];
    info[..4].copy_from_slice(&GET_DRIVER.to_ne_bytes());
    // SAFETY: `info` has the size and the command of struct ethtool_drvinfo, whose fields are bytes and words.
    unsafe { ioctl(interface, (&raw mut info).cast()) }?;
    Ok(LinkDriver {
        name: text(&info[DRIVER_NAME]),
        version: text(&info[DRIVER_VERSION]),
        firmware: text(&info[DRIVER_FIRMWARE]),
        bus: text(&info[DRIVER_BUS]),
    })
}

/// # Safety
/// `structure` points to a structure that lives across the call, with the layout and size of its
/// command (its first word).
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
    for (target, byte) in request.ifr_name.iter_mut().zip(name) {
        *target = libc::c_char::from_ne_bytes([*byte]);
    }
    request.ifr_ifru.ifru_data = structure;
    let socket =
        rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    // SAFETY: `request` lives across the call and has the layout SIOCETHTOOL takes; the caller answers for the rest.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
