//! Channels of an interface by kind.

use super::knob::{Knob, WriteRefusal};
use super::{SettingValue, pairs};
use crate::stage::link::ChannelCounts as Counts;
use crate::{Host, HostError};

const NAMES: [&str; 3] = ["rx", "tx", "combined"];
const EXPECTED: &str = "numbers such as combined 8";

pub(super) struct ChannelsKnob<'a> {
    pub(super) interface: &'a str,
}

impl Knob for ChannelsKnob<'_> {
    fn name(&self) -> String {
        format!("channels of {}", self.interface)
    }

    fn read(&self, host: &Host) -> Result<SettingValue, HostError> {
        host.channels(self.interface).map(SettingValue::from)
    }

    fn check(&self, value: &SettingValue) -> Result<(), &'static str> {
        pairs::parse(value, &NAMES).map(|_| ()).ok_or(EXPECTED)
    }

    fn write(&self, host: &Host, value: &SettingValue) -> Result<(), WriteRefusal> {
        let counts = pairs::parse(value, &NAMES).ok_or(WriteRefusal::BadValue(EXPECTED))?;
        let count = |name: &str| counts.get(name).copied();
        Ok(host.set_channels(self.interface, count("rx"), count("tx"), count("combined"))?)
    }

    fn same(&self, one: &SettingValue, other: &SettingValue) -> bool {
        pairs::same(one, other, &NAMES)
    }

    fn command(&self, value: &SettingValue) -> Option<String> {
        Some(format!("ethtool -L {} {value}", self.interface))
    }
}

/// Only the kinds that the device supports, because it accepts no others.
impl From<Counts> for SettingValue {
    fn from(channels: Counts) -> Self {
        let kinds = [
            ("rx", channels.rx, channels.rx_max),
            ("tx", channels.tx, channels.tx_max),
            ("combined", channels.combined, channels.combined_max),
        ];
        let named = kinds.iter().filter(|(_, _, max)| *max > 0);
        SettingValue::new(
            named.map(|(name, count, _)| format!("{name} {count}")).collect::<Vec<_>>().join(" "),
        )
    }
}

#[cfg(test)]
mod tests {
    use crate::{Host, Setting, SettingValue};

    #[test]
    fn channels_are_read_typed_and_written() {
        let path = "/calls/ethtool/eth0/channels.json";
        let host = Host::scripted([(path, r#"{ "combined": 1, "combined_max": 8 }"#)]);
        let channels = Setting::Channels { interface: "eth0".into() };
        assert_eq!(channels.read(&host).expect("read").as_str(), "combined 1");
        let command = channels.command(&SettingValue::new("combined 8"));
        assert_eq!(command.as_deref(), Some("ethtool -L eth0 combined 8"));
        channels.write(&host, &SettingValue::new("combined 8")).expect("written");
        assert_eq!(host.channels("eth0").expect("channels").combined, 8);
        let busy = host.refusing(path, libc::EBUSY);
        let error = channels.write(&busy, &SettingValue::new("combined 4")).expect_err("refused");
        assert!(error.to_string().starts_with("channels of eth0: "), "{error}");
        assert_eq!(channels.read(&busy).expect("read").as_str(), "combined 8");
        let idle = busy.ignoring(path);
        let error = channels.write(&idle, &SettingValue::new("combined 4")).expect_err("ignored");
        let words = "channels of eth0: wrote 'combined 4', it still reads 'combined 8'";
        assert_eq!((error.to_string().as_str(), error.found()), (words, Some("combined 8")));
    }
}
