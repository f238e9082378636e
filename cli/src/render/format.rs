//! Numbers for people: three significant digits, decimal prefixes, then the unit.
//!
//! A number that is not finite is shown as `?`, never as zero.

use jiff::Timestamp;
use linerate_host::CpuSet;
use linerate_load::wire::LinkSpeed;

/// Shown for an unknown value.
pub(crate) const UNKNOWN: &str = "?";

/// A rate or count with a decimal prefix: `950`, `412 k`, `1.23 M`.
pub(crate) fn rate(per_second: f64) -> String {
    let (text, prefix) = scaled(per_second);
    with_prefix(text, prefix)
}

/// Two ends of an interval under one prefix: `401–423 k`.
///
/// An interval of few samples may reach below zero, which is no rate. It then begins at zero.
pub(crate) fn rate_range(low: f64, high: f64) -> String {
    let low = if low < 0.0 { 0.0 } else { low };
    let (low_text, low_prefix) = scaled(low);
    let (high_text, high_prefix) = scaled(high);
    if low_prefix != high_prefix {
        return format!("{}–{}", with_prefix(low_text, low_prefix), with_prefix(high_text, high_prefix));
    }
    if low_text == high_text {
        return with_prefix(low_text, low_prefix);
    }
    with_prefix(format!("{low_text}–{high_text}"), low_prefix)
}

/// The wider side of an interval as a share of its median: `±3 %`.
pub(crate) fn plus_minus(median: f64, low: f64, high: f64) -> String {
    if median <= 0.0 || !(median.is_finite() && low.is_finite() && high.is_finite()) {
        return format!("±{UNKNOWN}");
    }
    let share = (high - median).max(median - low).max(0.0) / median * 100.0;
    match share {
        share if share < 0.05 => "±0 %".to_owned(),
        share if share < 0.95 => format!("±{share:.1} %"),
        share => format!("±{share:.0} %"),
    }
}

/// The text of a value, or `?`.
pub(crate) fn known_text<T>(value: Option<T>, to_text: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), to_text)
}

/// A fraction of one as a percentage: `5.5 %`, `0.02 %`, `<0.01 %`, `100 %`.
pub(crate) fn percent(ratio: f64) -> String {
    let value = ratio * 100.0;
    if !value.is_finite() {
        return UNKNOWN.to_owned();
    }
    if value == 0.0 {
        return "0 %".to_owned();
    }
    if value.abs() < 0.01 {
        return "<0.01 %".to_owned();
    }
    if value.abs() < 0.995 {
        return format!("{value:.2} %");
    }
    if value.abs() < 9.95 {
        return format!("{value:.1} %");
    }
    if value >= 999.5 {
        return format!("{} %", grouped(value.round() as u64));
    }
    format!("{value:.0} %")
}

/// A ratio of two rates: `×1.23`, `×0.063`, `×26.0`.
pub(crate) fn ratio(value: f64) -> String {
    if !value.is_finite() {
        return UNKNOWN.to_owned();
    }
    if value.abs() < 0.1 {
        return format!("×{value:.3}");
    }
    if value.abs() < 9.995 {
        return format!("×{value:.2}");
    }
    format!("×{}", significant(value))
}

// Nanoseconds as microseconds, without the unit: `3.45`, `118`, `1,234`.
pub(crate) fn microseconds(nanoseconds: u64) -> String {
    // Exact: percentiles of latency stay far below 2^53 ns.
    let value = nanoseconds as f64 / 1e3;
    if value < 999.5 { significant(value) } else { grouped(value.round() as u64) }
}

// A span of time with a suitable unit: `106 ns`, `1.33 us`, `5.00 ms`, `2.00 s`.
pub(crate) fn time_span(nanoseconds: f64) -> String {
    if !nanoseconds.is_finite() {
        return UNKNOWN.to_owned();
    }
    for (size, unit) in [(1.0, "ns"), (1e3, "us"), (1e6, "ms")] {
        let text = significant(nanoseconds / size);
        if rounded(nanoseconds / size).abs() < 1000.0 {
            return format!("{text} {unit}");
        }
    }
    format!("{} s", significant(nanoseconds / 1e9))
}

/// Bits per second as megabits, without the unit: `0.33`, `547`, `5,640`.
pub(crate) fn megabits(bits_per_second: f64) -> String {
    let value = bits_per_second / 1e6;
    if !value.is_finite() {
        return UNKNOWN.to_owned();
    }
    if value < 999.5 { significant(value) } else { grouped(value.round() as u64) }
}

