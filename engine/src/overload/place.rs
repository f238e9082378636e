//! Where a guard goes: the interfaces that a server's requests arrive on, and the addresses they are for.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use crate::sys::interface::InterfaceAddress;

/// Interfaces and addresses of a guard.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct GuardedInterfaces {
    pub(super) interfaces: Vec<String>,
    /// Empty where the server has one.
    pub(super) addresses: Vec<SocketAddr>,
}

/// The place of the guard of a server on `addresses`; `wanted` are the interfaces asked for. Addresses that no interface has
/// need none, unless it is so with all.
pub(super) fn find_all(
    entries: &[InterfaceAddress],
    addresses: &[SocketAddr],
    wanted: &[String],
) -> Result<GuardedInterfaces, String> {
    let (places, why): (Vec<_>, Vec<_>) =
        addresses.iter().map(|address| find(entries, *address, wanted)).partition(Result::is_ok);
    let mut places: Vec<GuardedInterfaces> = places.into_iter().flatten().collect();
    match (places.len(), addresses) {
        (0, _) => Err(why.into_iter().find_map(Result::err).unwrap_or_default()),
        (1, [_]) => Ok(places.remove(0)),
        _ => {
            let interfaces: BTreeSet<String> =
                places.iter_mut().flat_map(|place| place.interfaces.drain(..)).collect();
            let single = addresses.iter().filter(|address| !address.ip().to_canonical().is_unspecified());
            let mut all: BTreeSet<SocketAddr> = single.copied().collect();
            all.extend(places.into_iter().flat_map(|place| place.addresses));
            Ok(GuardedInterfaces {
                interfaces: interfaces.into_iter().collect(),
                addresses: all.into_iter().collect(),
            })
        }
    }
}

/// The place of the guard of a server on one address.
pub(super) fn find(
    entries: &[InterfaceAddress],
    address: SocketAddr,
    wanted: &[String],
) -> Result<GuardedInterfaces, String> {
    let served = address.ip().to_canonical();
    let has = |entry: &&InterfaceAddress| {
        entry.up
            && !entry.loopback
            && (served.is_unspecified() || entry.address.map(|own| own.to_canonical()) == Some(served))
    };
    let mut interfaces: BTreeSet<String> = wanted.iter().cloned().collect();
    if interfaces.is_empty() {
        interfaces = entries.iter().filter(has).map(|entry| entry.interface.clone()).collect();
    }
    if interfaces.is_empty() {
        let which = if served.is_unspecified() { "an address".to_owned() } else { served.to_string() };
        return Err(format!("no interface but the loopback one is up and has {which}: name one"));
    }
    let addresses: BTreeSet<IpAddr> = match served.is_unspecified() {
        true => entries.iter().filter_map(|entry| entry.address).collect(),
        false => BTreeSet::new(),
    };
    let with_port = |ip| SocketAddr::new(ip, address.port());
    let addresses = addresses.into_iter().map(with_port).collect();
    Ok(GuardedInterfaces { interfaces: interfaces.into_iter().collect(), addresses })
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

    fn entry(interface: &str, up: bool, address: &str) -> InterfaceAddress {
        let address = address.parse().ok();
        InterfaceAddress { interface: interface.to_owned(), up, loopback: interface == "lo", address }
    }

    fn entries() -> Vec<InterfaceAddress> {
        vec![
            entry("lo", true, "127.0.0.1"),
            entry("eth0", true, "192.0.2.1"),
            entry("eth0", true, "2001:db8::1"),
            entry("eth1", true, "198.51.100.1"),
            entry("eth2", false, "203.0.113.1"),
        ]
    }

    #[test]
    fn a_guard_goes_where_the_address_is() -> Result<(), Box<dyn std::error::Error>> {
        for (address, interfaces, addresses) in [
            ("192.0.2.1:53", &["eth0"][..], 0),
            ("[2001:db8::1]:53", &["eth0"], 0),
            ("[::ffff:192.0.2.1]:53", &["eth0"], 0),
            ("0.0.0.0:53", &["eth0", "eth1"], 5),
            ("[::]:53", &["eth0", "eth1"], 5),
        ] {
            let place = find(&entries(), address.parse()?, &[])?;
            assert_eq!(place.interfaces, interfaces, "{address}");
            assert_eq!(place.addresses.len(), addresses, "{address}");
        }
        let named = find(&entries(), "192.0.2.1:53".parse()?, &["eth1".to_owned()])?;
        assert_eq!(named.interfaces, ["eth1"]);
        for address in ["127.0.0.1:53", "203.0.113.1:53", "192.0.2.9:53"] {
            assert!(find(&entries(), address.parse()?, &[]).is_err(), "{address}");
        }
        Ok(())
    }

    #[test]
    fn a_guard_of_several_addresses_goes_where_any_of_them_is() -> Result<(), Box<dyn std::error::Error>> {
        let (first, second): (SocketAddr, SocketAddr) =
            ("192.0.2.1:53".parse()?, "198.51.100.1:5353".parse()?);
        let place = find_all(&entries(), &[first, second], &[])?;
        assert_eq!((place.interfaces.len(), place.addresses), (2, vec![first, second]));
        let local = "127.0.0.1:53".parse()?;
        assert_eq!(find_all(&entries(), &[local, second], &[])?.interfaces, ["eth1"]);
        assert!(find_all(&entries(), &[local], &[]).is_err());
        Ok(())
    }

    #[test]
    fn addresses_are_compared_as_on_the_wire() -> Result<(), std::net::AddrParseError> {
        assert_eq!(address_words("192.0.2.1".parse()?)[3].to_ne_bytes(), [192, 0, 2, 1]);
        assert_eq!(address_words("192.0.2.1".parse()?)[2].to_ne_bytes(), [0, 0, 0xff, 0xff]);
        assert_eq!(address_words("2001:db8::1".parse()?)[0].to_ne_bytes(), [0x20, 1, 0xd, 0xb8]);
        Ok(())
    }
}
