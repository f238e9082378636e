//! The requests, as messages.

use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage, AddressScope};
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags,
    LinkInfo, LinkMessage,
};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::topology::{LabLink, LinkEnd};

pub(crate) type Mac = [u8; 6];

/// A veth pair with the receiver's end in the caller's namespace and the sender's end in
/// `sender_namespace`. The indices must be free there.
pub(crate) fn veth_pair(link: &LabLink, sender_namespace: BorrowedFd<'_>) -> RouteNetlinkMessage {
    let new_end = |end: &LinkEnd| {
        let mut message = of_link(end.index);
        message.attributes = vec![
            LinkAttribute::IfName(end.interface.clone()),
            LinkAttribute::Address(end.mac.to_vec()),
            LinkAttribute::Mtu(link.mtu),
            LinkAttribute::Group(GROUP),
            // Since Linux 5.15 a pair has queues for all possible CPUs and uses one of them, unless
            // the request has a number (veth_init_queues in drivers/net/veth.c).
            LinkAttribute::NumTxQueues(link.queues),
            LinkAttribute::NumRxQueues(link.queues),
        ];
        message
    };
    let mut peer_message = new_end(&link.sender);
    peer_message.attributes.push(LinkAttribute::NetNsFd(sender_namespace.as_raw_fd()));
    let mut message = new_end(&link.receiver);
    message.attributes.push(LinkAttribute::LinkInfo(vec![
        LinkInfo::Kind(InfoKind::Veth),
        LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer_message))),
    ]));
    RouteNetlinkMessage::NewLink(message)
}

pub(crate) fn get_link(index: u32) -> RouteNetlinkMessage {
    RouteNetlinkMessage::GetLink(of_link(index))
}

pub(crate) fn link_up(index: u32) -> RouteNetlinkMessage {
    let mut message = of_link(index);
    message.header.flags = LinkFlags::Up;
    message.header.change_mask = LinkFlags::Up;
    RouteNetlinkMessage::SetLink(message)
}

/// Keeps a link from giving itself a link-local IPv6 address, and with it from sending router
/// solicitations and multicast reports into a measurement.
pub(crate) fn no_link_local(index: u32) -> RouteNetlinkMessage {
    let mut message = of_link(index);
    message.attributes =
        vec![LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(vec![AfSpecInet6::AddrGenMode(
            In6AddrGenMode::None,
        )])])];
    RouteNetlinkMessage::SetLink(message)
}

/// Removes all links made by [`veth_pair`], and with each its other end.
///
/// One request for all links: the kernel waits tens of milliseconds per request until the links are
/// no longer in use, whatever the number of links (`rtnl_group_dellink` in net/core/rtnetlink.c).
pub(crate) fn delete_pairs() -> RouteNetlinkMessage {
    let mut message = LinkMessage::default();
    message.attributes = vec![LinkAttribute::Group(GROUP)];
    RouteNetlinkMessage::DelLink(message)
}

/// The group of the links of a lab. All other links are in group 0.
const GROUP: u32 = 1;

/// Gives an interface an address. An IPv6 address is usable at once (no duplicate detection).
pub(crate) fn address(index: u32, address: IpAddr, prefix_length: u8) -> RouteNetlinkMessage {
    let mut message = AddressMessage::default();
    message.header.family = family(address);
    message.header.prefix_len = prefix_length;
    message.header.index = index;
    message.header.scope = if address.is_loopback() { AddressScope::Host } else { AddressScope::Universe };
    if address.is_ipv6() {
        message.header.flags = AddressHeaderFlags::Nodad;
    }
    message.attributes = vec![AddressAttribute::Local(address), AddressAttribute::Address(address)];
    RouteNetlinkMessage::NewAddress(message)
}

/// A neighbour that the kernel never resolves and that never expires.
pub(crate) fn neighbour(index: u32, address: IpAddr, mac: Mac) -> RouteNetlinkMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = family(address);
    message.header.ifindex = index;
    message.header.state = NeighbourState::Permanent;
    message.attributes = vec![
        NeighbourAttribute::Destination(match address {
            IpAddr::V4(v4) => NeighbourAddress::Inet(v4),
            IpAddr::V6(v6) => NeighbourAddress::Inet6(v6),
        }),
        NeighbourAttribute::LinkLayerAddress(mac.to_vec()),
    ];
    RouteNetlinkMessage::NewNeighbour(message)
}

fn of_link(index: u32) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message
}

fn family(address: IpAddr) -> AddressFamily {
    match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}
