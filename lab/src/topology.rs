//! Hosts, links and addresses of a lab.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use crate::error::{LabError, Result};
use crate::rtnetlink::Mac;

pub const RECEIVER: &str = "receiver";

pub const SENDERS: RangeInclusive<usize> = 1..=64;
/// Queues an interface may have.
pub const QUEUES: RangeInclusive<u32> = 1..=64;
/// Addresses of each family an interface may have.
pub const ADDRESSES: RangeInclusive<usize> = 1..=99;
/// MTU: at least the minimum of IPv6 (RFC 8200, section 5), at most the maximum of veth (`ETH_MAX_MTU` less the Ethernet
/// header; drivers/net/veth.c).
pub const MTU: RangeInclusive<u32> = 1280..=65521;

/// Fixed interface indices are known before the links exist. They differ, so that an index in a log identifies the end.
const RECEIVER_INDEX: u32 = 10;
const SENDER_INDEX: u32 = 100;

/// Last byte of a receiver's first IPv4 address, and of a sender's. In IPv6 the digits are the same.
const RECEIVER_ADDRESS: u8 = 1;
const SENDER_ADDRESS: u8 = 100;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LabShape {
    /// Sending hosts, each with a link to the receiver.
    pub senders: usize,
    /// Transmit queues, and receive queues, at both ends of each link.
    pub queues: u32,
    /// Addresses of each family on each interface of the receiver.
    pub addresses: usize,
    /// Addresses of each family on each sender.
    pub sender_addresses: usize,
    pub mtu: u32,
}

impl Default for LabShape {
    /// One sender, one queue per CPU (2 to 16), one address, MTU 1500.
    fn default() -> Self {
        let cpus = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        Self {
            senders: 1,
            queues: u32::try_from(cpus.clamp(2, 16)).unwrap_or(16),
            addresses: 1,
            sender_addresses: 1,
            mtu: 1500,
        }
    }
}

/// A link between a sender and the receiver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabLink {
    /// Number of the link and of its sender, from 0.
    pub number: usize,
    /// Transmit queues, and as many receive queues, at each end.
    pub queues: u32,
    pub mtu: u32,
    pub receiver: LinkEnd,
    pub sender: LinkEnd,
}

/// One end of a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkEnd {
    pub host: String,
    pub interface: String,
    pub index: u32,
    pub mac: Mac,
    /// IPv4 addresses, all in the link's /24. Never empty.
    pub ipv4: Vec<Ipv4Addr>,
    /// IPv6 addresses, all in the link's /64. Empty without IPv6.
    pub ipv6: Vec<Ipv6Addr>,
}

impl LinkEnd {
    /// All addresses with the length of their prefix.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = (IpAddr, u8)> + '_ {
        let v4 = self.ipv4.iter().map(|a| (IpAddr::V4(*a), 24));
        let v6 = self.ipv6.iter().map(|a| (IpAddr::V6(*a), 64));
        v4.chain(v6)
    }
}

pub fn sender_name(number: usize) -> String {
    format!("sender{number}")
}

impl LabShape {
    /// Checks every number against its range.
    pub(crate) fn check(&self) -> Result<()> {
        in_range("senders", &self.senders, &SENDERS)?;
        in_range("queues", &self.queues, &QUEUES)?;
        in_range("addresses", &self.addresses, &ADDRESSES)?;
        in_range("sender addresses", &self.sender_addresses, &ADDRESSES)?;
        in_range("mtu", &self.mtu, &MTU)
    }

