//! Times as NTP writes them (RFC 5905, section 6).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Seconds from 1900-01-01, where NTP's era 0 begins, to 1970-01-01.
const UNIX_EPOCH_SECONDS: u64 = 2_208_988_800;

/// A point of time: 32 bits of seconds, 32 bits of fractions, about 233 ps each. Seconds count from 1900 and start again
/// at 0 in 2036; which era is meant is for the reader to know. 0 means that no time is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NtpTimestamp(u64);

impl NtpTimestamp {
    /// No time is known.
    pub const UNKNOWN: Self = Self(0);

    /// The time as the system's clock has it now.
    #[must_use]
    pub fn now() -> Self {
        Self::from(SystemTime::now())
    }

    /// As it is in a packet.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 8]) -> Self {
        Self(u64::from_be_bytes(bytes))
    }

    #[must_use]
    pub const fn to_bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }

    /// How long after `earlier` this is; negative where it is before it. In seconds, across the end of an era, as long as
    /// the two are less than 68 years apart.
    #[must_use]
    pub fn seconds_since(self, earlier: Self) -> f64 {
        self.0.wrapping_sub(earlier.0).cast_signed() as f64 / 4_294_967_296.0
    }
}

impl From<SystemTime> for NtpTimestamp {
    /// Times before 1970 are taken for 1970.
    fn from(time: SystemTime) -> Self {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let seconds = since.as_secs().wrapping_add(UNIX_EPOCH_SECONDS);
        let fraction = (u64::from(since.subsec_nanos()) << 32) / 1_000_000_000;
        Self(seconds << 32 | fraction)
    }
}

/// A span in NTP's short format: 16 bits of seconds, 16 bits of fractions, 15 us each. Longer ones become the longest.
#[must_use]
pub fn to_short_format(span: Duration) -> [u8; 4] {
    let units = (span.as_nanos() << 16).div_ceil(1_000_000_000);
    u32::try_from(units).unwrap_or(u32::MAX).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_times_are_as_the_rfc_has_them() {
        // RFC 5905, figure 4: 1 January 1970 is 2,208,988,800 in era 0; era 1 begins on 8 February 2036 at 06:28:16.
        assert_eq!(NtpTimestamp::from(UNIX_EPOCH).0 >> 32, 2_208_988_800);
        let era_1 = UNIX_EPOCH + Duration::from_secs(2_085_978_496);
        assert_eq!(NtpTimestamp::from(era_1).0, 0);
        let half = UNIX_EPOCH + Duration::from_millis(500);
        assert_eq!(NtpTimestamp::from(half).0 as u32, 1 << 31);
        let before = NtpTimestamp::from(era_1 - Duration::from_secs(2));
        assert_eq!(NtpTimestamp::from(era_1 + Duration::from_secs(1)).seconds_since(before), 3.0);
    }

    #[test]
    fn a_span_is_rounded_up_and_cut() {
        assert_eq!(to_short_format(Duration::from_secs(1)), [0, 1, 0, 0]);
        assert_eq!(to_short_format(Duration::from_nanos(1)), [0, 0, 0, 1]);
        assert_eq!(to_short_format(Duration::from_secs(1 << 20)), [0xff; 4]);
        assert_eq!(to_short_format(Duration::MAX), [0xff; 4]);
    }

    proptest! {
        #[test]
        fn bytes_round_trip(bytes: [u8; 8]) {
            prop_assert_eq!(NtpTimestamp::from_bytes(bytes).to_bytes(), bytes);
        }

        #[test]
        fn differences_are_those_of_the_clock(at in 0_u64..4_000_000_000, by in 0_u64..1_000_000_000_000) {
            let start = UNIX_EPOCH + Duration::from_secs(at);
            let end = start + Duration::from_nanos(by);
            let seconds = NtpTimestamp::from(end).seconds_since(NtpTimestamp::from(start));
            prop_assert!((seconds - by as f64 / 1e9).abs() < 1e-6, "{} {}", seconds, by);
        }
    }
}
