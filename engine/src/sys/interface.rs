//! The interfaces of the calling thread's network namespace and their addresses.

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ptr;

/// An address of an interface; without one, the interface itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InterfaceAddress {
    pub(crate) interface: String,
    pub(crate) up: bool,
    pub(crate) loopback: bool,
    pub(crate) address: Option<IpAddr>,
}

/// Every address of every interface.
pub(crate) fn entries() -> io::Result<Vec<InterfaceAddress>> {
    let mut first = ptr::null_mut();
    // SAFETY: writes the head of a list, or fails.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut entries = Vec::new();
    let mut at = first;
    while !at.is_null() {
        // SAFETY: a node of the list, which is freed below and not before; names end with a zero.
        let (node, name) = unsafe { (&*at, CStr::from_ptr((*at).ifa_name)) };
        entries.push(InterfaceAddress {
            interface: name.to_string_lossy().into_owned(),
            up: node.ifa_flags & libc::IFF_UP as libc::c_uint != 0,
            loopback: node.ifa_flags & libc::IFF_LOOPBACK as libc::c_uint != 0,
            address: address(node.ifa_addr),
        });
        at = node.ifa_next;
    }
    // SAFETY: what getifaddrs gave, freed once; no reference into it is left.
    unsafe { libc::freeifaddrs(first) };
    Ok(entries)
}

fn address(address: *const libc::sockaddr) -> Option<IpAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: not null, and an address of getifaddrs is as long as its family has it, unaligned at worst.
    unsafe {
        match i32::from((*address).sa_family) {
            libc::AF_INET => {
                let address = ptr::read_unaligned(address.cast::<libc::sockaddr_in>());
                Some(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)).into())
            }
            libc::AF_INET6 => {
                let address = ptr::read_unaligned(address.cast::<libc::sockaddr_in6>());
                Some(Ipv6Addr::from(address.sin6_addr.s6_addr).into())
            }
            _ => None,
        }
    }
}

/// The number of an interface.
pub(crate) fn index(name: &str) -> io::Result<u32> {
    let name = std::ffi::CString::new(name).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    // SAFETY: the name ends with a zero and outlives the call.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_have_names_and_numbers() -> io::Result<()> {
        for entry in entries()? {
            assert!(index(&entry.interface)? > 0, "{entry:?}");
        }
        assert!(index("no such interface").is_err());
        Ok(())
    }
}
