//! Netfilter over netlink: hook functions and nftables tables.

pub(crate) mod hook;
pub(crate) mod table;

use std::io;

use netlink_sys::protocols::NETLINK_NETFILTER;

use super::attribute::{RequestAttributes, attribute};
use super::connection::NetlinkConnection;

// Bytes of struct nfgenmsg (linux/netfilter/nfnetlink.h).
const HEADER_BYTES: usize = 4;

// Protocol families of netfilter (linux/netfilter.h).
const FAMILIES: [(u8, &str); 6] =
    [(1, "inet"), (2, "ip"), (3, "arp"), (5, "netdev"), (7, "bridge"), (10, "ip6")];

/// The name that `nft` uses.
fn family_name(family: u8) -> String {
    let entry = FAMILIES.iter().find(|(number, _)| *number == family);
    entry.map_or_else(|| format!("family {family}"), |(_, name)| (*name).to_owned())
}

/// Lists the objects of a family; 0 means all families, if the subsystem supports that.
fn list(subsystem: u8, message: u8, family: u8, attributes: &RequestAttributes) -> io::Result<Vec<Vec<u8>>> {
    let mut body = vec![family, 0, 0, 0];
    body.extend(attributes.as_bytes());
    let kind = u16::from_be_bytes([subsystem, message]);
    let answers = NetlinkConnection::open(NETLINK_NETFILTER)?.dump(kind, &body)?;
    Ok(answers.into_iter().map(|answer| answer.body).collect())
}

fn split_message(body: &[u8]) -> io::Result<(u8, &[u8])> {
    match (body.first(), body.get(HEADER_BYTES..)) {
        (Some(family), Some(attributes)) => Ok((*family, attributes)),
        _ => Err(truncated_error()),
    }
}

/// In network byte order.
fn attribute_number(attributes: &[u8], kind: u16) -> Option<u32> {
    attribute(attributes, kind)?.first_chunk().copied().map(u32::from_be_bytes)
}

fn truncated_error() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "netfilter's answer is cut short")
}