    /// The links of a lab of this shape.
    ///
    /// IPv4 from 198.18.0.0/15 (benchmarks, RFC 2544), IPv6 from 2001:2::/48 (RFC 5180).
    pub(crate) fn links(&self) -> Vec<LabLink> {
        (0..self.senders)
            .map(|number| {
                let subnet = u8::try_from(number).unwrap_or(u8::MAX);
                LabLink {
                    number,
                    queues: self.queues,
                    mtu: self.mtu,
                    receiver: LinkEnd {
                        host: RECEIVER.to_owned(),
                        interface: format!("eth{number}"),
                        index: RECEIVER_INDEX + u32::from(subnet),
                        mac: mac(subnet, RECEIVER_ADDRESS),
                        ipv4: ipv4(subnet, RECEIVER_ADDRESS, self.addresses),
                        ipv6: ipv6(subnet, RECEIVER_ADDRESS, self.addresses),
                    },
                    sender: LinkEnd {
                        host: sender_name(number),
                        interface: "eth0".to_owned(),
                        index: SENDER_INDEX + u32::from(subnet),
                        mac: mac(subnet, SENDER_ADDRESS),
                        ipv4: ipv4(subnet, SENDER_ADDRESS, self.sender_addresses),
                        ipv6: ipv6(subnet, SENDER_ADDRESS, self.sender_addresses),
                    },
                }
            })
            .collect()
    }
}

/// A locally administered address: 02, "LR", the link, the host.
fn mac(subnet: u8, host: u8) -> Mac {
    [0x02, b'L', b'R', 0, subnet, host]
}

fn hosts(first: u8, count: usize) -> impl Iterator<Item = u8> {
    (first..).take(count)
}

fn ipv4(subnet: u8, first: u8, count: usize) -> Vec<Ipv4Addr> {
    hosts(first, count).map(|host| Ipv4Addr::new(198, 18, subnet, host)).collect()
}

fn ipv6(subnet: u8, first: u8, count: usize) -> Vec<Ipv6Addr> {
    hosts(first, count)
        .map(|host| Ipv6Addr::new(0x2001, 2, 0, subnet.into(), 0, 0, 0, decimal_as_hex(host)))
        .collect()
}

/// 100 to 0x100, so that an IPv6 address ends in the digits of the IPv4 address.
fn decimal_as_hex(number: u8) -> u16 {
    let number = u16::from(number);
    number / 100 * 0x100 + number / 10 % 10 * 0x10 + number % 10
}

fn in_range<T: PartialOrd + std::fmt::Display>(
    option: &'static str,
    value: &T,
    range: &RangeInclusive<T>,
) -> Result<()> {
    if range.contains(value) {
        return Ok(());
    }
    Err(LabError::OutOfRange {
        option,
        value: value.to_string(),
        allowed: format!("{} to {}", range.start(), range.end()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    #[test]
    fn the_first_link_has_the_documented_addresses() {
        let shape = LabShape { addresses: 2, ..LabShape::default() };
        let link = &shape.links()[0];
        assert_eq!(link.receiver.ipv4, [Ipv4Addr::new(198, 18, 0, 1), Ipv4Addr::new(198, 18, 0, 2)]);
        assert_eq!(link.sender.ipv4, [Ipv4Addr::new(198, 18, 0, 100)]);
        assert_eq!(link.receiver.ipv6, ["2001:2::1", "2001:2::2"].map(|a| a.parse::<Ipv6Addr>().unwrap()));
        assert_eq!(link.sender.ipv6, ["2001:2::100".parse::<Ipv6Addr>().unwrap()]);
    }

    proptest! {
        #[test]
        fn addresses_and_macs_are_unique_in_a_lab(
            senders in SENDERS, addresses in ADDRESSES, sender_addresses in ADDRESSES,
        ) {
            let shape = LabShape { senders, addresses, sender_addresses, ..LabShape::default() };
            shape.check().unwrap();
            let links = shape.links();
            let ends: Vec<&LinkEnd> = links.iter().flat_map(|l| [&l.receiver, &l.sender]).collect();
            let all: HashSet<IpAddr> =
                ends.iter().flat_map(|end| end.addresses().map(|(a, _)| a)).collect();
            prop_assert_eq!(all.len(), 2 * senders * (addresses + sender_addresses));
            let macs: HashSet<Mac> = ends.iter().map(|end| end.mac).collect();
            prop_assert_eq!(macs.len(), 2 * senders);
            prop_assert!(links.iter().all(|l| l.receiver.index != l.sender.index));
        }
    }
}
