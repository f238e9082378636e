//! Networks in CIDR notation, and the test for near addresses. `load` sends to near addresses, and
//! `serve` answers them, without an option that names their network. [`echo`] distinguishes
//! requests from replies.

pub mod echo;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A network in CIDR notation. An address without a prefix is a network with one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Net {
    address: IpAddr,
    prefix: u8,
}

/// The error of a text that is not a [`Net`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not an address or a network such as 192.0.2.1 or 2001:db8::/32")]
pub struct NetError(String);

impl Net {
    /// The network of `address` with a prefix of `prefix` bits. `None` if the family has fewer
    /// bits.
    #[must_use]
    pub fn new(address: IpAddr, prefix: u8) -> Option<Self> {
        (u32::from(prefix) <= bits(address).1).then_some(Net { address, prefix })
    }

    /// The prefix length in bits.
    #[must_use]
    pub fn prefix(&self) -> u8 {
        self.prefix
    }

    /// Whether `address` lies in this network.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let ((network, length), (candidate, candidate_length)) = (bits(self.address), bits(address));
        let host_bits = length - u32::from(self.prefix);
        length == candidate_length && (network ^ candidate).checked_shr(host_bits).unwrap_or(0) == 0
    }

    /// The host addresses of this network, in order. Leaves out the network and broadcast addresses
    /// of an IPv4 network and the subnet-router anycast address of an IPv6 network, except in
    /// networks of one or two addresses.
    pub fn hosts(&self) -> impl Iterator<Item = IpAddr> + use<> {
        let (address, bits) = bits(self.address);
        let host_bits = bits - u32::from(self.prefix);
        let span = u128::MAX.checked_shr(128 - host_bits).unwrap_or(0);
        let (base, v4) = (address & !span, bits == 32);
        let first = u128::from(host_bits > 1);
        let last = span - u128::from(host_bits > 1 && v4);
        (first..=last).map(move |host| {
            let address = base | host;
            if v4 { Ipv4Addr::from_bits(address as u32).into() } else { Ipv6Addr::from_bits(address).into() }
        })
    }
}

/// The bits of an address and their number.
fn bits(address: IpAddr) -> (u128, u32) {
    match address {
        IpAddr::V4(v4) => (v4.to_bits().into(), 32),
        IpAddr::V6(v6) => (v6.to_bits(), 128),
    }
}

impl From<IpAddr> for Net {
    fn from(address: IpAddr) -> Self {
        Net { address, prefix: if address.is_ipv4() { 32 } else { 128 } }
    }
}

impl FromStr for Net {
    type Err = NetError;

    fn from_str(text: &str) -> Result<Self, NetError> {
        let error = || NetError(text.to_owned());
        match text.trim().split_once('/') {
            None => text.trim().parse::<IpAddr>().map(Net::from).map_err(|_| error()),
            Some((address, prefix)) => {
                let address = address.parse().map_err(|_| error())?;
                let prefix = prefix.parse().map_err(|_| error())?;
                Net::new(address, prefix).ok_or_else(error)
            }
        }
    }
}

impl fmt::Display for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

/// Whether `address` is near: loopback, the benchmarking networks the lab uses
/// (198.18.0.0/15, RFC 2544; 2001:2::/48, RFC 5180), private (RFC 1918, fc00::/7) and link-local addresses.
#[must_use]
pub fn is_near(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            v4.is_loopback() || v4.is_private() || v4.is_link_local() || lab_v4().contains(v4.into())
        }
        IpAddr::V6(v6) => {
            v6.is_loopback()
                || v6.is_unique_local()
                || v6.is_unicast_link_local()
                || lab_v6().contains(v6.into())
        }
    }
}

fn lab_v4() -> Net {
    Net { address: Ipv4Addr::new(198, 18, 0, 0).into(), prefix: 15 }
}

fn lab_v6() -> Net {
    Net { address: Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 0).into(), prefix: 48 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_exclude_network_and_broadcast_addresses() {
        let hosts = |net: &str| -> Vec<String> {
            let net: Net = net.parse().expect("a network");
            net.hosts().take(5).map(|host| host.to_string()).collect()
        };
        assert_eq!(hosts("10.0.0.7"), ["10.0.0.7"]);
        assert_eq!(hosts("10.0.0.6/31"), ["10.0.0.6", "10.0.0.7"]);
        assert_eq!(hosts("10.0.0.5/30"), ["10.0.0.5", "10.0.0.6"]);
        assert_eq!(hosts("255.255.255.255/0")[0], "0.0.0.1");
        assert_eq!(hosts("fd00::/126"), ["fd00::1", "fd00::2", "fd00::3"]);
        assert_eq!(hosts("::/0").len(), 5);
    }

    #[test]
    fn near_covers_only_local_private_and_lab_networks() {
        for close in [
            "127.0.0.1",
            "127.9.9.9",
            "10.1.2.3",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "::1",
            "fd00::1",
            "fe80::1",
            "2001:2::1",
            "::ffff:10.0.0.1",
        ] {
            assert!(is_near(close.parse().unwrap()), "{close}");
        }
        for far in [
            "8.8.8.8",
            "0.0.0.0",
            "172.32.0.1",
            "198.20.0.1",
            "198.17.255.255",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "2001:2:1::1",
            "2001:4860:4860::8888",
            "ff02::1",
            "::ffff:8.8.8.8",
        ] {
            assert!(!is_near(far.parse().unwrap()), "{far}");
        }
    }

    #[test]
    fn nets_parse_and_contain_their_addresses() {
        let net: Net = "192.0.2.0/24".parse().unwrap();
        assert!(net.contains("192.0.2.77".parse().unwrap()));
        assert!(!net.contains("192.0.3.1".parse().unwrap()));
        assert!(!net.contains("::1".parse().unwrap()));
        assert!("0.0.0.0/0".parse::<Net>().unwrap().contains("9.9.9.9".parse().unwrap()));
        assert!("::/0".parse::<Net>().unwrap().contains("2001:db8::1".parse().unwrap()));
        let single: Net = "2001:db8::1".parse().unwrap();
        assert!(
            single.contains("2001:db8::1".parse().unwrap())
                && !single.contains("2001:db8::2".parse().unwrap())
        );
        for wrong in ["", "example.com", "192.0.2.0/33", "::/129", "10.0.0.0/", "10.0.0.0/-1"] {
            assert!(wrong.parse::<Net>().is_err(), "{wrong}");
        }
    }
}
