//! Size of an iptables table: `IPT_SO_GET_INFO` and `IP6T_SO_GET_INFO`.

use std::io;
use std::os::fd::AsRawFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use serde::{Deserialize, Serialize};
use strum::Display;

// Equal in linux/netfilter_ipv4/ip_tables.h and linux/netfilter_ipv6/ip6_tables.h.
const GET_INFO: libc::c_int = 64;

const NAME_BYTES: usize = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct IptablesTable {
    /// Rules, and ends of user chains.
    pub rules: u32,
    /// Number of hooks it is at.
    pub hooks: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum IpFamily {
    Ip,
    Ip6,
}

/// struct ipt_getinfo, and the equal ip6t_getinfo.
#[repr(C)]
struct IptInfo {
    name: [u8; NAME_BYTES],
    valid_hooks: u32,
    hook_entry: [u32; 5],
    underflow: [u32; 5],
    entries: u32,
    size: u32,
}

// Only for tables in `/proc/net/ip_tables_names`: the kernel would load other tables.
pub(crate) fn table(family: IpFamily, name: &str) -> io::Result<IptablesTable> {
    let mut info = IptInfo {
        name: [0; NAME_BYTES],
        valid_hooks: 0,
        hook_entry: [0; 5],
        underflow: [0; 5],
        entries: 0,
        size: 0,
    };
    let (name_bytes, bytes) = (info.name.get_mut(..name.len()), name.as_bytes());
    match name_bytes {
        Some(name_bytes) if name.len() < NAME_BYTES => name_bytes.copy_from_slice(bytes),
        _ => return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("'{name}' is no table"))),
    }
    let (domain, level) = match family {
        IpFamily::Ip => (AddressFamily::INET, libc::IPPROTO_IP),
        IpFamily::Ip6 => (AddressFamily::INET6, libc::IPPROTO_IPV6),
    };
    let socket = rustix::net::socket_with(domain, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    let mut length = libc::socklen_t::try_from(std::mem::size_of::<IptInfo>()).map_err(io::Error::other)?;
    // SAFETY: `info` has the layout this option reads and writes, `length` is its size; both live across the call.
    let result = unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, GET_INFO, (&raw mut info).cast(), &raw mut length)
    };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(table_counts(info.valid_hooks, info.entries))
    }
}

/// Each hook has an entry for its policy, and the table has an entry at its end (xt_repldata.h).
/// All other entries are rules and ends of chains.
fn table_counts(valid_hooks: u32, entries: u32) -> IptablesTable {
    let hooks = valid_hooks.count_ones();
    IptablesTable { hooks, rules: entries.saturating_sub(hooks.saturating_add(1)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chain_policies_are_not_counted_as_rules() {
        // An empty filter table: input, forward, output.
        assert_eq!(table_counts(0b01110, 4), IptablesTable { hooks: 3, rules: 0 });
        assert_eq!(table_counts(0b11111, 9), IptablesTable { hooks: 5, rules: 3 });
        assert_eq!(table_counts(0, 0), IptablesTable { hooks: 0, rules: 0 });
    }

    #[test]
    fn too_long_table_names_are_errors() {
        assert!(table(IpFamily::Ip, &"x".repeat(NAME_BYTES)).is_err());
    }
}
