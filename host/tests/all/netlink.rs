//! Routes and XDP features of a real host, as the kernel reports them.

use std::net::{IpAddr, Ipv4Addr};

use linerate_host::netlink::{PathError, path_to, xdp_state};
use linerate_host::{Host, Known, Setting, SettingValue};
use linerate_testkit::skip;

use super::lab;

#[test]
fn path_to_the_receiver_uses_its_link() {
    let Some(lab) = lab("path_to_the_receiver_uses_its_link") else { return };
    let link = &lab.links()[0];
    let to = |address: IpAddr| lab.senders()[0].run(|| path_to(&Host::live(), address, None)).unwrap();
    let mut addresses: Vec<(IpAddr, IpAddr)> =
        vec![(link.receiver.ipv4[0].into(), link.sender.ipv4[0].into())];
    addresses.extend(link.receiver.ipv6.iter().map(|ip| (IpAddr::from(*ip), link.sender.ipv6[0].into())));
    for (address, source) in addresses {
        let path = to(address).unwrap();
        assert_eq!((path.interface.as_str(), path.index), ("eth0", link.sender.index));
        assert_eq!((path.next_hop, path.source), (address, source));
        assert_eq!((path.next_hop_mac, path.source_mac), (link.receiver.mac, link.sender.mac));
        assert_eq!((path.mtu, path.vlan), (1500, None));
    }
    assert!(matches!(to(link.sender.ipv4[0].into()), Err(PathError::Local(_))));
    let error = to(Ipv4Addr::new(192, 0, 2, 1).into()).unwrap_err();
    assert!(error.to_string().starts_with("no route to 192.0.2.1"), "{error}");
    assert!(matches!(to(Ipv4Addr::new(198, 18, 0, 77).into()), Err(PathError::NoNeighbour { .. })));
}

#[test]
fn veth_supports_xdp_transmit_only_with_gro_on_its_peer() {
    let test = "veth_supports_xdp_transmit_only_with_gro_on_its_peer";
    let Some(lab) = lab(test) else { return };
    let link = &lab.links()[0];
    let gro = |on: &str| {
        let setting = Setting::Offload {
            interface: link.receiver.interface.clone(),
            offload: linerate_host::setting::Offload::GenericReceive,
        };
        lab.receiver().run(|| setting.write(&Host::live(), &SettingValue::new(on))).unwrap()
    };
    let state =
        || lab.senders()[0].run(|| xdp_state(&Host::live(), "eth0", link.sender.index)).unwrap().unwrap();
    assert_eq!(state().driver, Known::Value("veth".to_owned()));
    for on in [false, true] {
        if let Err(error) = gro(if on { "on" } else { "off" }) {
            return skip(test, error);
        }
        match state().features {
            Known::Value(features) => {
                assert!(features.basic && features.redirect);
                assert_eq!(features.transmit, on);
            }
            Known::Unknown { why } => {
                return skip(test, why);
            }
        }
    }
}
