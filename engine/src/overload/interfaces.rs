//! The interfaces on which a server's requests arrive, and the addresses of the requests: a guard
//! is attached there.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use crate::sys::interface::{NetDevice, is_served};

#[derive(Debug, PartialEq, Eq)]
pub(super) struct GuardedInterfaces {
    pub(super) interfaces: Vec<String>,
    /// Empty if the server has one address, which the program knows.
    pub(super) addresses: Vec<SocketAddr>,
}

/// The interfaces for a server on `addresses`, or the interfaces `requested_names`. Addresses that
/// no interface has are left out; it is an error if none is left.
pub(super) fn find_all(
    devices: &[NetDevice],
    addresses: &[SocketAddr],
    only_v6: bool,
    requested_names: &[String],
) -> Result<GuardedInterfaces, String> {
    let (guarded_parts, errors): (Vec<_>, Vec<_>) = addresses
        .iter()
        .map(|address| find(devices, *address, only_v6, requested_names))
        .partition(Result::is_ok);
    let mut guarded_parts: Vec<GuardedInterfaces> = guarded_parts.into_iter().flatten().collect();
    match (guarded_parts.len(), addresses) {
        (0, _) => Err(errors.into_iter().find_map(Result::err).unwrap_or_default()),
        (1, [_]) => Ok(guarded_parts.remove(0)),
        _ => {
            let interfaces: BTreeSet<String> =
                guarded_parts.iter_mut().flat_map(|part| part.interfaces.drain(..)).collect();
            let specific_addresses =
                addresses.iter().filter(|address| !address.ip().to_canonical().is_unspecified());
            let mut all_addresses: BTreeSet<SocketAddr> = specific_addresses.copied().collect();
            all_addresses.extend(guarded_parts.into_iter().flat_map(|part| part.addresses));
            Ok(GuardedInterfaces {
                interfaces: interfaces.into_iter().collect(),
                addresses: all_addresses.into_iter().collect(),
            })
        }
    }
}

fn find(
    devices: &[NetDevice],
    address: SocketAddr,
    only_v6: bool,
    requested_names: &[String],
) -> Result<GuardedInterfaces, String> {
    let served_ip = address.ip().to_canonical();
    let has_address =
        |device: &NetDevice| device.addresses.iter().any(|address| is_served(served_ip, only_v6, *address));
    let candidates: Vec<&NetDevice> =
        devices.iter().filter(|device| device.up && !device.loopback && has_address(device)).collect();
    // A packet to a VLAN or bridge passes the programs of both interfaces, and would count twice. The
    // kernel allows no program below an interface that has one (net/core/dev.c, `dev_xdp_attach`).
    let is_above_candidate = |device: &&&NetDevice| {
        device.lower.iter().any(|lower| candidates.iter().any(|candidate| candidate.name == *lower))
    };
    let mut interfaces: BTreeSet<String> = requested_names.iter().cloned().collect();
    if interfaces.is_empty() {
        let lowest = candidates.iter().filter(|device| !is_above_candidate(device));
        interfaces = lowest.map(|device| device.name.clone()).collect();
    }
    if interfaces.is_empty() {
        let address_text =
            if served_ip.is_unspecified() { "an address".to_owned() } else { served_ip.to_string() };
        return Err(format!("no interface but the loopback one is up and has {address_text}"));
    }
    let mut addresses = BTreeSet::new();
    if served_ip.is_unspecified() {
        let all = devices.iter().flat_map(|device| device.addresses.iter().copied());
        let served = all.filter(|address| is_served(served_ip, only_v6, *address));
        addresses.extend(served.map(|ip| SocketAddr::new(ip, address.port())));
    }
    Ok(GuardedInterfaces {
        interfaces: interfaces.into_iter().collect(),
        addresses: addresses.into_iter().collect(),
    })
}

/// An address and a port as the program looks them up.
pub(super) fn address_key(address: SocketAddr) -> [u32; 5] {
    let [first, second, third, fourth] = address_words(address.ip());
    [first, second, third, fourth, address.port().to_be().into()]
}

