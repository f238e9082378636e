//! Ring lengths, channels and interrupt moderation of an interface.
//!
//! A value consists of pairs as in `ethtool -G`, `-L` and `-C`, with the parameters that the device
//! has: `rx 4096 tx 512`, `combined 8`, `adaptive-rx off rx-usecs 50`.

use serde::Serialize;
use serde_json::{Map, Value};

use super::knob::{Knob, WriteRefusal};
use super::value::SettingValue;
use crate::sys::ethtool::{CHANNELS, COALESCE, RINGS, WordParameter, WordStructure};
use crate::{Host, HostError};

/// A structure of ethtool with the texts of its setting.
pub(super) struct PairsKind {
    structure: &'static WordStructure,
    name: &'static str,
    /// The option of ethtool(8).
    option: char,
    expected: &'static str,
}

impl PairsKind {
    pub(super) const RINGS: Self =
        Self { structure: &RINGS, name: "rings", option: 'G', expected: "lengths such as rx 4096 tx 512" };
    pub(super) const CHANNELS: Self =
        Self { structure: &CHANNELS, name: "channels", option: 'L', expected: "numbers such as combined 8" };
    pub(super) const COALESCE: Self = Self {
        structure: &COALESCE,
        name: "interrupt moderation",
        option: 'C',
        expected: "pairs such as adaptive-rx off rx-usecs 50",
    };

    // `None` for an unknown or repeated name, and for any other text.
    fn parse(&self, value: &SettingValue) -> Option<Pairs> {
        let mut pairs = Pairs::new();
        let mut words = value.as_str().split_whitespace();
        while let Some(name) = words.next() {
            let parameter = self.structure.parameter(name)?;
            let number = match (parameter.is_flag(), words.next()?) {
                (true, "on") => 1,
                (true, "off") => 0,
                (true, _) => return None,
                (false, number) => number.parse().ok()?,
            };
            if pairs.iter().any(|(other, _)| *other == parameter) {
                return None;
            }
            pairs.push((parameter, number));
        }
        (!pairs.is_empty()).then_some(pairs)
    }
}

/// Parameters with their values; `on` is 1.
type Pairs = Vec<(&'static WordParameter, u32)>;

pub(super) struct PairsKnob<'a> {
    pub(super) interface: &'a str,
    pub(super) kind: PairsKind,
}

impl Knob for PairsKnob<'_> {
    fn name(&self) -> String {
        format!("{} of {}", self.kind.name, self.interface)
    }

    fn read(&self, host: &Host) -> Result<SettingValue, HostError> {
        let answer: Map<String, Value> = host.read_words(self.interface, self.kind.structure)?;
        Ok(pairs_of_answer(self.kind.structure, &answer.into()))
    }

    fn canonical(&self, value: &SettingValue) -> Result<String, &'static str> {
        self.kind.parse(value).map(|_| value.to_string()).ok_or(self.kind.expected)
    }

    fn write(&self, host: &Host, value: &SettingValue) -> Result<(), WriteRefusal> {
        let pairs = self.kind.parse(value).ok_or(self.kind.expected)?;
        let set = |pairs: &Pairs| host.set_words(self.interface, self.kind.name, self.kind.structure, pairs);
        match set(&pairs) {
            // ice and iavf refuse other values for a side that adapts to load (Linux 6.18).
            Err(error) if error.errno() == Some(libc::EINVAL) && constant(&pairs) != pairs => {
                set(&constant(&pairs))?;
                Ok(set(&pairs)?)
            }
            result => Ok(result?),
        }
    }

    // Compares the common parameters; one value must have all parameters of the other.
    fn same(&self, left: &SettingValue, right: &SettingValue) -> bool {
        let (Some(left), Some(right)) = (self.kind.parse(left), self.kind.parse(right)) else { return false };
        let (left, right) = (without_adapted_values(left), without_adapted_values(right));
        let (fewer, more) = if left.len() <= right.len() { (left, right) } else { (right, left) };
        fewer.iter().all(|pair| more.contains(pair))
    }

    fn command(&self, value: &SettingValue) -> Option<String> {
        Some(format!("ethtool -{} {} {value}", self.kind.option, self.interface))
    }
}

