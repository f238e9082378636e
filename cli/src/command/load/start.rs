//! `--start-at`: the start time of the load.

use std::str::FromStr;
use std::time::{Duration, SystemTime};

use jiff::civil::Time;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

use crate::quantity;

/// Start time of the load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StartAt {
    /// This time after now.
    In(Duration),
    /// At this time of day, today.
    Today(Time),
    /// At this moment.
    At(Timestamp),
}

/// A start further in the future is treated as a mistake.
const FURTHEST: Duration = Duration::from_hours(24);

impl FromStr for StartAt {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let syntax_error = || {
            format!(
                "'{text}' is no time such as +5s, 14:30:00, 2026-03-01T14:30:00Z or unix seconds like 1772375400"
            )
        };
        if let Some(delay) = text.strip_prefix('+') {
            return quantity::parse_duration(delay).map(StartAt::In).map_err(|_| syntax_error());
        }
        if let Ok(seconds) = text.parse::<f64>() {
            let nanoseconds = (seconds * 1e9).round();
            let timestamp = Timestamp::from_nanosecond(nanoseconds as i128).map_err(|_| syntax_error())?;
            return if nanoseconds.is_finite() { Ok(StartAt::At(timestamp)) } else { Err(syntax_error()) };
        }
        if let Ok(timestamp) = text.parse::<Timestamp>() {
            return Ok(StartAt::At(timestamp));
        }
        Time::strptime("%H:%M:%S", text)
            .or_else(|_| Time::strptime("%H:%M", text))
            .map(StartAt::Today)
            .map_err(|_| syntax_error())
    }
}

impl StartAt {
    // The start, ns of `CLOCK_REALTIME`; an error if it is past or more than a day ahead.
    pub(crate) fn realtime_ns(self) -> Result<u64, String> {
        self.realtime_ns_after(&Zoned::now())
    }

    fn realtime_ns_after(self, now: &Zoned) -> Result<u64, String> {
        let moment = match self {
            StartAt::In(span) => SystemTime::from(now.timestamp())
                .checked_add(span)
                .and_then(|time| Timestamp::try_from(time).ok())
                .ok_or_else(|| "--start-at: beyond all calendars".to_owned())?,
            StartAt::Today(time) => now
                .date()
                .to_datetime(time)
                .to_zoned(now.time_zone().clone())
                .map_err(|error| format!("--start-at: {error}"))?
                .timestamp(),
            StartAt::At(moment) => moment,
        };
        let moment_text = moment.to_zoned(TimeZone::UTC).strftime("%Y-%m-%d %H:%M:%S UTC");
        match Duration::try_from(moment.duration_since(now.timestamp())) {
            Err(_) => Err(format!("--start-at: {moment_text} is past; name a time to come, or +5s")),
            Ok(delay) if delay > FURTHEST => {
                Err(format!("--start-at: {moment_text} is more than a day ahead"))
            }
            Ok(_) => u64::try_from(moment.as_nanosecond())
                .map_err(|_| format!("--start-at: {moment_text} is beyond this clock")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Zoned {
        "2026-03-01T14:00:00+01:00[+01:00]".parse().expect("a time")
    }

    fn seconds(text: &str) -> Result<u64, String> {
        text.parse::<StartAt>()?.realtime_ns_after(&now()).map(|ns| ns / 1_000_000_000)
    }

    #[test]
    fn all_start_time_formats_parse_to_the_same_moment() {
        let moment = now().timestamp().as_second() as u64 + 90;
        for text in
            ["+90s", "14:01:30", "2026-03-01T13:01:30Z", "2026-03-01T14:01:30+01:00", &moment.to_string()]
        {
            assert_eq!(seconds(text), Ok(moment), "{text}");
        }
    }

    #[test]
    fn past_and_far_future_start_times_are_refused() {
        for text in ["13:59:59", "2026-03-01T13:00:00+01:00", "1", "0", "-5"] {
            assert!(seconds(text).expect_err(text).contains("is past"), "{text}");
        }
        for text in ["+90000s", "2027-03-01T13:00:00Z", "99999999999"] {
            assert!(seconds(text).expect_err(text).contains("more than a day"), "{text}");
        }
    }

    #[test]
    fn invalid_start_times_are_refused() {
        for text in ["", "soon", "+", "+5", "25:00:00", "14:60", "NaN", "inf", "1e300"] {
            assert!(text.parse::<StartAt>().is_err(), "{text}");
        }
    }
}