/// An address as the program compares it: words as on the wire, IPv4 mapped.
pub(super) fn address_words(address: IpAddr) -> [u32; 4] {
    let octets = match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    };
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(octets.chunks_exact(4)) {
        *word = bytes.first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn devices() -> Vec<NetDevice> {
        let device = |name: &str, up, addresses: &[&str]| {
            let addresses = addresses.iter().filter_map(|address| address.parse().ok()).collect();
            let loopback = name == "lo";
            let (name, lower) = (name.to_owned(), Vec::new());
            NetDevice { name, index: 1, up, loopback, addresses, driver: None, lower }
        };
        vec![
            device("lo", true, &["127.0.0.1"]),
            device("eth0", true, &["192.0.2.1", "2001:db8::1"]),
            device("eth1", true, &["198.51.100.1"]),
            device("eth2", false, &["203.0.113.1"]),
        ]
    }

    #[test]
    fn guard_attaches_to_up_interfaces_with_the_bound_address() -> Result<(), Box<dyn std::error::Error>> {
        for (address, only_v6, interfaces, addresses) in [
            ("192.0.2.1:53", false, &["eth0"][..], 0),
            ("[2001:db8::1]:53", true, &["eth0"], 0),
            ("[::ffff:192.0.2.1]:53", false, &["eth0"], 0),
            ("0.0.0.0:53", false, &["eth0", "eth1"], 4),
            ("[::]:53", false, &["eth0", "eth1"], 5),
            ("[::]:53", true, &["eth0"], 1),
        ] {
            let place = find(&devices(), address.parse()?, only_v6, &[])?;
            assert_eq!(place.interfaces, interfaces, "{address}");
            assert_eq!(place.addresses.len(), addresses, "{address}");
        }
        let named = find(&devices(), "192.0.2.1:53".parse()?, false, &["eth1".to_owned()])?;
        assert_eq!(named.interfaces, ["eth1"]);
        for address in ["127.0.0.1:53", "203.0.113.1:53", "192.0.2.9:53"] {
            assert!(find(&devices(), address.parse()?, false, &[]).is_err(), "{address}");
        }
        Ok(())
    }

    #[test]
    fn wildcard_guard_skips_ports_of_bridges_and_interfaces_above_others()
    -> Result<(), std::net::AddrParseError> {
        let mut devices = devices();
        let mut add = |name: &str, address: &str, lower: &[&str]| {
            let addresses = address.parse().into_iter().collect();
            let lower = lower.iter().map(|name| (*name).to_owned()).collect();
            let name = name.to_owned();
            let driver = None;
            devices.push(NetDevice { name, index: 1, up: true, loopback: false, addresses, driver, lower });
        };
        add("docker0", "172.17.0.1", &["veth1"]);
        add("veth1", "none", &[]);
        add("eth0.100", "10.0.0.1", &["eth0"]);
        let place = find(&devices, "0.0.0.0:53".parse()?, false, &[]);
        assert_eq!(
            place.map(|place| place.interfaces),
            Ok(["docker0", "eth0", "eth1"].map(str::to_owned).to_vec())
        );
        Ok(())
    }

    #[test]
    fn guard_attaches_to_the_interfaces_of_all_bound_addresses() -> Result<(), Box<dyn std::error::Error>> {
        let (first, second): (SocketAddr, SocketAddr) =
            ("192.0.2.1:53".parse()?, "198.51.100.1:5353".parse()?);
        let place = find_all(&devices(), &[first, second], false, &[])?;
        assert_eq!((place.interfaces.len(), place.addresses), (2, vec![first, second]));
        let local = "127.0.0.1:53".parse()?;
        assert_eq!(find_all(&devices(), &[local, second], false, &[])?.interfaces, ["eth1"]);
        assert!(find_all(&devices(), &[local], false, &[]).is_err());
        Ok(())
    }

    #[test]
    fn address_words_are_in_network_byte_order() -> Result<(), std::net::AddrParseError> {
        assert_eq!(address_words("192.0.2.1".parse()?)[3].to_ne_bytes(), [192, 0, 2, 1]);
        assert_eq!(address_words("192.0.2.1".parse()?)[2].to_ne_bytes(), [0, 0, 0xff, 0xff]);
        assert_eq!(address_words("2001:db8::1".parse()?)[0].to_ne_bytes(), [0x20, 1, 0xd, 0xb8]);
        Ok(())
    }
}
