//! One interface as rtnetlink reports it (RTM_GETLINK).

use std::io;

use netlink_packet_core::{NetlinkDeserializable, NetlinkHeader, NetlinkSerializable};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;

use super::connection::NetlinkConnection;

/// Requests the interface with this index in the calling thread's network namespace.
pub(crate) fn link_message(index: u32, attributes: Vec<LinkAttribute>) -> io::Result<LinkMessage> {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message.attributes = attributes;
    let message = RouteNetlinkMessage::GetLink(message);
    let mut body = vec![0; message.buffer_len()];
    message.serialize(&mut body);
    let answers = NetlinkConnection::open(NETLINK_ROUTE)?.request(message.message_type(), 0, &body)?;
    let answer = answers.first().ok_or(io::ErrorKind::UnexpectedEof)?;
    let mut header = NetlinkHeader::default();
    header.message_type = answer.kind;
    match RouteNetlinkMessage::deserialize(&header, &answer.body).map_err(io::Error::other)? {
        RouteNetlinkMessage::NewLink(link) => Ok(link),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}
