//! Ring lengths, channels and interrupt moderation of an interface.
//!
//! A value consists of pairs as in `ethtool -G`, `-L` and `-C`, with the parameters that the device
//! has: `rx 4096 tx 512`, `combined 8`, `adaptive-rx off rx-usecs 50`.

use std::collections::BTreeMap;

use super::knob::{Knob, WriteRefusal};
use super::value::SettingValue;
use crate::ethtool::{ChannelCounts, CoalesceSettings, RingLengths};
use crate::{Host, HostError};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PairsKind {
    Rings,
    Channels,
    Coalesce,
}

pub(super) struct PairsKnob<'a> {
    pub(super) interface: &'a str,
    pub(super) kind: PairsKind,
}

/// Values by name; `on` is 1.
type Pairs<'a> = BTreeMap<&'a str, u32>;

const RX_MODERATION: [&str; 2] = ["rx-usecs", "rx-frames"];
const TX_MODERATION: [&str; 2] = ["tx-usecs", "tx-frames"];

impl PairsKind {
    /// Name, option of ethtool, parameters, and an example for errors.
    fn properties(self) -> (&'static str, char, &'static [&'static str], &'static str) {
        match self {
            PairsKind::Rings => ("rings", 'G', &["rx", "tx"], "lengths such as rx 4096 tx 512"),
            PairsKind::Channels => ("channels", 'L', &["rx", "tx", "combined"], "numbers such as combined 8"),
            PairsKind::Coalesce => (
                "interrupt moderation",
                'C',
                &["adaptive-rx", "adaptive-tx", "rx-usecs", "rx-frames", "tx-usecs", "tx-frames"],
                "pairs such as adaptive-rx off rx-usecs 50",
            ),
        }
    }

    // `None` for an unknown or repeated name, and for any other text.
    fn parse(self, value: &SettingValue) -> Option<Pairs<'_>> {
        let (_, _, names, _) = self.properties();
        let mut pairs = BTreeMap::new();
        let mut words = value.as_str().split_whitespace();
        while let Some(name) = words.next() {
            let number = match (name.starts_with("adaptive-"), words.next()?) {
                (true, "on") => 1,
                (true, "off") => 0,
                (true, _) => return None,
                (false, number) => number.parse().ok()?,
            };
            if !names.contains(&name) || pairs.insert(name, number).is_some() {
                return None;
            }
        }
        (!pairs.is_empty()).then_some(pairs)
    }
}

impl Knob for PairsKnob<'_> {
    fn name(&self) -> String {
        format!("{} of {}", self.kind.properties().0, self.interface)
    }

    fn read(&self, host: &Host) -> Result<SettingValue, HostError> {
        match self.kind {
            PairsKind::Rings => host.rings(self.interface).map(SettingValue::from),
            PairsKind::Channels => host.channels(self.interface).map(SettingValue::from),
            PairsKind::Coalesce => host.coalesce(self.interface).map(SettingValue::from),
        }
    }

    fn canonical(&self, value: &SettingValue) -> Result<String, &'static str> {
        self.kind.parse(value).map(|_| value.to_string()).ok_or(self.kind.properties().3)
    }

    fn write(&self, host: &Host, value: &SettingValue) -> Result<(), WriteRefusal> {
        let pairs = self.kind.parse(value).ok_or(WriteRefusal::BadValue(self.kind.properties().3))?;
        let count = |name: &str| pairs.get(name).copied();
        Ok(match self.kind {
            PairsKind::Rings => host.set_rings(self.interface, count("rx"), count("tx")),
            PairsKind::Channels => {
                host.set_channels(self.interface, count("rx"), count("tx"), count("combined"))
            }
            PairsKind::Coalesce => host.set_coalesce(self.interface, &moderation(&pairs)),
        }?)
    }

    // Compares the common parameters; one value must have all parameters of the other.
    fn same(&self, left: &SettingValue, right: &SettingValue) -> bool {
        let (Some(left), Some(right)) = (self.kind.parse(left), self.kind.parse(right)) else { return false };
        let (left, right) = (without_adapted_values(left), without_adapted_values(right));
        let (fewer, more) = if left.len() <= right.len() { (left, right) } else { (right, left) };
        fewer.iter().all(|(name, count)| more.get(name) == Some(count))
    }

    fn command(&self, value: &SettingValue) -> Option<String> {
        Some(format!("ethtool -{} {} {value}", self.kind.properties().1, self.interface))
    }
}

