//! The interfaces on which a server's requests arrive, and the addresses of the requests: a guard
//! is attached there.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use crate::sys::interface::{DRIVERS_WITH_PORTS, NetDevice, VLAN_DRIVER, is_served};

/// Interfaces that receive some frames of the interface below them, except that a VLAN tag may be
/// missing (net/8021q, drivers/net/macvlan.c, drivers/net/ipvlan). Other upper interfaces, such as
/// those of VXLAN, MACsec or a switch (DSA), receive packets that these frames contain.
const DRIVERS_ABOVE: [&str; 3] = [VLAN_DRIVER, "macvlan", "ipvlan"];
/// Interfaces that have addresses, but receive only frames of this host (drivers/net/dummy.c,
/// drivers/net/vrf.c).
const DRIVERS_WITHOUT_FRAMES: [&str; 2] = ["dummy", "vrf"];
/// Most levels of interfaces above each other (include/linux/netdevice.h, `MAX_NEST_DEV`).
const MOST_LEVELS: usize = 8;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct GuardedInterfaces {
    /// In the order in which programs can be attached.
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
    let names: BTreeSet<&str> = match requested_names {
        [] => selected_names(devices, addresses, only_v6),
        names => names.iter().map(String::as_str).collect(),
    };
    if names.is_empty() {
        let ip = addresses.first().map(|address| address.ip().to_canonical());
        let specific = ip.filter(|ip| !ip.is_unspecified()).map(|ip| ip.to_string());
        let address_text = specific.as_deref().unwrap_or("an address");
        return Err(format!(
            "no interface that receives packets from other hosts is up and has {address_text}: name one \
             (XdpGuard::interfaces, or --xdp-interface of linerate serve)"
        ));
    }
    let mut interfaces: Vec<String> = names.into_iter().map(str::to_owned).collect();
    // The kernel attaches no program below an interface that has one (net/core/dev.c,
    // `dev_xdp_attach`).
    interfaces.sort_by_key(|name| levels_below(devices, name, MOST_LEVELS));
    let all_addresses = || devices.iter().flat_map(|device| device.addresses.iter().copied());
    let mut listed_addresses = BTreeSet::new();
    for address in addresses {
        if address.ip().to_canonical().is_unspecified() {
            let served = all_addresses().filter(|ip| is_served(address.ip(), only_v6, *ip));
            listed_addresses.extend(served.map(|ip| SocketAddr::new(ip, address.port())));
        } else if addresses.len() > 1 {
            listed_addresses.insert(*address);
        }
    }
    Ok(GuardedInterfaces { interfaces, addresses: listed_addresses.into_iter().collect() })
}

/// The interfaces on which requests arrive. As far as possible, each request arrives on one of them
/// only: it would count twice if the programs of two interfaces saw it.
fn selected_names<'a>(
    devices: &'a [NetDevice],
    addresses: &[SocketAddr],
    only_v6: bool,
) -> BTreeSet<&'a str> {
    let mut candidates: Vec<&NetDevice> = Vec::new();
    for address in addresses {
        candidates.extend(receivers(devices, address.ip(), only_v6));
    }
    let names: BTreeSet<&str> = candidates
        .iter()
        .filter(|device| !device.is_port(&candidates))
        .map(|device| device.name.as_str())
        .collect();
    let is_seen_below = |name: &&str| is_covered(devices, &names, name, MOST_LEVELS);
    names.iter().filter(|name| !is_seen_below(name)).copied().collect()
}

/// The interfaces on which requests to `served_ip` arrive.
fn receivers(devices: &[NetDevice], served_ip: IpAddr, only_v6: bool) -> Vec<&NetDevice> {
    let is_served = |address: &IpAddr| is_served(served_ip, only_v6, *address);
    let receives_frames =
        |device: &NetDevice| !device.loopback && !device.has_driver(&DRIVERS_WITHOUT_FRAMES);
    let outer_devices = || devices.iter().filter(|device| device.up && receives_frames(device));
    let with_address: Vec<&NetDevice> =
        outer_devices().filter(|device| device.gets_requests(served_ip, only_v6)).collect();
    // Requests to addresses of the loopback interface arrive on any other, as with BGP unnumbered.
    let inner_addresses =
        devices.iter().filter(|device| !receives_frames(device)).flat_map(|device| &device.addresses);
    let has_inner_address =
        inner_addresses.copied().any(|address| is_served(&address) && !address.to_canonical().is_loopback());
    if with_address.is_empty() && served_ip.to_canonical().is_unspecified() && has_inner_address {
        return outer_devices().collect();
    }
    with_address
}