const ADAPTIVE: [(&str, &str); 2] = [("adaptive-rx", "rx-"), ("adaptive-tx", "tx-")];

/// The same values on sides that do not adapt to load.
fn constant(pairs: &Pairs) -> Pairs {
    let is_flag = |parameter: &WordParameter| ADAPTIVE.iter().any(|(flag, _)| parameter.name == *flag);
    pairs.iter().map(|(parameter, value)| (*parameter, if is_flag(parameter) { 0 } else { *value })).collect()
}

/// While the driver adapts a side to load, the current values of that side do not count.
fn without_adapted_values(mut pairs: Pairs) -> Pairs {
    for (flag, side) in ADAPTIVE {
        if pairs.iter().any(|(parameter, on)| parameter.name == flag && *on == 1) {
            pairs.retain(|(parameter, _)| !parameter.name.starts_with(side));
        }
    }
    pairs
}

/// The value of a setting with the parameters of an answer, such as of
/// [`crate::ethtool::RingLengths`].
pub(crate) fn pairs_value(structure: &WordStructure, answer: &impl Serialize) -> SettingValue {
    pairs_of_answer(structure, &serde_json::to_value(answer).unwrap_or_default())
}

fn pairs_of_answer(structure: &WordStructure, answer: &Value) -> SettingValue {
    let pair = |parameter: &WordParameter| Some(format!("{} {}", parameter.name, parameter.text_in(answer)?));
    let pairs: Vec<String> = structure.parameters.iter().filter_map(pair).collect();
    SettingValue::new(pairs.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Setting;
    use crate::ethtool::CoalesceSettings;

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
        let without_tx = Host::scripted([(path, r#"{ "rx": 512, "tx": 0, "rx_max": 4096, "tx_max": 0 }"#)]);
        assert_eq!(rings.read(&without_tx).expect("read").as_str(), "rx 512");
        let garbled = Host::scripted([(path, "[1, 1, 1]")]);
        assert!(rings.read(&garbled).expect_err("no answer").to_string().contains("rings.json"));
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
        let same = |one, other| same(PairsKind::COALESCE, one, other);
        assert!(same("adaptive-rx on rx-usecs 8 tx-usecs 1", "adaptive-rx on rx-usecs 120 tx-usecs 1"));
        assert!(!same("adaptive-rx on rx-usecs 8 tx-usecs 1", "adaptive-rx on rx-usecs 8 tx-usecs 2"));
        assert!(!same("adaptive-rx off rx-usecs 8", "adaptive-rx off rx-usecs 120"));
        assert!(same("rx-usecs 8", "adaptive-rx off rx-usecs 8") && !same("rx-usecs 8", "rx-frames 8"));
    }

    #[test]
    fn values_with_fewer_parameters_compare_the_common_parameters() {
        let same = |one, other| same(PairsKind::CHANNELS, one, other);
        assert!(same("combined 4", "rx 0 tx 0 combined 4") && same("rx 1 tx 2", "tx 2 rx 1"));
        assert!(!same("combined 4", "combined 8") && !same("combined 4", "rx 4") && !same("", ""));
    }

    #[test]
    fn ring_and_coalesce_pairs_are_parsed_and_other_text_is_rejected() {
        let rings = Setting::Rings { interface: "eth0".into() };
        assert!(rings.check(&SettingValue::new("rx 4096 tx 512")).is_ok());
        for bad in ["", "rx", "rx many", "rx 1 rx 2", "combined 4", "rx -1", "4096"] {
            assert!(rings.check(&SettingValue::new(bad)).is_err(), "{bad}");
        }
        for bad in ["", "rx-usecs", "rx-usecs on", "adaptive-rx 1", "rx-usecs 1 rx-usecs 2", "pkt-rate-low 1"]
        {
            assert!(coalesce().check(&SettingValue::new(bad)).is_err(), "{bad}");
        }
    }
}
