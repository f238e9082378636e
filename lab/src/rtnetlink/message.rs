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

pub(crate) type Mac = [u8; 6];

/// One end of a veth pair to be made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewEnd<'a> {
    pub name: &'a str,
    /// Interface index, which must be free in its namespace.
    pub index: u32,
    pub mac: Mac,
    /// Transmit queues, and as many receive queues.
    pub queues: u32,
    /// Bytes of an IP packet.
    pub mtu: u32,
}

impl NewEnd<'_> {
    fn message(&self) -> LinkMessage {
        let mut message = LinkMessage::default();
        message.header.index = self.index;
        message.attributes = vec![
            LinkAttribute::IfName(self.name.to_owned()),
            LinkAttribute::Address(self.mac.to_vec()),
            LinkAttribute::Mtu(self.mtu),
            LinkAttribute::Group(GROUP),
            // Since Linux 5.15 a pair has queues for all possible CPUs and uses one of them, unless
            // the request has a number (veth_init_queues in drivers/net/veth.c).
            LinkAttribute::NumTxQueues(self.queues),
            LinkAttribute::NumRxQueues(self.queues),
        ];
        message
    }
}

/// A veth pair with one end in the caller's namespace and the other in `peer_namespace`.
pub(crate) fn veth_pair(
    own: NewEnd<'_>,
    peer: NewEnd<'_>,
    peer_namespace: BorrowedFd<'_>,
) -> RouteNetlinkMessage {
    let mut peer_message = peer.message();
    peer_message.attributes.push(LinkAttribute::NetNsFd(peer_namespace.as_raw_fd()));
    let mut message = own.message();
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
