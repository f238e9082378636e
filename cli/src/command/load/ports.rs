//! A range of source ports, as it is typed.

use std::ops::RangeInclusive;
use std::str::FromStr;

/// Ports such as `20000-29999`; never 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SourcePortRange(pub(crate) RangeInclusive<u16>);

impl FromStr for SourcePortRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        match (first.trim().parse::<u16>(), last.trim().parse::<u16>()) {
            (Ok(first), Ok(last)) if first > 0 && first <= last => Ok(SourcePortRange(first..=last)),
            _ => Err(format!("'{text}' is no range of ports such as 20000-29999")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_one_or_a_range() {
        assert_eq!("20000-29999".parse(), Ok(SourcePortRange(20_000..=29_999)));
        assert_eq!("53".parse(), Ok(SourcePortRange(53..=53)));
        for wrong in ["", "0-9", "9-8", "a-b", "1-65536", "-", "1-2-3"] {
            assert!(wrong.parse::<SourcePortRange>().is_err(), "{wrong}");
        }
    }
}
