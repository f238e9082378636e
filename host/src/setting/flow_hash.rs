//! The fields of a packet that go into the hash, by kind of flow, in the letters of `ethtool -N IF rx-flow-hash`: `s` and `d`
//! the addresses, `f` and `n` the ports, `v` the VLAN, and so on (ethtool(8)).

use super::Value;
use crate::stage::rss::{HashFields, flow_hash};
use crate::sys::ethtool::receive;
use crate::{Host, HostError};

pub(super) fn read(host: &Host, interface: &str, flow: &str) -> Result<Value, HostError> {
    flow_hash(host, interface, flow).map(|fields| Value::new(fields.letters()))
}

pub(super) fn write(host: &Host, interface: &str, flow: &str, fields: HashFields) -> Result<(), HostError> {
    let what = format!("choosing the hash fields of {interface} for {flow}");
    host.must_be_live(&what)?;
    receive::set_hash_fields(interface, flow, fields).map_err(|source| HostError::Call { what, source })
}

/// Whether two values name the same fields, in whatever order.
pub(super) fn same(one: &str, other: &str) -> bool {
    let fields = HashFields::from_letters(one);
    fields.is_some() && fields == HashFields::from_letters(other)
}

/// Reads any text as a value, for tests that nothing in it makes a panic.
pub(crate) fn any_fields(text: &str) {
    let _ = HashFields::from_letters(text);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Setting, SettingError};

    fn setting() -> Setting {
        Setting::FlowHash { interface: "eth0".into(), flow: "udp4".into() }
    }

    #[test]
    fn fields_are_read_and_typed_in_ethtools_letters() {
        let answer = r#"{"source_address": true, "destination_address": true}"#;
        let host = Host::scripted([("/calls/ethtool/eth0/flow-hash/udp4.json", answer)]);
        assert_eq!(setting().read(&host).expect("read").as_str(), "sd");
        let command = setting().command(&Value::new("sdfn"));
        assert_eq!(command.as_deref(), Some("ethtool -N eth0 rx-flow-hash udp4 sdfn"));
        assert_eq!(setting().command(&Value::new("")), None);
        assert!(setting().same(&Value::new("sdfn"), &Value::new("nfds")));
        assert!(!setting().same(&Value::new("sd"), &Value::new("sdfn")));
    }

    #[test]
    fn what_is_no_letter_is_refused_before_anything_is_asked() {
        let error = setting().write(&Host::live(), &Value::new("sdx")).expect_err("no letter");
        assert!(matches!(error, SettingError::BadValue { .. }), "{error}");
    }
}
