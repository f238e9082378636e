//! One interface as rtnetlink reports it (RTM_GETLINK).

use std::io;

use netlink_packet_core::{NetlinkDeserializable, NetlinkHeader, NetlinkSerializable};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;

use super::connection::NetlinkConnection;

/// Requests the interface with this index in the calling thread's network namespace.
pub(crate) fn link_message(index: u32, attributes: Vec<LinkAttribute>) -> io::Result<LinkMessage> {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message.attributes = attributes;
    let mut connection = NetlinkConnection::open(NETLINK_ROUTE)?;
    match first_answer(&mut connection, &RouteNetlinkMessage::GetLink(message), 0)? {
        Some(RouteNetlinkMessage::NewLink(link)) => Ok(link),
        Some(_) => Err(io::ErrorKind::InvalidData.into()),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Whether the link of the interface with this index is up, in the calling thread's network
/// namespace.
///
/// # Errors
/// No such interface, or no answer of the kernel.
pub fn has_carrier(index: u32) -> io::Result<bool> {
    Ok(link_message(index, Vec::new())?.header.flags.contains(LinkFlags::LowerUp))
}

pub(super) fn first_answer(
    connection: &mut NetlinkConnection,
    message: &RouteNetlinkMessage,
    flags: u16,
) -> io::Result<Option<RouteNetlinkMessage>> {
    let mut body = vec![0; message.buffer_len()];
    message.serialize(&mut body);
    let answers = connection.request(message.message_type(), flags, &body)?;
    let Some(answer) = answers.first() else { return Ok(None) };
    let mut header = NetlinkHeader::default();
    header.message_type = answer.kind;
    RouteNetlinkMessage::deserialize(&header, &answer.body).map(Some).map_err(io::Error::other)
}