/// A link's speed in the notation of vendors: `10G`, `2.5G`, `100M`.
pub(crate) fn link(bits_per_second: u64) -> String {
    LinkSpeed::from_bits_per_second(bits_per_second)
        .map_or_else(|| UNKNOWN.to_owned(), |link| link.to_string())
}

/// A whole number with thousands separators: `14,880,952`.
pub(crate) fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// CPU numbers as ranges: `0-3,8`.
pub(crate) fn cpu_list(cpus: &[u32]) -> String {
    let set: CpuSet = cpus.iter().copied().collect();
    if cpus.is_empty() { UNKNOWN.to_owned() } else { set.to_string() }
}

/// A time of day in UTC: `2026-03-01 09:05 UTC`.
pub(crate) fn utc(unix_seconds: u64) -> String {
    let time = i64::try_from(unix_seconds).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    time.map_or_else(|| UNKNOWN.to_owned(), |time| time.strftime("%Y-%m-%d %H:%M UTC").to_string())
}

/// Wall-clock time of a wait: `42 s`, `5 min 03 s`.
pub(crate) fn elapsed(seconds: f64) -> String {
    if !seconds.is_finite() || seconds < 0.0 {
        return UNKNOWN.to_owned();
    }
    let whole_seconds = seconds.round() as u64;
    match whole_seconds {
        0..60 => format!("{whole_seconds} s"),
        60..3_600 => format!("{} min {:02} s", whole_seconds / 60, whole_seconds % 60),
        _ => format!("{} h {:02} min", whole_seconds / 3_600, whole_seconds % 3_600 / 60),
    }
}

// An argument list, quoted so that a shell reads the same list.
pub(crate) fn command_line(argv: &[String]) -> String {
    let quoted: Vec<String> = argv.iter().map(|argument| quote(argument)).collect();
    quoted.join(" ")
}

fn quote(argument: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    if !argument.is_empty() && argument.chars().all(is_plain) {
        argument.to_owned()
    } else {
        format!("'{}'", argument.replace('\'', r"'\''"))
    }
}

/// Three significant digits: `0.0123`, `1.23`, `12.3`, `123`, `1230`.
pub(crate) fn significant(value: f64) -> String {
    if !value.is_finite() {
        return UNKNOWN.to_owned();
    }
    let value = rounded(value);
    format!("{value:.0$}", decimals(value))
}

// A value rounded to three significant digits, so that 999.9 gets the next prefix.
fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let unit = 10f64.powi(value.abs().log10().floor() as i32 - 2);
    (value / unit).round() * unit
}

/// Decimals that leave three significant digits of an already rounded value.
fn decimals(value: f64) -> usize {
    if value == 0.0 {
        return 0;
    }
    // The factor keeps 9.999999 (a rounded 10.0) from getting the decimals of 9.99.
    let magnitude = (value.abs() * (1.0 + 1e-12)).log10().floor() as i32;
    usize::try_from(2 - magnitude).unwrap_or(0).min(9)
}

fn scaled(value: f64) -> (String, &'static str) {
    if !value.is_finite() {
        return (UNKNOWN.to_owned(), "");
    }
    if rounded(value).abs() < 1.0 {
        return (significant(value), "");
    }
    let (mut scaled, mut prefix) = (value, "");
    for next in ["k", "M", "G", "T"] {
        if rounded(scaled).abs() < 999.5 {
            break;
        }
        (scaled, prefix) = (scaled / 1e3, next);
    }
    // Below a thousand a rate is a count of whole things unless it is small.
    if prefix.is_empty() && scaled.fract() == 0.0 {
        return (format!("{scaled:.0}"), prefix);
    }
    (significant(scaled), prefix)
}

fn with_prefix(text: String, prefix: &str) -> String {
    if prefix.is_empty() { text } else { format!("{text} {prefix}") }
}

/// `53, 123, 853`.
pub(crate) fn comma_list(items: impl IntoIterator<Item: ToString>) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(", ")
}

