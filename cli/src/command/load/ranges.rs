//! Ranges on the command line: source ports and ramps of rates.

use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::quantity;

// Ports such as `20000-29999`; never 0.
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

/// Rates in rising order, requests per second.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RateRamp(pub(crate) Vec<f64>);

const DEFAULT_STEPS: u32 = 10;
const MOST_STEPS: u32 = 1_000;

impl FromStr for RateRamp {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let syntax_error = || {
            format!(
                "'{text}' is no ramp such as 10k-100k, 10k-100k:5k (steps of 5k) or 10k-100k/4 (four steps)"
            )
        };
        let (range, step_size) = match text.split_once(':') {
            Some((range, step)) => (range, Some(quantity::parse_rate(step).map_err(|_| syntax_error())?)),
            None => (text, None),
        };
        let (range, count) = match range.split_once('/') {
            Some(_) if step_size.is_some() => return Err(syntax_error()),
            Some((range, count)) => (range, count.parse::<u32>().map_err(|_| syntax_error())?),
            None => (range, DEFAULT_STEPS),
        };
        let (low, high) = range.split_once('-').ok_or_else(syntax_error)?;
        let (low, high) = (
            quantity::parse_rate(low).map_err(|_| syntax_error())?,
            quantity::parse_rate(high).map_err(|_| syntax_error())?,
        );
        if low >= high {
            return Err(syntax_error());
        }
        match step_size {
            Some(step) => ramp_by_step(low, high, step),
            None => ramp_by_count(low, high, count),
        }
    }
}

fn ramp_by_step(low: f64, high: f64, step: f64) -> Result<RateRamp, String> {
    // Slightly more, so that rounding does not lose the last step.
    let steps = ((high - low) / step + 1e-9).floor() + 1.0;
    if steps > f64::from(MOST_STEPS) {
        return Err(format!("a ramp of {steps:.0} steps: at most {MOST_STEPS}"));
    }
    Ok(RateRamp((0..steps as u32).map(|index| low + step * f64::from(index)).collect()))
}

fn ramp_by_count(low: f64, high: f64, count: u32) -> Result<RateRamp, String> {
    if !(2..=MOST_STEPS).contains(&count) {
        return Err(format!("a ramp of {count} steps: 2 to {MOST_STEPS}"));
    }
    let step = (high - low) / f64::from(count - 1);
    Ok(RateRamp((0..count).map(|index| low + step * f64::from(index)).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_ports_parse_as_one_port_or_a_range() {
        assert_eq!("20000-29999".parse(), Ok(SourcePortRange(20_000..=29_999)));
        assert_eq!("53".parse(), Ok(SourcePortRange(53..=53)));
        for wrong in ["", "0-9", "9-8", "a-b", "1-65536", "-", "1-2-3"] {
            assert!(wrong.parse::<SourcePortRange>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn rate_ramps_parse_by_step_size_or_count_and_default_to_ten() {
        let steps = |text: &str| text.parse::<RateRamp>().map(|ramp| ramp.0);
        assert_eq!(steps("10k-40k:10k"), Ok(vec![10e3, 20e3, 30e3, 40e3]));
        assert_eq!(steps("10k-40k:25k"), Ok(vec![10e3, 35e3]));
        assert_eq!(steps("100-300/3"), Ok(vec![100.0, 200.0, 300.0]));
        assert_eq!(steps("10k-100k").map(|steps| steps.len()), Ok(10));
    }

    #[test]
    fn invalid_rate_ramps_are_refused() {
        for wrong in ["", "-", "10k", "9-8", "5-5", "1-2:0", "1-2/1", "1-2/x", "1-9/2:3", "1-1M:1", "a-b"] {
            assert!(wrong.parse::<RateRamp>().is_err(), "{wrong}");
        }
    }
}