/// Whether the programs of the interfaces `names` see all packets of an interface above them.
fn is_covered(devices: &[NetDevice], names: &BTreeSet<&str>, name: &str, levels: usize) -> bool {
    let Some(device) = devices.iter().find(|device| device.name == name) else { return false };
    let passes_frames = device.has_driver(&DRIVERS_ABOVE) || device.has_driver(&DRIVERS_WITH_PORTS);
    let is_seen =
        |lower: &String| names.contains(lower.as_str()) || is_covered(devices, names, lower, levels - 1);
    levels > 0 && passes_frames && !device.lower.is_empty() && device.lower.iter().all(is_seen)
}

/// The number of levels of interfaces below an interface, at most `levels`.
fn levels_below(devices: &[NetDevice], name: &str, levels: usize) -> usize {
    let device = devices.iter().find(|device| device.name == name && levels > 0);
    let lower_names = device.into_iter().flat_map(|device| &device.lower);
    lower_names.map(|lower| 1 + levels_below(devices, lower, levels - 1)).max().unwrap_or(0)
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

    type InterfacesTestResult = Result<(), Box<dyn std::error::Error>>;

    fn devices() -> Vec<NetDevice> {
        vec![
            NetDevice::sample("lo", "", &["127.0.0.1"], &[]),
            NetDevice::sample("eth0", "ixgbe", &["192.0.2.1", "2001:db8::1"], &[]),
            NetDevice::sample("eth1", "ixgbe", &["198.51.100.1"], &[]),
            NetDevice { up: false, ..NetDevice::sample("eth2", "ixgbe", &["203.0.113.1"], &[]) },
        ]
    }

    /// The guarded interfaces of a server on `addresses`, separated by spaces.
    fn interfaces_for(
        devices: &[NetDevice],
        addresses: &str,
    ) -> Result<Vec<String>, Box<dyn std::error::Error>> {
        let parsed: Result<Vec<SocketAddr>, _> = addresses.split(' ').map(str::parse).collect();
        Ok(find_all(devices, &parsed?, true, &[])?.interfaces)
    }

    #[test]
    fn guard_attaches_to_up_interfaces_with_the_bound_address() -> InterfacesTestResult {
        for (address, only_v6, interfaces, addresses) in [
            ("192.0.2.1:53", false, &["eth0"][..], 0),
            ("[2001:db8::1]:53", true, &["eth0"], 0),
            ("[::ffff:192.0.2.1]:53", false, &["eth0"], 0),
            ("0.0.0.0:53", false, &["eth0", "eth1"], 4),
            ("[::]:53", false, &["eth0", "eth1"], 5),
            ("[::]:53", true, &["eth0"], 1),
        ] {
            let guarded = find_all(&devices(), &[address.parse()?], only_v6, &[])?;
            assert_eq!(guarded.interfaces, interfaces, "{address}");
            assert_eq!(guarded.addresses.len(), addresses, "{address}");
        }
        let named = find_all(&devices(), &["192.0.2.1:53".parse()?], false, &["eth1".to_owned()])?;
        assert_eq!(named.interfaces, ["eth1"]);
        for address in ["127.0.0.1:53", "203.0.113.1:53", "192.0.2.9:53"] {
            assert!(interfaces_for(&devices(), address).is_err(), "{address}");
        }
        Ok(())
    }

    #[test]
    fn requests_to_interfaces_above_others_count_once() -> InterfacesTestResult {
        let v4 = "0.0.0.0:53";
        for (above, addresses, expected) in [
            (
                vec![NetDevice::sample("eth0.5", VLAN_DRIVER, &["10.0.0.1"], &["eth0"])],
                v4,
                &["eth0", "eth1"][..],
            ),
            (
                vec![NetDevice::sample("eth0.5", VLAN_DRIVER, &["10.0.0.1"], &["eth0"])],
                "10.0.0.1:53",
                &["eth0.5"],
            ),
            (
                vec![NetDevice::sample("eth0.5", VLAN_DRIVER, &["10.0.0.1"], &["eth0"])],
                "192.0.2.1:53 10.0.0.1:53",
                &["eth0"],
            ),
            // Frames with a header of their own: attached after the interface below.
            (vec![NetDevice::sample("a", "vxlan", &["10.0.0.1"], &["eth0"])], v4, &["eth0", "eth1", "a"]),
            (
                vec![NetDevice::sample("macsec0", "macsec", &["10.0.0.1"], &["eth0"])],
                v4,
                &["eth0", "eth1", "macsec0"],
            ),
            // A bridge of a VLAN of a guarded interface, and one that has other ports, too.
            (
                vec![
                    NetDevice::sample("eth0.5", VLAN_DRIVER, &[], &["eth0"]),
                    NetDevice::sample("br5", "bridge", &["10.0.0.1"], &["eth0.5"]),
                ],
                v4,
                &["eth0", "eth1"],
            ),
            (
                vec![
                    NetDevice::sample("eth0.5", VLAN_DRIVER, &[], &["eth0"]),
                    NetDevice::sample("tap5", "tun", &[], &[]),
                    NetDevice::sample("br5", "bridge", &["10.0.0.1"], &["eth0.5", "tap5"]),
                ],
                v4,
                &["eth0", "eth1", "br5"],
            ),
            (
                vec![
                    NetDevice::sample("veth1", "veth", &[], &[]),
                    NetDevice::sample("docker0", "bridge", &["172.17.0.1"], &["veth1"]),
                ],
                v4,
                &["docker0", "eth0", "eth1"],
            ),
            // Each address alone would choose one of the two.
            (
                vec![
                    NetDevice::sample("veth1", "veth", &["fe80::1"], &[]),
                    NetDevice::sample("docker0", "bridge", &["172.17.0.1"], &["veth1"]),
                ],
                "0.0.0.0:53 [::]:53",
                &["docker0", "eth0", "eth1"],
            ),
            (
                vec![
                    NetDevice::sample("eth3", "ixgbe", &[], &[]),
                    NetDevice::sample("bond0", "bonding", &["10.0.0.1"], &["eth3"]),
                    NetDevice::sample("bond0.5", VLAN_DRIVER, &["10.0.5.1"], &["bond0"]),
                ],
                v4,
                &["bond0", "eth0", "eth1"],
            ),
        ] {
            let mut devices = devices();
            let name = format!("{above:?} {addresses}");
            devices.extend(above);
            let mut interfaces = interfaces_for(&devices, addresses)?;
            // Only the order of interfaces above each other matters.
            let levels = |name: &String| levels_below(&devices, name, MOST_LEVELS);
            assert!(interfaces.is_sorted_by_key(levels), "{interfaces:?}");
            interfaces.sort();
            let mut expected = expected.to_vec();
            expected.sort_unstable();
            assert_eq!(interfaces, expected, "{name}");
        }
        Ok(())
    }

    #[test]
    fn wildcard_guard_without_numbered_interfaces_attaches_to_all() -> InterfacesTestResult {
        let unnumbered = |inner: NetDevice| {
            let bond = NetDevice::sample("bond0", "bonding", &["fe80::3"], &["eth3"]);
            let eth = |name| NetDevice::sample(name, "ixgbe", &["fe80::2"], &[]);
            vec![
                inner,
                eth("eth0"),
                eth("eth1"),
                eth("eth3"),
                bond,
                NetDevice::sample("eth0.5", VLAN_DRIVER, &[], &["eth0"]),
            ]
        };
        for inner in [
            NetDevice::sample("lo", "", &["127.0.0.1", "192.0.2.1"], &[]),
            NetDevice::sample("anycast", "dummy", &["192.0.2.1"], &[]),
        ] {
            let devices = unnumbered(inner);
            assert_eq!(interfaces_for(&devices, "0.0.0.0:53")?, ["eth0", "eth1", "bond0"]);
            assert!(interfaces_for(&devices, "192.0.2.1:53").is_err());
        }
        let error =
            interfaces_for(&unnumbered(NetDevice::sample("lo", "", &["127.0.0.1"], &[])), "0.0.0.0:53");
        assert!(error.is_err_and(|error| error.to_string().contains("has an address: name one")));
        Ok(())
    }

    #[test]
    fn guard_attaches_to_the_interfaces_of_all_bound_addresses() -> InterfacesTestResult {
        let (first, second): (SocketAddr, SocketAddr) =
            ("192.0.2.1:53".parse()?, "198.51.100.1:5353".parse()?);
        let guarded = find_all(&devices(), &[first, second], false, &[])?;
        assert_eq!((guarded.interfaces.len(), guarded.addresses), (2, vec![first, second]));
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
