//! Hashed packet fields by flow type, in the letters of `ethtool -N IF rx-flow-hash`: `s` and `d`
//! the addresses, `f` and `n` the ports, `v` the VLAN, and so on (ethtool(8)).

use super::knob::{Knob, WriteRefusal};
use super::value::SettingValue;
use crate::ethtool::HashFields;
use crate::sys::ethtool::receive;
use crate::{Host, HostError};

const EXPECTED: &str = "letters of ethtool's rx-flow-hash such as sdfn";

/// By the flow type's name in ethtool(8).
pub(crate) fn flow_hash(host: &Host, interface: &str, flow: &str) -> Result<HashFields, HostError> {
    let operation = format!("reading the hash fields of {interface} for {flow}");
    host.call(&key(interface, flow), &operation, || receive::hash_fields(interface, flow))
}

fn key(interface: &str, flow: &str) -> String {
    format!("ethtool/{interface}/flow-hash/{flow}")
}

pub(super) struct FlowHash<'a> {
    pub(super) interface: &'a str,
    pub(super) flow: &'a str,
}

impl Knob for FlowHash<'_> {
    fn name(&self) -> String {
        format!("{} hash fields of {}", self.interface, self.flow)
    }

    fn name_error(&self) -> Option<String> {
        (!receive::is_flow(self.flow)).then(|| format!("'{}' is no kind of flow such as udp4", self.flow))
    }

    fn read(&self, host: &Host) -> Result<SettingValue, HostError> {
        flow_hash(host, self.interface, self.flow).map(|fields| SettingValue::new(fields.letters()))
    }

    fn canonical(&self, value: &SettingValue) -> Result<String, &'static str> {
        HashFields::from_letters(value.as_str()).map(HashFields::letters).ok_or(EXPECTED)
    }

    fn write(&self, host: &Host, value: &SettingValue) -> Result<(), WriteRefusal> {
        let fields = HashFields::from_letters(value.as_str()).ok_or(EXPECTED)?;
        let Self { interface, flow } = self;
        let operation = format!("choosing the hash fields of {interface} for {flow}");
        let change = || receive::set_hash_fields(interface, flow, fields);
        let rehearse = |answer: &mut HashFields| *answer = fields;
        Ok(host.apply_change(&key(interface, flow), &operation, change, rehearse)?)
    }

    fn command(&self, value: &SettingValue) -> Option<String> {
        let Self { interface, flow } = self;
        (!value.as_str().is_empty()).then(|| format!("ethtool -N {interface} rx-flow-hash {flow} {value}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Setting, SettingError};

    fn setting() -> Setting {
        Setting::FlowHash { interface: "eth0".into(), flow: "udp4".into() }
    }

    #[test]
    fn flow_hash_fields_are_read_and_written_as_ethtool_letters() {
        let answer = r#"{"source_address": true, "destination_address": true}"#;
        let host = Host::scripted([("/calls/ethtool/eth0/flow-hash/udp4.json", answer)]);
        assert_eq!(setting().read(&host).expect("read").as_str(), "sd");
        let command = setting().command(&SettingValue::new("sdfn"));
        assert_eq!(command.as_deref(), Some("ethtool -N eth0 rx-flow-hash udp4 sdfn"));
        assert_eq!(setting().command(&SettingValue::new("")), None);
        assert!(setting().same(&SettingValue::new("sdfn"), &SettingValue::new("nfds")));
        assert!(!setting().same(&SettingValue::new("sd"), &SettingValue::new("sdfn")));
        setting().write(&host, &SettingValue::new("sdfn")).expect("written");
        assert_eq!(setting().read(&host).expect("read").as_str(), "sdfn");
    }

    #[test]
    fn unknown_letters_and_flows_are_refused() {
        let error = setting().write(&Host::live(), &SettingValue::new("sdx")).expect_err("no letter");
        assert!(matches!(error, SettingError::BadValue { .. }), "{error}");
        let unknown_flow = Setting::FlowHash { interface: "eth0".into(), flow: "udp5".into() };
        let error = unknown_flow.read(&Host::live()).expect_err("no flow");
        assert!(matches!(error, SettingError::BadName { .. }), "{error}");
    }
}
