//! Interfaces of a lab: real ones, with a driver that reports and accepts some settings.

use std::collections::BTreeMap;

use linerate_host::stage::link::{self, DeviceKind, LinkState};
use linerate_host::{Host, Known, Scope};
use linerate_lab::LabHost;

use super::lab;

/// The interfaces that a host of the lab sees.
fn observe_links(host: &LabHost, scope: &Scope) -> Vec<LinkState> {
    let sys = host.sys_path().expect("its sysfs").to_owned();
    host.run(|| link::observe(&Host::live_with_sys(sys), scope)).expect("run on the host")
}

#[test]
fn veth_is_a_software_device_with_features_and_statistics() {
    let Some(lab) = lab("veth_is_a_software_device_with_features_and_statistics") else { return };
    let interface = &lab.links()[0].receiver.interface;
    let links = observe_links(lab.receiver(), &Scope::default());
    let link = links.iter().find(|link| link.interface == *interface).expect("an interface that is up");
    assert_eq!(link.device, Known::Value(DeviceKind::Software));
    assert_eq!(link.driver.value().and_then(|driver| Some(driver.as_ref()?.name.as_str())), Some("veth"));
    assert_eq!(link.index, Known::Value(lab.links()[0].receiver.index));
    assert_eq!(
        (link.speed_bits_per_second.clone(), link.node.clone()),
        (Known::Value(None), Known::Value(None))
    );
    let features: &BTreeMap<String, bool> = link.features.value().expect("features");
    assert!(features.contains_key("generic-receive-offload"), "{features:?}");
    assert!(link.totals.value().is_some_and(|totals| totals.contains_key("rx_packets")));
    assert!(link.receive_queues.value().is_some_and(|queues| *queues > 0));
    assert_eq!(link.rings, Known::Value(None), "a veth has none");
}
