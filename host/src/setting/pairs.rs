//! Values of name and number pairs, as in `ethtool -G`, `-L` and `-C`.

use std::collections::BTreeMap;

use super::SettingValue;

/// Pairs such as `rx 4096 tx 512`. `None` for an unknown or repeated name, and for any other text.
pub(super) fn parse<'a>(value: &'a SettingValue, names: &[&str]) -> Option<BTreeMap<&'a str, u32>> {
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

/// Whether the pairs in both agree, and one includes the other.
pub(super) fn same(one: &SettingValue, other: &SettingValue, names: &[&str]) -> bool {
    let (Some(one), Some(other)) = (parse(one, names), parse(other, names)) else { return false };
    let (fewer, more) = if one.len() <= other.len() { (one, other) } else { (other, one) };
    fewer.iter().all(|(name, count)| more.get(name) == Some(count))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RINGS: [&str; 2] = ["rx", "tx"];
    const CHANNELS: [&str; 3] = ["rx", "tx", "combined"];

    #[test]
    fn pairs_are_read_and_nothing_else() {
        let value = SettingValue::new("rx 4096 tx 512");
        assert_eq!(parse(&value, &RINGS), Some(BTreeMap::from([("rx", 4096), ("tx", 512)])));
        for bad in ["", "rx", "rx many", "rx 1 rx 2", "combined 4", "rx -1", "4096"] {
            assert_eq!(parse(&SettingValue::new(bad), &RINGS), None, "{bad}");
        }
    }

    #[test]
    fn values_that_name_fewer_may_mean_the_same() {
        let same =
            |one: &str, other: &str| same(&SettingValue::new(one), &SettingValue::new(other), &CHANNELS);
        assert!(same("combined 4", "rx 0 tx 0 combined 4") && same("rx 1 tx 2", "tx 2 rx 1"));
        assert!(!same("combined 4", "combined 8") && !same("combined 4", "rx 4") && !same("", ""));
    }

    proptest! {
        #[test]
        fn any_text_is_pairs_or_none(text in "([a-z]{0,8} ?[0-9]{0,12} ?){0,4}") {
            let value = SettingValue::new(&text);
            if let Some(pairs) = parse(&value, &CHANNELS) {
                prop_assert!(pairs.keys().all(|name| CHANNELS.contains(name)));
                prop_assert!(same(&value, &value, &CHANNELS));
            }
        }
    }
}
