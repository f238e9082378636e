//! Links, addresses and neighbours through rtnetlink.
//!
//! The functions that make messages are pure; a [`RtnetlinkConnection`] sends one and waits for the answer.

use std::io;

use linerate_host::netlink::{NetlinkAnswer, NetlinkConnection};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, NetlinkSerializable};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::protocols::NETLINK_ROUTE;

mod message;

pub(crate) use message::{
    Mac, address, delete_pairs, get_link, link_up, neighbour, no_link_local, veth_pair,
};

/// Index of `lo` in every namespace (`LOOPBACK_IFINDEX` of net/flow.h).
pub(crate) const LOOPBACK: u32 = 1;

/// `IFF_RUNNING` of linux/if.h: up, with carrier, and its queues active.
const FLAG_RUNNING: u32 = 0x40;

/// A netlink socket. It belongs to the network namespace of the thread that opened it.
pub(crate) struct RtnetlinkConnection(NetlinkConnection);

impl RtnetlinkConnection {
    pub(crate) fn open() -> io::Result<Self> {
        let mut connection = NetlinkConnection::open(NETLINK_ROUTE)?;
        connection.request_error_texts();
        Ok(Self(connection))
    }

    pub(crate) fn create(&mut self, message: &RouteNetlinkMessage) -> io::Result<()> {
        self.request(message, NLM_F_CREATE | NLM_F_EXCL).map(drop)
    }

    /// Creates an object; an existing one stays.
    pub(crate) fn replace(&mut self, message: &RouteNetlinkMessage) -> io::Result<()> {
        self.request(message, NLM_F_CREATE | NLM_F_REPLACE).map(drop)
    }

    /// Changes or removes an existing object.
    pub(crate) fn change(&mut self, message: &RouteNetlinkMessage) -> io::Result<()> {
        self.request(message, 0).map(drop)
    }

    /// Whether a link is up with carrier and its queues are active.
    pub(crate) fn is_running(&mut self, index: u32) -> io::Result<bool> {
        let answers = self.request(&get_link(index), 0)?;
        // struct ifinfomsg: flags at 8. Nothing else of the answer is needed.
        let flags = answers.first().and_then(|answer| answer.body.get(8..)?.first_chunk());
        let flags = flags.ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(u32::from_ne_bytes(*flags) & FLAG_RUNNING != 0)
    }

    fn request(&mut self, message: &RouteNetlinkMessage, flags: u16) -> io::Result<Vec<NetlinkAnswer>> {
        let mut body = vec![0; message.buffer_len()];
        message.serialize(&mut body);
        self.0.request(message.message_type(), flags, &body)
    }
}

#[cfg(test)]
mod tests;
