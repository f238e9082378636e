//! The path to a destination: route, interface and neighbour.

use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::link::{
    InfoData, InfoKind, InfoVlan, LinkAttribute, LinkInfo, LinkMessage, VlanProtocol,
};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteMetric, RouteType};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::protocols::NETLINK_ROUTE;

use super::connection::NetlinkConnection;
use super::link::{first_answer, link_message};
use crate::root::Host;

pub type Mac = [u8; 6];

// The kernel sends three requests, one second apart (mcast_solicit and retrans_time_ms in arp(7)).
const RESOLUTION: Duration = Duration::from_millis(3_500);

// Poll interval during a resolution. Netlink would send the events of all other neighbours, too.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoutePath {
    /// The lower interface if the route uses a VLAN interface.
    pub interface: String,
    pub index: u32,
    /// 802.1Q tag, 1 to 4094.
    pub vlan: Option<u16>,
    /// As requested, or the kernel's choice.
    pub source: IpAddr,
    pub source_mac: Mac,
    /// The gateway, or the destination itself.
    pub next_hop: IpAddr,
    pub next_hop_mac: Mac,
    /// Bytes of the largest IP packet.
    pub mtu: u32,
}

#[derive(Debug, thiserror::Error)]
pub enum PathError {
    /// The destination is this host.
    #[error("{0} is an address of this host: nothing sent to it leaves by an interface")]
    Local(IpAddr),
    #[error("no route to {destination}: {source}")]
    NoRoute { destination: IpAddr, source: io::Error },
    /// A route that is not unicast.
    #[error(
        "the route to {destination} is {what}: only one to a single next hop on Ethernet can be followed"
    )]
    Route { destination: IpAddr, what: String },
    /// The next hop did not answer.
    #[error(
        "{next_hop} on {interface} does not answer to address resolution: is it up and in the same network?"
    )]
    NoNeighbour { next_hop: IpAddr, interface: String },
    /// A VLAN on a VLAN, or a VLAN that is not 802.1Q.
    #[error("{interface} is not an Ethernet interface or an 802.1Q VLAN on one")]
    Interface { interface: String },
    #[error("cannot ask the kernel for {what}: {source}")]
    Ask { what: &'static str, source: io::Error },
    #[error(transparent)]
    NotLive(#[from] crate::root::HostError),
}

/// The path to `destination` in the calling thread's network namespace. If necessary, resolves the
/// hardware address of the next hop, which requires CAP_NET_ADMIN (`NTF_USE`).
///
/// # Errors
/// There is no route, the destination is local, the next hop does not answer within 3.5 s, the
/// interface is not Ethernet, or the host is not live.
pub fn path_to(host: &Host, destination: IpAddr, source: Option<IpAddr>) -> Result<RoutePath, PathError> {
    host.must_be_live("the way to a destination")?;
    let mut netlink = RouteNetlink::open()?;
    let route = netlink.route(destination, source)?;
    let upper = interface_entry(route.interface)?;
    let upper_name = upper.name.clone();
    let (lower, vlan) = match upper.vlan {
        None => (upper, None),
        Some((lower_index, tag)) => {
            let lower = interface_entry(lower_index)?;
            // A VLAN has its own hardware address and MTU.
            (LinkEntry { mac: upper.mac, mtu: upper.mtu, ..lower }, Some(tag))
        }
    };
    if lower.vlan.is_some() {
        return Err(PathError::Interface { interface: lower.name });
    }
    let Some(source_mac) = lower.mac else { return Err(PathError::Interface { interface: lower.name }) };
    let next_hop_mac = netlink.neighbour(route.interface, &upper_name, route.next_hop)?;
    Ok(RoutePath {
        interface: lower.name,
        index: lower.index,
        vlan,
        source: route.source,
        source_mac,
        next_hop: route.next_hop,
        next_hop_mac,
        mtu: route.mtu.unwrap_or(lower.mtu).min(lower.mtu),
    })
}

#[derive(Debug, PartialEq, Eq)]
struct RouteEntry {
    interface: u32,
    next_hop: IpAddr,
    source: IpAddr,
    mtu: Option<u32>,
}

#[derive(Debug, PartialEq, Eq)]
struct LinkEntry {
    name: String,
    index: u32,
    mac: Option<Mac>,
    mtu: u32,
    /// The index of the lower interface, and the tag.
    vlan: Option<(u32, u16)>,
}

struct RouteNetlink(NetlinkConnection);

fn interface_entry(index: u32) -> Result<LinkEntry, PathError> {
    let ask_error = |source| PathError::Ask { what: "an interface", source };
    read_link(&link_message(index, Vec::new()).map_err(ask_error)?)
}

impl RouteNetlink {
    fn open() -> Result<Self, PathError> {
        NetlinkConnection::open(NETLINK_ROUTE)
            .map(RouteNetlink)
            .map_err(|source| PathError::Ask { what: "routes", source })
    }

    fn route(&mut self, destination: IpAddr, source: Option<IpAddr>) -> Result<RouteEntry, PathError> {
        let mut message = RouteMessage::default();
        message.header.address_family = family(destination);
        message.header.destination_prefix_length = address_bits(destination);
        message.attributes.push(RouteAttribute::Destination(destination.into()));
        if let Some(source) = source {
            message.header.source_prefix_length = address_bits(source);
            message.attributes.push(RouteAttribute::Source(source.into()));
        }
        match first_answer(&mut self.0, &RouteNetlinkMessage::GetRoute(message), 0) {
            Ok(Some(RouteNetlinkMessage::NewRoute(route))) => read_route(&route, destination, source),
            Ok(_) => Err(PathError::Ask { what: "a route", source: io::ErrorKind::UnexpectedEof.into() }),
            Err(source) => Err(PathError::NoRoute { destination, source }),
        }
    }

    /// Returns the hardware address, and resolves it if necessary.
    fn neighbour(&mut self, index: u32, interface: &str, address: IpAddr) -> Result<Mac, PathError> {
        let deadline = Instant::now() + RESOLUTION;
        let mut is_requested = false;
        loop {
            match first_answer(
                &mut self.0,
                &RouteNetlinkMessage::GetNeighbour(neighbour_message(index, address)),
                0,
            ) {
                Ok(Some(RouteNetlinkMessage::NewNeighbour(neighbour))) => match read_neighbour(&neighbour) {
                    NeighborResolution::Known(mac) => return Ok(mac),
                    NeighborResolution::Failed if is_requested => break,
                    NeighborResolution::Failed | NeighborResolution::UnderWay => {}
                },
                Ok(_) => {}
                // The kernel has no entry for the neighbour yet.
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
                Err(source) => return Err(PathError::Ask { what: "a neighbour", source }),
            }
            if !is_requested {
                self.resolve(index, address)?;
                is_requested = true;
            }
            if Instant::now() >= deadline {
                break;
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        Err(PathError::NoNeighbour { next_hop: address, interface: interface.to_owned() })
    }

    /// Triggers a resolution without sending a packet.
    fn resolve(&mut self, index: u32, address: IpAddr) -> Result<(), PathError> {
        let mut message = neighbour_message(index, address);
        message.header.flags = NeighbourFlags::Use;
        first_answer(&mut self.0, &RouteNetlinkMessage::NewNeighbour(message), NLM_F_CREATE | NLM_F_REPLACE)
            .map(drop)
            .map_err(|source| PathError::Ask { what: "an address resolution", source })
    }
}

fn neighbour_message(index: u32, address: IpAddr) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = family(address);
    message.header.ifindex = index;
    let address = match address {
        IpAddr::V4(address) => NeighbourAddress::Inet(address),
        IpAddr::V6(address) => NeighbourAddress::Inet6(address),
    };
    message.attributes.push(NeighbourAttribute::Destination(address));
    message
}

fn read_route(
    route: &RouteMessage,
    destination: IpAddr,
    requested_source: Option<IpAddr>,
) -> Result<RouteEntry, PathError> {
    match route.header.kind {
        RouteType::Unicast => {}
        RouteType::Local => return Err(PathError::Local(destination)),
        kind => return Err(PathError::Route { destination, what: format!("{kind:?}").to_lowercase() }),
    }
    let (mut interface, mut next_hop, mut source, mut mtu) = (None, destination, requested_source, None);
    for attribute in &route.attributes {
        match attribute {
            RouteAttribute::Oif(index) => interface = Some(*index),
            RouteAttribute::Gateway(gateway) => next_hop = ip_address(gateway).unwrap_or(next_hop),
            RouteAttribute::Via(_) => {
                return Err(PathError::Route {
                    destination,
                    what: "by a gateway of another family".to_owned(),
                });
            }
            RouteAttribute::PrefSource(preferred) => source = source.or(ip_address(preferred)),
            RouteAttribute::Metrics(metrics) => {
                mtu = metrics.iter().find_map(|metric| match metric {
                    RouteMetric::Mtu(mtu) => Some(*mtu),
                    _ => None,
                });
            }
            RouteAttribute::Encap(_) => {
                return Err(PathError::Route { destination, what: "encapsulated".to_owned() });
            }
            _ => {}
        }
    }
    let (Some(interface), Some(source)) = (interface, source) else {
        return Err(PathError::Route {
            destination,
            what: "without an interface or source address".to_owned(),
        });
    };
    Ok(RouteEntry { interface, next_hop, source, mtu })
}

fn read_link(link: &LinkMessage) -> Result<LinkEntry, PathError> {
    let mut entry =
        LinkEntry { name: String::new(), index: link.header.index, mac: None, mtu: 0, vlan: None };
    let (mut lower_index, mut tag, mut is_other_vlan) = (None, None, false);
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::IfName(name) => entry.name.clone_from(name),
            LinkAttribute::Mtu(mtu) => entry.mtu = *mtu,
            LinkAttribute::Address(mac) => entry.mac = mac.as_slice().try_into().ok(),
            LinkAttribute::Link(index) => lower_index = Some(*index),
            LinkAttribute::LinkInfo(infos) => (tag, is_other_vlan) = (vlan_tag(infos), is_not_8021q(infos)),
            _ => {}
        }
    }
    if is_other_vlan {
        return Err(PathError::Interface { interface: entry.name });
    }
    entry.vlan = lower_index.zip(tag);
    Ok(entry)
}

