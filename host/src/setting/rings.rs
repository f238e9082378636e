//! Lengths of an interface's rings.

use super::knob::{Knob, Refusal};
use super::{Value, pairs};
use crate::stage::link::Rings as Lengths;
use crate::{Host, HostError};

const NAMES: [&str; 2] = ["rx", "tx"];
const EXPECTED: &str = "lengths such as rx 4096 tx 512";

pub(super) struct Rings<'a> {
    pub(super) interface: &'a str,
}

impl Knob for Rings<'_> {
    fn name(&self) -> String {
        format!("rings of {}", self.interface)
    }

    fn read(&self, host: &Host) -> Result<Value, HostError> {
        host.rings(self.interface).map(Value::from)
    }

    fn check(&self, value: &Value) -> Result<(), &'static str> {
        pairs::parse(value, &NAMES).map(|_| ()).ok_or(EXPECTED)
    }

    fn write(&self, host: &Host, value: &Value) -> Result<(), Refusal> {
        let lengths = pairs::parse(value, &NAMES).ok_or(Refusal::BadValue(EXPECTED))?;
        let length = |name: &str| lengths.get(name).copied();
        Ok(host.set_rings(self.interface, length("rx"), length("tx"))?)
    }

    fn same(&self, one: &Value, other: &Value) -> bool {
        pairs::same(one, other, &NAMES)
    }

    fn command(&self, value: &Value) -> Option<String> {
        Some(format!("ethtool -G {} {value}", self.interface))
    }
}

impl From<Lengths> for Value {
    fn from(rings: Lengths) -> Self {
        Value::new(format!("rx {} tx {}", rings.rx, rings.tx))
    }
}

#[cfg(test)]
mod tests {
    use crate::{Host, Setting, Value};

    #[test]
    fn rings_are_read_typed_and_written() {
        let path = "/calls/ethtool/eth0/rings.json";
        let host = Host::scripted([(path, r#"{ "rx": 512, "tx": 256, "rx_max": 4096, "tx_max": 4096 }"#)]);
        let rings = Setting::Rings { interface: "eth0".into() };
        let value = rings.read(&host).expect("read");
        assert_eq!(value.as_str(), "rx 512 tx 256");
        assert_eq!(rings.command(&value).as_deref(), Some("ethtool -G eth0 rx 512 tx 256"));
        rings.write(&host, &Value::new("rx 4096")).expect("written");
        assert_eq!(rings.read(&host).expect("read").as_str(), "rx 4096 tx 256");
        assert_eq!(host.rings("eth0").expect("rings").rx_max, 4096);
        let error = rings.write(&host, &Value::new("long")).expect_err("no lengths");
        assert_eq!(error.to_string(), "rings of eth0: 'long' is not lengths such as rx 4096 tx 512");
        let captured = Host::recorded(crate::Recording::new());
        assert!(rings.write(&captured, &value).is_err(), "a capture takes no write");
    }
}