/// `1 change`, `3 changes`.
pub(crate) fn count_with_noun(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_three_digits_and_a_prefix() {
        assert_eq!([0.0, 0.5, 7.0, 950.4, 999.4, f64::NAN].map(rate), ["0", "0.500", "7", "950", "999", "?"]);
        assert_eq!([999.6, 1e3, 17e3, 412_345.0].map(rate), ["1.00 k", "1.00 k", "17.0 k", "412 k"]);
        assert_eq!([999_499.0, 999_999.0, 14_880_952.0].map(rate), ["999 k", "1.00 M", "14.9 M"]);
        assert_eq!(rate(f64::INFINITY), "?");
    }

    #[test]
    fn rate_ranges_share_a_prefix_if_possible() {
        assert_eq!(rate_range(401_000.0, 423_000.0), "401–423 k");
        assert_eq!(rate_range(990_000.0, 1_010_000.0), "990 k–1.01 M");
        assert_eq!(rate_range(412_100.0, 412_200.0), "412 k");
        assert_eq!(rate_range(-6_890.0, 76_800.0), "0–76.8 k");
    }

    #[test]
    fn plus_minus_is_the_wider_side_of_the_interval() {
        assert_eq!(plus_minus(100.0, 97.0, 101.0), "±3 %");
        assert_eq!(plus_minus(1000.0, 998.0, 1000.0), "±0.2 %");
        assert_eq!(plus_minus(1000.0, 1000.0, 1000.0), "±0 %");
        assert_eq!(plus_minus(0.0, 0.0, 0.0), "±?");
    }

    #[test]
    fn percentages_and_ratios_lose_decimals_as_they_grow() {
        assert_eq!([0.0, 0.000_01, 0.000_2].map(percent), ["0 %", "<0.01 %", "0.02 %"]);
        assert_eq!([0.009_96, 0.054_7, 0.5, 1.0].map(percent), ["1.0 %", "5.5 %", "50 %", "100 %"]);
        assert_eq!([334.56, f64::NAN].map(percent), ["33,456 %", "?"]);
        assert_eq!([0.063, 0.96, 1.234].map(ratio), ["×0.063", "×0.96", "×1.23"]);
        assert_eq!([9.999, 26.0, 149.4].map(ratio), ["×10.0", "×26.0", "×149"]);
    }

    #[test]
    fn latency_is_in_microseconds_and_time_spans_have_the_unit_of_their_size() {
        let latencies = [7, 3_450, 118_400, 999_400, 1_234_000].map(microseconds);
        assert_eq!(latencies, ["0.00700", "3.45", "118", "999", "1,234"]);
        assert_eq!([0.0, 67.2, 106.24].map(time_span), ["0 ns", "67.2 ns", "106 ns"]);
        assert_eq!([999.9, 1_328.0, 5e6, 2e9].map(time_span), ["1.00 us", "1.33 us", "5.00 ms", "2.00 s"]);
    }

    #[test]
    fn bit_rates_are_in_megabits_and_link_speeds_have_a_suffix() {
        assert_eq!([358_560_000.0, 9_999_999_616.0, 332_000.0].map(megabits), ["359", "10,000", "0.332"]);
        assert_eq!([10_000_000_000, 2_500_000_000].map(link), ["10G", "2.5G"]);
        assert_eq!([100_000_000, 9_600, 0].map(link), ["100M", "9.6k", "?"]);
    }

    #[test]
    fn counts_are_grouped_by_thousands() {
        assert_eq!([0, 999, 1_000, 7_530_120].map(grouped), ["0", "999", "1,000", "7,530,120"]);
    }

    #[test]
    fn cpu_lists_are_sorted_and_joined_to_ranges() {
        assert_eq!(cpu_list(&[0, 1, 2, 3, 8]), "0-3,8");
        assert_eq!(cpu_list(&[5, 1, 5]), "1,5");
        assert_eq!(cpu_list(&[u32::MAX]), "4294967295");
        assert_eq!(cpu_list(&[]), "?");
    }

    #[test]
    fn times_have_minutes_and_durations_the_unit_of_their_size() {
        assert_eq!([1_735_689_599, u64::MAX].map(utc), ["2024-12-31 23:59 UTC", "?"]);
        assert_eq!([41.6, 303.0].map(elapsed), ["42 s", "5 min 03 s"]);
        assert_eq!([3_725.0, f64::NAN].map(elapsed), ["1 h 02 min", "?"]);
    }

    #[test]
    fn command_lines_quote_arguments_for_a_shell() {
        let argv = ["linerate", "lab", "--html", "my report.html", "it's", ""].map(str::to_owned);
        assert_eq!(command_line(&argv), r"linerate lab --html 'my report.html' 'it'\''s' ''");
    }
}
