//! Addresses of an interface from rtnetlink (`RTM_GETADDR`; linux/rtnetlink.h, linux/if_addr.h).

use std::io;
use std::net::IpAddr;

use netlink_sys::protocols::NETLINK_ROUTE;

use super::attribute::{attribute, word};
use super::connection::NetlinkConnection;
use crate::known::number;
use crate::{Host, HostError};

const GET: u16 = 22;
const NEW: u16 = 20;

/// Bytes of struct ifaddrmsg, and offsets of its fields.
const MESSAGE_BYTES: usize = 8;
const SCOPE: usize = 3;
const INDEX: usize = 4;

/// `IFA_ADDRESS` and `IFA_LOCAL`: on a point-to-point link the first one is the peer's address.
const ADDRESS: u16 = 1;
const LOCAL: u16 = 2;

// `RT_SCOPE_LINK`: valid on one link only.
const SCOPE_LINK: u8 = 253;

/// The addresses of an interface, IPv4 first, in the kernel's order, without link-local ones.
pub fn addresses(host: &Host, interface: &str) -> Result<Vec<IpAddr>, HostError> {
    let path = format!("/sys/class/net/{interface}/ifindex");
    let index = host.read_parsed(&path, number::<u32>)?;
    let operation = format!("reading the addresses of {interface}");
    host.call(&format!("addresses/{interface}"), &operation, || request_addresses(index))
}

fn request_addresses(interface: u32) -> io::Result<Vec<IpAddr>> {
    let answers = NetlinkConnection::open(NETLINK_ROUTE)?.dump(GET, &[0; MESSAGE_BYTES])?;
    let messages = answers.iter().filter(|answer| answer.kind == NEW);
    let mut addresses: Vec<IpAddr> =
        messages.filter_map(|answer| parse_address(&answer.body, interface)).collect();
    // IPv4 first, then in the kernel's order, because the sort is stable.
    addresses.sort_by_key(IpAddr::is_ipv6);
    Ok(addresses)
}

// `None` for another interface, or a link-local address.
pub(crate) fn parse_address(body: &[u8], interface: u32) -> Option<IpAddr> {
    if word(body, INDEX) != Some(interface) || body.get(SCOPE) == Some(&SCOPE_LINK) {
        return None;
    }
    let attributes = body.get(MESSAGE_BYTES..)?;
    let bytes = attribute(attributes, LOCAL).or_else(|| attribute(attributes, ADDRESS))?;
    let ipv4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    ipv4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `strace -e trace=recvfrom -xx ip addr` of an interface with 192.168.0.10/24, index 2.
    const MESSAGE: [u8; 24] =
        [2, 24, 0x80, 0, 2, 0, 0, 0, 8, 0, 1, 0, 192, 168, 0, 10, 8, 0, 2, 0, 192, 168, 0, 10];

    #[test]
    fn addresses_of_other_interfaces_or_link_scope_are_ignored() {
        assert_eq!(parse_address(&MESSAGE, 2), Some(IpAddr::from([192, 168, 0, 10])));
        assert_eq!(parse_address(&MESSAGE, 3), None);
        assert_eq!(parse_address(&MESSAGE[..10], 2), None);
        let mut on_link = MESSAGE;
        on_link[SCOPE] = SCOPE_LINK;
        assert_eq!(parse_address(&on_link, 2), None);
    }

    #[test]
    fn loopback_has_127_0_0_1() {
        let found = addresses(&Host::live(), "lo").expect("addresses of lo");
        assert!(found.contains(&IpAddr::from([127, 0, 0, 1])), "{found:?}");
    }
}