fn vlan_infos(infos: &[LinkInfo]) -> impl Iterator<Item = &InfoVlan> {
    let vlans = infos.iter().filter_map(|info| match info {
        LinkInfo::Data(InfoData::Vlan(vlan)) => Some(vlan),
        _ => None,
    });
    vlans.flatten()
}

/// Whether it is a VLAN of another kind, such as 802.1ad.
fn is_not_8021q(infos: &[LinkInfo]) -> bool {
    vlan_infos(infos)
        .any(|info| matches!(info, InfoVlan::Protocol(protocol) if *protocol != VlanProtocol::Ieee8021Q))
}

fn vlan_tag(infos: &[LinkInfo]) -> Option<u16> {
    infos.iter().find(|info| matches!(info, LinkInfo::Kind(InfoKind::Vlan)))?;
    vlan_infos(infos).find_map(|info| match info {
        InfoVlan::Id(tag) => Some(*tag),
        _ => None,
    })
}

#[derive(Debug, PartialEq, Eq)]
enum NeighborResolution {
    Known(Mac),
    UnderWay,
    Failed,
}

fn read_neighbour(neighbour: &NeighbourMessage) -> NeighborResolution {
    let mac = neighbour.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::LinkLayerAddress(mac) => Mac::try_from(mac.as_slice()).ok(),
        _ => None,
    });
    match (neighbour.header.state, mac) {
        (NeighbourState::Failed, _) => NeighborResolution::Failed,
        (NeighbourState::Incomplete | NeighbourState::None, _) | (_, None) => NeighborResolution::UnderWay,
        (_, Some(mac)) => NeighborResolution::Known(mac),
    }
}

fn ip_address(route_address: &RouteAddress) -> Option<IpAddr> {
    match route_address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}

fn family(address: IpAddr) -> AddressFamily {
    if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

fn address_bits(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

#[cfg(test)]
#[path = "path_tests.rs"]
mod tests;