/// While the driver adapts a side to load, the current values of that side do not count.
fn without_adapted_values(mut pairs: Pairs<'_>) -> Pairs<'_> {
    for (flag, names) in [("adaptive-rx", RX_MODERATION), ("adaptive-tx", TX_MODERATION)] {
        if pairs.get(flag) == Some(&1) {
            pairs.retain(|name, _| !names.contains(name));
        }
    }
    pairs
}

fn moderation(pairs: &Pairs<'_>) -> CoalesceSettings {
    let number = |name: &str| pairs.get(name).copied();
    let flag = |name: &str| number(name).map(|on| on == 1);
    CoalesceSettings {
        adaptive_rx: flag("adaptive-rx"),
        adaptive_tx: flag("adaptive-tx"),
        rx_usecs: number("rx-usecs"),
        rx_frames: number("rx-frames"),
        tx_usecs: number("tx-usecs"),
        tx_frames: number("tx-frames"),
    }
}

impl From<RingLengths> for SettingValue {
    fn from(rings: RingLengths) -> Self {
        SettingValue::new(format!("rx {} tx {}", rings.rx, rings.tx))
    }
}

// Only the kinds that the device supports, because it accepts no other kinds.
impl From<ChannelCounts> for SettingValue {
    fn from(channels: ChannelCounts) -> Self {
        let kinds = [
            ("rx", channels.rx, channels.rx_max),
            ("tx", channels.tx, channels.tx_max),
            ("combined", channels.combined, channels.combined_max),
        ];
        let supported_kinds = kinds.iter().filter(|(_, _, max)| *max > 0);
        let pairs: Vec<String> = supported_kinds.map(|(name, count, _)| format!("{name} {count}")).collect();
        SettingValue::new(pairs.join(" "))
    }
}

impl From<CoalesceSettings> for SettingValue {
    fn from(coalesce: CoalesceSettings) -> Self {
        let flag =
            |name: &str, on: Option<bool>| on.map(|on| format!("{name} {}", if on { "on" } else { "off" }));
        let number = |name: &str, number: Option<u32>| number.map(|number| format!("{name} {number}"));
        let pairs = [
            flag("adaptive-rx", coalesce.adaptive_rx),
            flag("adaptive-tx", coalesce.adaptive_tx),
            number("rx-usecs", coalesce.rx_usecs),
            number("rx-frames", coalesce.rx_frames),
            number("tx-usecs", coalesce.tx_usecs),
            number("tx-frames", coalesce.tx_frames),
        ];
        SettingValue::new(pairs.into_iter().flatten().collect::<Vec<_>>().join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Setting;

    fn coalesce() -> Setting {
        Setting::Coalesce { interface: "eth0".into() }
    }

    fn same(kind: PairsKind, one: &str, other: &str) -> bool {
        PairsKnob { interface: "eth0", kind }.same(&SettingValue::new(one), &SettingValue::new(other))
    }

    #[test]
    fn channels_are_read_and_written_and_have_an_ethtool_command() {
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
        let expected = "channels of eth0: wrote 'combined 4', it still reads 'combined 8'";
        assert_eq!((error.to_string().as_str(), error.found()), (expected, Some("combined 8")));
    }

    #[test]
    fn rings_are_read_and_written_and_have_an_ethtool_command() {
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
        let capture = Host::recorded(crate::HostRecording::new());
        assert!(rings.write(&capture, &value).is_err(), "a capture refuses writes");
    }

    #[test]
    fn coalesce_value_lists_only_parameters_of_the_driver() {
        let host = Host::scripted([(
            "/calls/ethtool/eth0/coalesce.json",
            r#"{"rx_usecs": 3, "tx_usecs": 0, "adaptive_rx": true}"#,
        )]);
        assert_eq!(coalesce().read(&host).expect("read").as_str(), "adaptive-rx on rx-usecs 3 tx-usecs 0");
        coalesce().write(&host, &SettingValue::new("adaptive-rx off rx-usecs 50")).expect("written");
        assert_eq!(coalesce().read(&host).expect("read").as_str(), "adaptive-rx off rx-usecs 50 tx-usecs 0");
        assert_eq!(host.coalesce("eth0").expect("read").rx_usecs, Some(50));
        let command = coalesce().command(&SettingValue::new("rx-usecs 50"));
        assert_eq!(command.as_deref(), Some("ethtool -C eth0 rx-usecs 50"));
        let all =
            SettingValue::new("adaptive-rx on adaptive-tx off rx-usecs 1 rx-frames 2 tx-usecs 3 tx-frames 4");
        coalesce().write(&host, &all).expect("written");
        assert_eq!(coalesce().read(&host).expect("read"), all);
        let expected = CoalesceSettings {
            rx_usecs: Some(1),
            rx_frames: Some(2),
            tx_usecs: Some(3),
            tx_frames: Some(4),
            adaptive_rx: Some(true),
            adaptive_tx: Some(false),
        };
        assert_eq!(host.coalesce("eth0").expect("read"), expected);
    }

    #[test]
    fn coalesce_values_of_an_adaptive_direction_are_not_compared() {
        let same = |one, other| same(PairsKind::Coalesce, one, other);
        assert!(same("adaptive-rx on rx-usecs 8 tx-usecs 1", "adaptive-rx on rx-usecs 120 tx-usecs 1"));
        assert!(!same("adaptive-rx on rx-usecs 8 tx-usecs 1", "adaptive-rx on rx-usecs 8 tx-usecs 2"));
        assert!(!same("adaptive-rx off rx-usecs 8", "adaptive-rx off rx-usecs 120"));
        assert!(same("rx-usecs 8", "adaptive-rx off rx-usecs 8") && !same("rx-usecs 8", "rx-frames 8"));
    }

    #[test]
    fn values_with_fewer_parameters_compare_the_common_parameters() {
        let same = |one, other| same(PairsKind::Channels, one, other);
        assert!(same("combined 4", "rx 0 tx 0 combined 4") && same("rx 1 tx 2", "tx 2 rx 1"));
        assert!(!same("combined 4", "combined 8") && !same("combined 4", "rx 4") && !same("", ""));
    }

    #[test]
    fn ring_and_coalesce_pairs_are_parsed_and_other_text_is_rejected() {
        let value = SettingValue::new("rx 4096 tx 512");
        assert_eq!(PairsKind::Rings.parse(&value), Some(BTreeMap::from([("rx", 4096), ("tx", 512)])));
        for bad in ["", "rx", "rx many", "rx 1 rx 2", "combined 4", "rx -1", "4096"] {
            assert_eq!(PairsKind::Rings.parse(&SettingValue::new(bad)), None, "{bad}");
        }
        for bad in ["", "rx-usecs", "rx-usecs on", "adaptive-rx 1", "rx-usecs 1 rx-usecs 2", "pkt-rate-low 1"]
        {
            assert!(coalesce().check(&SettingValue::new(bad)).is_err(), "{bad}");
        }
    }
}
