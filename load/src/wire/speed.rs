//! Link speeds as people write them.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

// Faster links are refused as typing errors, bits/s.
const FASTEST: u64 = 1_000_000_000_000_000;

/// A link's speed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkSpeed(NonZeroU64);

/// Why a text is not a link speed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\" {problem}")]
pub struct SpeedError {
    text: String,
    problem: String,
}

impl LinkSpeed {
    /// `None` for 0 bits per second.
    pub fn from_bits_per_second(bits: u64) -> Option<Self> {
        NonZeroU64::new(bits).map(LinkSpeed)
    }

    pub fn bits_per_second(self) -> u64 {
        self.0.get()
    }
}

impl FromStr for LinkSpeed {
    type Err = SpeedError;

    fn from_str(text: &str) -> Result<Self, SpeedError> {
        let speed_error = |problem: &str| SpeedError { text: text.to_owned(), problem: problem.to_owned() };
        let trimmed = text.trim();
        let number_end = trimmed.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(number_end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() || fraction.contains('.') || (number.contains('.') && fraction.is_empty()) {
            let problem = "is not a link speed: write a number and a unit, such as 100M, 2.5G or 10Gbit/s";
            return Err(speed_error(problem));
        }
        let unit = unit.trim();
        let power = power_of_ten(unit).ok_or_else(|| {
            speed_error(&format!(
                "has the unknown unit \"{unit}\": use k, M, G or T (powers of 1000), alone or with bit/s"
            ))
        })?;
        let range_error = || speed_error("is out of range: a link has a whole number of bits/s, 1 to 1000T");
        // In whole numbers: 2.5G is exactly 2,500,000,000.
        let fraction = fraction.trim_end_matches('0');
        let zeroes = (power as usize).checked_sub(fraction.len()).ok_or_else(range_error)?;
        let digits = format!("{whole}{fraction}{}", "0".repeat(zeroes));
        let bits: u64 = digits.parse().map_err(|_| range_error())?;
        if bits > FASTEST {
            return Err(range_error());
        }
        LinkSpeed::from_bits_per_second(bits).ok_or_else(range_error)
    }
}

// The power of ten of a unit's prefix. A lower-case m is mega, as in ethtool's output.
fn power_of_ten(unit: &str) -> Option<u32> {
    let prefix = ["bits/s", "bit/s", "bps", "bit", "b/s", "b"]
        .iter()
        .find_map(|suffix| unit.strip_suffix(suffix))
        .unwrap_or(unit);
    match prefix.trim_end() {
        "" => Some(0),
        "k" | "K" => Some(3),
        "M" | "m" => Some(6),
        "G" | "g" => Some(9),
        "T" | "t" => Some(12),
        _ => None,
    }
}

impl fmt::Display for LinkSpeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = self.bits_per_second();
        for (unit, size) in [("T", 1_000_000_000_000), ("G", 1_000_000_000), ("M", 1_000_000), ("k", 1_000)] {
            if bits >= size {
                let (whole, remainder) = (bits / size, bits % size);
                let digits = format!("{remainder:0width$}", width = size.ilog10() as usize);
                let fraction = digits.trim_end_matches('0');
                return match fraction {
                    "" => write!(f, "{whole}{unit}"),
                    _ => write!(f, "{whole}.{fraction}{unit}"),
                };
            }
        }
        write!(f, "{bits}")
    }
}
