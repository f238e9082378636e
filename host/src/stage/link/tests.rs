//! Interfaces read from trees and from this machine.

use super::*;
use crate::HostRecording;
use crate::Scope;
use crate::{Host, Known};

/// A tree of an interface with four queues and a device. Later files replace earlier ones.
fn host(files: &[(&str, &str)]) -> Host {
    let base = "/sys/class/net/eth0";
    let mut recording = HostRecording::new();
    let mut file = |path: String, content: &str| recording.insert_file(path, content);
    for (name, content) in [
        ("ifindex", "2\n"),
        ("operstate", "up\n"),
        ("speed", "10000\n"),
        ("mtu", "1500\n"),
        ("device/numa_node", "1\n"),
        ("device/sriov_totalvfs", "63\n"),
        ("device/sriov_numvfs", "2\n"),
        ("device/virtfn0/net/eth0v0/ifindex", "5\n"),
        ("device/virtfn1/uevent", "\n"),
        ("statistics/rx_packets", "1000\n"),
        ("statistics/rx_missed_errors", "7\n"),
    ] {
        file(format!("{base}/{name}"), content);
    }
    for queue in 0..4 {
        file(format!("{base}/queues/rx-{queue}/rps_cpus"), "0\n");
        file(format!("{base}/queues/tx-{queue}/xps_cpus"), "0\n");
    }
    file("/calls/ethtool/eth0/driver.json".into(), r#"{ "name": "ixgbe", "bus": "0000:01:00.0" }"#);
    file("/calls/ethtool/eth0/channels.json".into(), r#"{ "combined": 4, "combined_max": 63 }"#);
    file(
        "/calls/ethtool/eth0/rings.json".into(),
        r#"{ "rx": 512, "tx": 512, "rx_max": 4096, "tx_max": 4096 }"#,
    );
    file("/calls/ethtool/eth0/coalesce.json".into(), r#"{ "errno": 95 }"#);
    file("/calls/ethtool/eth0/features.json".into(), r#"{ "generic-receive-offload": true }"#);
    file("/calls/ethtool/eth0/statistics.json".into(), r#"{ "rx_missed_errors": 7 }"#);
    file("/sys/class/net/lo/operstate".into(), "unknown\n");
    for (path, content) in files {
        file((*path).to_owned(), content);
    }
    Host::recorded(recording)
}

fn eth0(host: &Host) -> LinkState {
    let mut links = observe(host, &Scope::default());
    assert_eq!(links.len(), 1, "{links:?}");
    links.remove(0)
}

#[test]
fn link_attributes_are_read_from_sysfs_and_ethtool() {
    let link = eth0(&host(&[]));
    assert_eq!(link.total("rx_missed_errors"), Some(7));
    assert_eq!((link.interface.as_str(), link.index, link.up), ("eth0", Known::Value(2), Known::Value(true)));
    assert_eq!(link.device, Known::Value(DeviceKind::Hardware));
    assert_eq!(link.speed_bits_per_second, Known::Value(Some(10_000_000_000)));
    assert_eq!((link.mtu_bytes, link.node), (Known::Value(1500), Known::Value(Some(1))));
    assert_eq!((link.receive_queues, link.transmit_queues), (Known::Value(4), Known::Value(4)));
    assert_eq!(link.rings.value().copied().flatten().map(|rings| rings.rx_max), Some(4096));
    assert_eq!(link.channels.value().copied().flatten().map(|channels| channels.combined_max), Some(63));
    assert_eq!(link.coalesce, Known::Value(None), "the driver has no coalescing");
    let sriov = link.sriov.value().cloned().flatten().expect("virtual functions");
    assert_eq!((sriov.total, sriov.active), (Some(63), Some(2)));
    assert_eq!(sriov.interfaces, ["eth0v0"]);
    assert_eq!(link.statistics.value().map(Option::is_some), Some(true));
}

#[test]
fn virtio_interfaces_have_the_numa_node_of_their_pci_device() {
    let recording = HostRecording::from_files([
        ("/sys/class/net/ens3/device/features", "0\n"),
        ("/sys/class/net/ens3/speed", "-1\n"),
        ("/calls/ethtool/ens3/driver.json", r#"{ "name": "virtio_net", "bus": "0000:00:03.0" }"#),
        ("/sys/bus/pci/devices/0000:00:03.0/numa_node", "0\n"),
    ]);
    let links = observe(&Host::recorded(recording), &Scope::default());
    assert_eq!(links[0].device, Known::Value(DeviceKind::Virtio));
    assert_eq!(links[0].node, Known::Value(Some(0)));
    assert_eq!(links[0].speed_bits_per_second, Known::Value(None));
    assert_eq!(links[0].sriov, Known::Value(None));
}

#[test]
fn numa_node_minus_one_is_none() {
    assert_eq!(eth0(&host(&[("/sys/class/net/eth0/device/numa_node", "-1\n")])).node, Known::Value(None));
}

#[test]
fn attributes_of_a_missing_interface_are_unknown() {
    let scope = Scope { interfaces: vec!["eth7".into(), "../../etc".into()], ..Scope::default() };
    let links = observe(&host(&[]), &scope);
    assert_eq!(links.len(), 1);
    assert!(links[0].receive_queues.why_contains("/sys/class/net/eth7/queues"));
    assert!(links[0].rings.why_contains("reading the rings of eth7"));
    let link = serde_json::to_value(&links[0]).expect("written");
    for (name, value) in link.as_object().expect("an object").iter().filter(|(name, _)| *name != "interface")
    {
        assert!(value["unknown"].as_str().is_some_and(|why| why.contains("eth7")), "{name}: {value}");
    }
}

#[test]
fn software_interfaces_that_are_up_are_observed_without_hardware() {
    let host = Host::scripted([
        ("/sys/class/net/lo/operstate", "unknown\n"),
        ("/sys/class/net/veth0/operstate", "up\n"),
        ("/sys/class/net/veth0/speed", "10000\n"),
        ("/sys/class/net/veth1/operstate", "down\n"),
    ]);
    let links = observe(&host, &Scope::default());
    let names: Vec<&str> = links.iter().map(|link| link.interface.as_str()).collect();
    assert_eq!(names, ["veth0"]);
    assert_eq!(links[0].device, Known::Value(DeviceKind::Software));
    assert_eq!(links[0].speed_bits_per_second, Known::Value(None));
    let scope = Scope { interfaces: vec!["lo".into()], ..Scope::default() };
    assert_eq!(observe(&host, &scope).len(), 1);
}

/// Interfaces whose directories have these files.
fn stacked_host(interfaces: &[(&str, &[&str])]) -> Host {
    let path = |name: &str, file: &str| format!("/sys/class/net/{name}/{file}");
    Host::scripted(
        interfaces.iter().flat_map(|(name, files)| files.iter().map(|file| (path(name, file), ""))),
    )
}

#[test]
fn named_interfaces_are_followed_by_the_devices_below_them() {
    let host = stacked_host(&[
        ("br0", &["lower_bond0", "lower_vnet0"]),
        ("bond0", &["lower_eth0", "lower_eth1"]),
        ("bond0.100", &["lower_bond0"]),
        ("vnet0", &["tun_flags"]),
        ("eth0", &["device/vendor"]),
        ("eth1", &["device/vendor"]),
    ]);
    for (named, expected) in [
        (&["bond0"][..], &["bond0", "eth0", "eth1"][..]),
        (&["br0"], &["br0", "eth0", "eth1"]),
        (&["bond0.100"], &["bond0.100", "eth0", "eth1"]),
        (&["eth1", "bond0"], &["eth1", "bond0", "eth0"]),
        (&["eth0", "eth1"], &["eth0", "eth1"]),
        (&[], &[]),
    ] {
        let named: Vec<String> = named.iter().map(ToString::to_string).collect();
        assert_eq!(with_devices_below(&host, &named), expected);
    }
}

#[test]
fn interfaces_that_are_named_twice_are_observed_once() {
    let interfaces = ["eth0", "eth1", "eth0"].map(str::to_owned).to_vec();
    let links = observe(&host(&[]), &Scope { interfaces, ..Scope::default() });
    let names: Vec<&str> = links.iter().map(|link| link.interface.as_str()).collect();
    assert_eq!(names, ["eth0", "eth1"]);
}

#[test]
fn bridges_above_bonds_and_vlans_and_open_vswitch_are_found() {
    let bridge = ["brport/bridge/brif/vnet0/x", "brport/bridge/brif/eth0/x"];
    let tap: (&str, &[&str]) = ("vnet0", &["tun_flags"]);
    let scope = Scope { interfaces: vec!["eth0".into()], ..Scope::default() };
    let bridge_of_eth0 = |host: &Host| observe(host, &scope).remove(0).bridge.into_value().expect("known");
    let stacks: [&[(&str, &[&str])]; 4] = [
        &[("eth0", &bridge)],
        &[("eth0", &["upper_bond0"]), ("bond0", &bridge)],
        &[("eth0", &["upper_eth0.5", "upper_eth0.100"]), ("eth0.5", &["mtu"]), ("eth0.100", &bridge)],
        &[("eth0", &["upper_ovs-system"]), ("ovs-system", &["lower_eth0", "lower_vnet0"])],
    ];
    for stack in stacks {
        let host = stacked_host(&[stack, &[tap]].concat());
        let bridge = bridge_of_eth0(&host).expect("a bridge");
        assert_eq!(bridge.taps, ["vnet0"], "{stack:?}");
        assert!(host.list(&bridge.read_from).is_ok(), "{bridge:?}");
    }
    let host = stacked_host(&[("eth0", &["upper_vrf0"]), ("vrf0", &["mtu"])]);
    assert_eq!(bridge_of_eth0(&host), None);
}

#[test]
fn losses_of_ports_are_not_counted_again_for_their_bond() {
    let host = Host::scripted([
        ("/sys/class/net/bond0/lower_eth0/ifindex", "2\n"),
        ("/sys/class/net/bond0/statistics/rx_missed_errors", "7\n"),
        ("/sys/class/net/eth0/statistics/rx_missed_errors", "7\n"),
    ]);
    for (interfaces, expected) in [(&["bond0", "eth0"][..], &["eth0"][..]), (&["bond0"], &["bond0"])] {
        let interfaces = interfaces.iter().map(ToString::to_string).collect();
        let links = observe(&host, &Scope { interfaces, ..Scope::default() });
        let counters = links.iter().flat_map(LinkState::counters);
        let places: Vec<String> = counters.map(|counter| counter.place).collect();
        assert_eq!(places, expected);
    }
}
