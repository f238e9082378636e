//! Interrupt moderation: time and packets that an interface waits before an interrupt.
//!
//! A value consists of pairs as in `ethtool -C`, with the parameters of the driver: `adaptive-rx
//! off rx-usecs 50`.

use super::SettingValue;
use super::knob::{Knob, WriteRefusal};
use crate::stage::link::CoalesceSettings;
use crate::{Host, HostError};

const EXPECTED: &str = "pairs such as adaptive-rx off rx-usecs 50";

pub(super) struct ModerationKnob<'a> {
    pub(super) interface: &'a str,
}

impl Knob for ModerationKnob<'_> {
    fn name(&self) -> String {
        format!("interrupt moderation of {}", self.interface)
    }

    fn read(&self, host: &Host) -> Result<SettingValue, HostError> {
        host.coalesce(self.interface).map(SettingValue::from)
    }

    fn check(&self, value: &SettingValue) -> Result<(), &'static str> {
        parse(value).map(|_| ()).ok_or(EXPECTED)
    }

    fn write(&self, host: &Host, value: &SettingValue) -> Result<(), WriteRefusal> {
        let wanted = parse(value).ok_or(WriteRefusal::BadValue(EXPECTED))?;
        Ok(host.set_coalesce(self.interface, &wanted)?)
    }

    /// Compares the parameters in both; those of one must include those of the other. While the
    /// driver adapts a side to load, its current values do not count.
    fn same(&self, one: &SettingValue, other: &SettingValue) -> bool {
        let (Some(one), Some(other)) = (parse(one), parse(other)) else { return false };
        let (one, other) = (settled(one), settled(other));
        covers(&one, &other) || covers(&other, &one)
    }

    fn command(&self, value: &SettingValue) -> Option<String> {
        Some(format!("ethtool -C {} {value}", self.interface))
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

/// `None` for an unknown or repeated name, an invalid value, or no pair.
fn parse(value: &SettingValue) -> Option<CoalesceSettings> {
    let mut coalesce = CoalesceSettings::default();
    let mut words = value.as_str().split_whitespace();
    while let Some(name) = words.next() {
        let word = words.next()?;
        let before = match name {
            "adaptive-rx" => coalesce.adaptive_rx.replace(switch(word)?).is_some(),
            "adaptive-tx" => coalesce.adaptive_tx.replace(switch(word)?).is_some(),
            "rx-usecs" => coalesce.rx_usecs.replace(word.parse().ok()?).is_some(),
            "rx-frames" => coalesce.rx_frames.replace(word.parse().ok()?).is_some(),
            "tx-usecs" => coalesce.tx_usecs.replace(word.parse().ok()?).is_some(),
            "tx-frames" => coalesce.tx_frames.replace(word.parse().ok()?).is_some(),
            _ => return None,
        };
        if before {
            return None;
        }
    }
    (coalesce != CoalesceSettings::default()).then_some(coalesce)
}

fn switch(word: &str) -> Option<bool> {
    match word {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    }
}

/// Without the values of a side that adapts.
fn settled(mut coalesce: CoalesceSettings) -> CoalesceSettings {
    if coalesce.adaptive_rx == Some(true) {
        (coalesce.rx_usecs, coalesce.rx_frames) = (None, None);
    }
    if coalesce.adaptive_tx == Some(true) {
        (coalesce.tx_usecs, coalesce.tx_frames) = (None, None);
    }
    coalesce
}

/// Whether `whole` includes `part`.
fn covers(whole: &CoalesceSettings, part: &CoalesceSettings) -> bool {
    fn within<T: PartialEq + Copy>(part: Option<T>, whole: Option<T>) -> bool {
        part.is_none() || part == whole
    }
    within(part.rx_usecs, whole.rx_usecs)
        && within(part.rx_frames, whole.rx_frames)
        && within(part.tx_usecs, whole.tx_usecs)
        && within(part.tx_frames, whole.tx_frames)
        && within(part.adaptive_rx, whole.adaptive_rx)
        && within(part.adaptive_tx, whole.adaptive_tx)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Setting;

    fn setting() -> Setting {
        Setting::Coalesce { interface: "eth0".into() }
    }

    #[test]
    fn only_what_the_driver_has_is_named() {
        let host = Host::scripted([(
            "/calls/ethtool/eth0/coalesce.json",
            r#"{"rx_usecs": 3, "tx_usecs": 0, "adaptive_rx": true}"#,
        )]);
        assert_eq!(setting().read(&host).expect("read").as_str(), "adaptive-rx on rx-usecs 3 tx-usecs 0");
        setting().write(&host, &SettingValue::new("adaptive-rx off rx-usecs 50")).expect("written");
        assert_eq!(setting().read(&host).expect("read").as_str(), "adaptive-rx off rx-usecs 50 tx-usecs 0");
        assert_eq!(host.coalesce("eth0").expect("read").rx_usecs, Some(50));
        let command = setting().command(&SettingValue::new("rx-usecs 50"));
        assert_eq!(command.as_deref(), Some("ethtool -C eth0 rx-usecs 50"));
    }

    #[test]
    fn figures_of_a_side_that_adapts_count_for_nothing() {
        let same = |one, other| setting().same(&SettingValue::new(one), &SettingValue::new(other));
        assert!(same("adaptive-rx on rx-usecs 8 tx-usecs 1", "adaptive-rx on rx-usecs 120 tx-usecs 1"));
        assert!(!same("adaptive-rx on rx-usecs 8 tx-usecs 1", "adaptive-rx on rx-usecs 8 tx-usecs 2"));
        assert!(!same("adaptive-rx off rx-usecs 8", "adaptive-rx off rx-usecs 120"));
        assert!(same("rx-usecs 8", "adaptive-rx off rx-usecs 8") && !same("rx-usecs 8", "rx-frames 8"));
        for bad in ["", "rx-usecs", "rx-usecs on", "adaptive-rx 1", "rx-usecs 1 rx-usecs 2", "pkt-rate-low 1"]
        {
            assert!(setting().check(&SettingValue::new(bad)).is_err(), "{bad}");
        }
    }

    fn coalesce() -> impl Strategy<Value = CoalesceSettings> {
        let (number, flag) = (proptest::option::of(any::<u32>()), proptest::option::of(any::<bool>()));
        (number.clone(), number.clone(), number.clone(), number, flag.clone(), flag).prop_map(
            |(rx_usecs, rx_frames, tx_usecs, tx_frames, adaptive_rx, adaptive_tx)| CoalesceSettings {
                rx_usecs,
                rx_frames,
                tx_usecs,
                tx_frames,
                adaptive_rx,
                adaptive_tx,
            },
        )
    }

    proptest! {
        #[test]
        fn moderation_comes_back_from_its_value(coalesce in coalesce()) {
            let parsed = parse(&SettingValue::from(coalesce));
            prop_assert_eq!(parsed, (coalesce != CoalesceSettings::default()).then_some(coalesce));
        }

        #[test]
        fn any_text_is_moderation_or_none(text in "([a-z-]{0,12} ?[a-z0-9]{0,12} ?){0,4}") {
            let _ = parse(&SettingValue::new(text));
        }
    }
}
