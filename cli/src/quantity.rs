//! Quantities on the command line: rates, shares, spans of time, lists of CPUs.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use linerate_host::CpuSet;

/// A rate such as `50000`, `50k` or `1.2M`.
pub(crate) fn parse_rate(text: &str) -> Result<f64, String> {
    let (number, scale) = match text.strip_suffix(['k', 'K']) {
        Some(number) => (number, 1e3),
        None => text.strip_suffix(['m', 'M']).map_or((text, 1.0), |number| (number, 1e6)),
    };
    match number.parse::<f64>() {
        Ok(value) if value > 0.0 && (value * scale).is_finite() => Ok(value * scale),
        _ => Err(format!("'{text}' is no positive rate such as 50000, 50k or 1.2M")),
    }
}

/// The address and port with the number of the interface for its name, as in `[fe80::1%eth0]:53`.
/// The standard library parses numbers only.
pub(crate) fn with_scope_number(text: &str) -> Result<Cow<'_, str>, String> {
    let Some((address, rest)) = text.split_once('%') else { return Ok(text.into()) };
    let Some((name, port)) = rest.split_once(']') else { return Ok(text.into()) };
    if name.parse::<u32>().is_ok() {
        return Ok(text.into());
    }
    use rustix::net::{AddressFamily, SocketType, netdevice::name_to_index, socket};
    let index = socket(AddressFamily::INET6, SocketType::DGRAM, None)
        .and_then(|socket| name_to_index(socket, name))
        .map_err(|_| format!("'{text}': no interface {name}"))?;
    Ok(format!("{address}%{index}]{port}").into())
}

/// An address and port.
pub(crate) fn parse_address(text: &str) -> Result<SocketAddr, String> {
    with_scope_number(text)?.parse().map_err(|error| format!("{error}"))
}

/// A share such as `0.1%` or `0.001`.
pub(crate) fn parse_share(text: &str) -> Result<f64, String> {
    let (number, scale) = match text.strip_suffix('%') {
        Some(number) => (number, 100.0),
        None => (text, 1.0),
    };
    match number.trim().parse::<f64>() {
        Ok(value) if (0.0..=scale).contains(&value) => Ok(value / scale),
        _ => Err(format!("'{text}' is no share between 0 and 1 such as 0.1% or 0.001")),
    }
}

/// A span of time with its unit, such as `500us`, `1ms` or `2s`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let syntax_error = || format!("'{text}' is no span of time such as 500us, 1ms or 2s");
    let units = [("ns", 1e-9), ("us", 1e-6), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    let unit = units.iter().find_map(|(unit, scale)| Some((text.strip_suffix(unit)?, scale)));
    let (number, scale) = unit.ok_or_else(syntax_error)?;
    let seconds = number.trim().parse::<f64>().map_err(|_| syntax_error())? * scale;
    match Duration::try_from_secs_f64(seconds) {
        Ok(span) if !span.is_zero() => Ok(span),
        _ => Err(syntax_error()),
    }
}

/// CPUs such as `0-3,8`.
pub(crate) fn parse_cpus(text: &str) -> Result<CpuSet, String> {
    let cpus = CpuSet::from_list(text).map_err(|error| error.to_string())?;
    if cpus.is_empty() { Err(format!("no CPU in '{text}'; give a list such as 0-3,8")) } else { Ok(cpus) }
}

/// The longest time that an option accepts, in seconds: 31 years.
pub(crate) const MOST_SECONDS: f64 = 1e9;

/// Parses a number of seconds within a range.
pub(crate) fn seconds(
    range: RangeInclusive<f64>,
) -> impl Fn(&str) -> Result<Duration, String> + Clone + Send + Sync + 'static {
    move |text| {
        let seconds = text.parse::<f64>().ok().filter(|seconds| range.contains(seconds));
        let (minimum, maximum) = (range.start(), range.end());
        let range_error = || format!("'{text}' is no number of seconds from {minimum} to {maximum}");
        seconds.map(Duration::from_secs_f64).ok_or_else(range_error)
    }
}

/// A time that a person waits for, such as `60s`, `10m` or `1h30m`, up to a month.
pub(crate) fn parse_period(text: &str) -> Result<Duration, String> {
    const LONGEST: u64 = 31 * 86_400;
    let syntax_error = || format!("'{text}' is no time from 1s to 31d such as 60s, 10m or 1h30m");
    let mut seconds: u64 = 0;
    let mut remaining = text;
    while !remaining.is_empty() {
        let end = remaining.find(|character: char| !character.is_ascii_digit()).ok_or_else(syntax_error)?;
        let (number, suffix) = remaining.split_at(end);
        let scale = match suffix.chars().next() {
            Some('s') => 1,
            Some('m') => 60,
            Some('h') => 3_600,
            Some('d') => 86_400,
            _ => return Err(syntax_error()),
        };
        let part_seconds = number.parse::<u64>().ok().and_then(|number| number.checked_mul(scale));
        seconds = part_seconds
            .and_then(|part_seconds| seconds.checked_add(part_seconds))
            .ok_or_else(syntax_error)?;
        remaining = suffix.get(1..).unwrap_or_default();
    }
    if (1..=LONGEST).contains(&seconds) { Ok(Duration::from_secs(seconds)) } else { Err(syntax_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_parse_with_decimal_suffixes() {
        assert_eq!(parse_rate("50k"), Ok(50_000.0));
        assert_eq!(parse_rate("1.2M"), Ok(1_200_000.0));
        assert_eq!(parse_rate("7"), Ok(7.0));
        for wrong in ["0", "-1", "k", "", "1G", "inf", "NaN", "1e306M"] {
            assert!(parse_rate(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn shares_parse_with_and_without_percent() {
        assert_eq!(parse_share("0.1%"), Ok(0.001));
        assert_eq!(parse_share("0.25"), Ok(0.25));
        for wrong in ["", "%", "-1%", "101%", "1.5", "NaN"] {
            assert!(parse_share(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn durations_require_a_unit() {
        assert_eq!(parse_duration("500us"), Ok(Duration::from_micros(500)));
        assert_eq!(parse_duration("1.5ms"), Ok(Duration::from_micros(1_500)));
        assert_eq!(parse_duration("2s"), Ok(Duration::from_secs(2)));
        for wrong in ["", "1", "ms", "-1ms", "0s", "1h", "infs", "NaNs", "1e300s"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn periods_parse_as_sums_of_units() {
        assert_eq!(parse_period("60s"), Ok(Duration::from_secs(60)));
        assert_eq!(parse_period("1h30m"), Ok(Duration::from_secs(5_400)));
        assert_eq!(parse_period("31d"), Ok(Duration::from_secs(31 * 86_400)));
        for wrong in ["", "0s", "10", "m", "1.5h", "-1s", "32d", "1w", "99999999999999999999s", "1é"] {
            assert!(parse_period(wrong).is_err(), "{wrong}");
        }
    }
}
