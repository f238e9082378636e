//! Interfaces of a lab: real ones, with a driver that reports and accepts some settings.

use std::collections::BTreeMap;

use linerate_host::stage::link::{self, DeviceKind, LinkState};
use linerate_host::{Host, Known, Scope, Setting, SettingValue};
use linerate_lab::{Lab, LabHost};
use linerate_testkit::skip;

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

#[test]
fn missing_interface_has_only_unknown_values() {
    let Some(lab) = lab("missing_interface_has_only_unknown_values") else { return };
    let scope = Scope { interfaces: vec!["gone0".into()], ..Scope::default() };
    let links = observe_links(lab.receiver(), &scope);
    assert_eq!(links.len(), 1);
    assert!(links[0].features.why().is_some_and(|why| why.contains("gone0")), "{links:?}");
    assert!(links[0].totals.why().is_some() && links[0].rings.why().is_some(), "{links:?}");
}

#[test]
fn channels_are_set_and_restored() {
    let test = "channels_are_set_and_restored";
    let Ok(lab) = Lab::builder().queues(2).start().map_err(|error| skip(test, error)) else { return };
    let setting = Setting::Channels { interface: lab.links()[0].receiver.interface.clone() };
    let outcome = lab.receiver().run(|| {
        let host = Host::live();
        let before = setting.read(&host)?;
        setting.write(&host, &SettingValue::new("rx 1 tx 1"))?;
        let changed = setting.read(&host)?;
        setting.write(&host, &before)?;
        Ok::<_, linerate_host::SettingError>((before, changed, setting.read(&host)?))
    });
    match outcome.expect("run on the host") {
        Ok((before, changed, after)) => {
            assert_eq!(before.as_str(), "rx 2 tx 2");
            assert_eq!(changed.as_str(), "rx 1 tx 1");
            assert_eq!(after, before);
        }
        Err(error) => skip(test, error),
    }
}

#[test]
fn rings_of_a_veth_are_not_supported() {
    let Some(lab) = lab("rings_of_a_veth_are_not_supported") else { return };
    let setting = Setting::Rings { interface: lab.links()[0].receiver.interface.clone() };
    let error =
        lab.receiver().run(|| setting.read(&Host::live())).expect("run on the host").expect_err("no rings");
    assert!(error.to_string().starts_with(&format!("{setting}: Operation not supported")), "{error}");
}
