//! Ring lengths of an interface.

use super::knob::{Knob, WriteRefusal};
use super::{SettingValue, pairs};
use crate::stage::link::RingLengths as Lengths;
use crate::{Host, HostError};

const NAMES: [&str; 2] = ["rx", "tx"];
const EXPECTED: &str = "lengths such as rx 4096 tx 512";

pub(super) struct RingsKnob<'a> {
    pub(super) interface: &'a str,
}

impl Knob for RingsKnob<'_> {
    fn name(&self) -> String {
        format!("rings of {}", self.interface)
    }

    fn read(&self, host: &Host) -> Result<SettingValue, HostError> {
        host.rings(self.interface).map(SettingValue::from)
    }

    fn check(&self, value: &SettingValue) -> Result<(), &'static str> {
        pairs::parse(value, &NAMES).map(|_| ()).ok_or(EXPECTED)
    }

    fn write(&self, host: &Host, value: &SettingValue) -> Result<(), WriteRefusal> {
        let lengths = pairs::parse(value, &NAMES).ok_or(WriteRefusal::BadValue(EXPECTED))?;
        let length = |name: &str| lengths.get(name).copied();
        Ok(host.set_rings(self.interface, length("rx"), length("tx"))?)
    }

    fn same(&self, one: &SettingValue, other: &SettingValue) -> bool {
        pairs::same(one, other, &NAMES)
    }

    fn command(&self, value: &SettingValue) -> Option<String> {
        Some(format!("ethtool -G {} {value}", self.interface))
    }
}

impl From<Lengths> for SettingValue {
    fn from(rings: Lengths) -> Self {
        SettingValue::new(format!("rx {} tx {}", rings.rx, rings.tx))
    }
}

#[cfg(test)]
mod tests {
    use crate::{Host, Setting, SettingValue};

    #[test]
    fn rings_are_read_typed_and_written() {
        let path = "/calls/ethtool/eth0/rings.json";
        let host = Host::scripted([(path, r#"{ "rx": 512, "tx": 256, "rx_max": 4096, "tx_max": 4096 }"#)]);
        let rings = Setting::Rings { interface: "eth0".into() };
        let value = rings.read(&host).expect("read");
        assert_eq!(value.as_str(), "rx 512 tx 256");
        assert_eq!(rings.command(&value).as_deref(), Some("ethtool -G eth0 rx 512 tx 256"));
        rings.write(&host, &SettingValue::new("rx 4096")).expect("written");
        assert_eq!(rings.read(&host).expect("read").as_str(), "rx 4096 tx 256");
        assert_eq!(host.rings("eth0").expect("rings").rx_max, 4096);
        let error = rings.write(&host, &SettingValue::new("long")).expect_err("no lengths");
        assert_eq!(error.to_string(), "rings of eth0: 'long' is not lengths such as rx 4096 tx 512");
        let captured = Host::recorded(crate::HostRecording::new());
        assert!(rings.write(&captured, &value).is_err(), "a capture takes no write");
    }
}
