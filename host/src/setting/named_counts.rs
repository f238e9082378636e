//! Lengths of rings and numbers of channels: pairs of a name and a number, as `ethtool -G` and `-L` take them.

use std::collections::BTreeMap;

use super::Value;
use crate::stage::link::{Channels, Rings};
use crate::{Host, HostError};

/// What rings and channels are named.
pub(super) const RINGS: [&str; 2] = ["rx", "tx"];
pub(super) const CHANNELS: [&str; 3] = ["rx", "tx", "combined"];

/// Pairs such as `rx 4096 tx 512`, each name one of `names` and there once; none for any other text.
pub(super) fn parse<'a>(value: &'a Value, names: &[&str]) -> Option<BTreeMap<&'a str, u32>> {
    let mut pairs = BTreeMap::new();
    let mut words = value.as_str().split_whitespace();
    while let Some(name) = words.next() {
        let count = words.next()?.parse().ok()?;
        if !names.contains(&name) || pairs.insert(name, count).is_some() {
            return None;
        }
    }
    (!pairs.is_empty()).then_some(pairs)
}

/// Whether two values agree in all that both name, and one names no more than the other.
pub(super) fn same(one: &Value, other: &Value, names: &[&str]) -> bool {
    let (Some(one), Some(other)) = (parse(one, names), parse(other, names)) else { return false };
    let (fewer, more) = if one.len() <= other.len() { (one, other) } else { (other, one) };
    fewer.iter().all(|(name, count)| more.get(name) == Some(count))
}

pub(super) fn write_rings(
    host: &Host,
    interface: &str,
    pairs: &BTreeMap<&str, u32>,
) -> Result<(), HostError> {
    let length = |name: &str| pairs.get(name).copied();
    host.set_rings(interface, length("rx"), length("tx"))
}

pub(super) fn write_channels(
    host: &Host,
    interface: &str,
    pairs: &BTreeMap<&str, u32>,
) -> Result<(), HostError> {
    let count = |name: &str| pairs.get(name).copied();
    host.set_channels(interface, count("rx"), count("tx"), count("combined"))
}

impl From<Rings> for Value {
    fn from(rings: Rings) -> Self {
        Value::new(format!("rx {} tx {}", rings.rx, rings.tx))
    }
}

/// Only of the kinds of channel that the device can have: it takes no others.
impl From<Channels> for Value {
    fn from(channels: Channels) -> Self {
        let kinds = [
            ("rx", channels.rx, channels.rx_max),
            ("tx", channels.tx, channels.tx_max),
            ("combined", channels.combined, channels.combined_max),
        ];
        let named = kinds.iter().filter(|(_, _, max)| *max > 0);
        Value::new(named.map(|(name, count, _)| format!("{name} {count}")).collect::<Vec<_>>().join(" "))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Setting;

    #[test]
    fn pairs_are_read_and_nothing_else() {
        let value = Value::new("rx 4096 tx 512");
        assert_eq!(parse(&value, &RINGS), Some(BTreeMap::from([("rx", 4096), ("tx", 512)])));
        for bad in ["", "rx", "rx many", "rx 1 rx 2", "combined 4", "rx -1", "4096"] {
            assert_eq!(parse(&Value::new(bad), &RINGS), None, "{bad}");
        }
    }

    #[test]
    fn values_that_name_fewer_may_mean_the_same() {
        let same = |one: &str, other: &str| same(&Value::new(one), &Value::new(other), &CHANNELS);
        assert!(same("combined 4", "rx 0 tx 0 combined 4") && same("rx 1 tx 2", "tx 2 rx 1"));
        assert!(!same("combined 4", "combined 8") && !same("combined 4", "rx 4") && !same("", ""));
    }

    #[test]
    fn a_knob_is_read_and_shown_as_it_is_typed() {
        let host = Host::scripted([
            ("/calls/ethtool/eth0/rings.json", r#"{ "rx": 512, "tx": 256, "rx_max": 4096, "tx_max": 4096 }"#),
            ("/calls/ethtool/eth0/channels.json", r#"{ "combined": 1, "combined_max": 8 }"#),
        ]);
        let rings = Setting::Rings { interface: "eth0".into() };
        let value = rings.read(&host).expect("read");
        assert_eq!(value.as_str(), "rx 512 tx 256");
        assert_eq!(rings.command(&value).as_deref(), Some("ethtool -G eth0 rx 512 tx 256"));
        assert!(rings.write(&host, &value).is_err(), "a scripted host takes no ioctl");
        let error = rings.write(&host, &Value::new("long")).expect_err("no lengths");
        assert_eq!(error.to_string(), "rings of eth0: 'long' is not lengths such as rx 4096 tx 512");
        let channels = Setting::Channels { interface: "eth0".into() };
        assert_eq!(channels.read(&host).expect("read").as_str(), "combined 1");
        let command = channels.command(&Value::new("combined 8"));
        assert_eq!(command.as_deref(), Some("ethtool -L eth0 combined 8"));
    }

    proptest! {
        #[test]
        fn any_text_is_pairs_or_none(text in "([a-z]{0,8} ?[0-9]{0,12} ?){0,4}") {
            let value = Value::new(&text);
            if let Some(pairs) = parse(&value, &CHANNELS) {
                prop_assert!(pairs.keys().all(|name| CHANNELS.contains(name)));
                prop_assert!(same(&value, &value, &CHANNELS));
            }
        }
    }
}
