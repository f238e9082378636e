//! Where and when a result is from.

use std::time::{SystemTime, UNIX_EPOCH};

/// What this host calls itself; none where it has no name.
pub(crate) fn host_name() -> Option<String> {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    (!name.is_empty() && name != "(none)").then_some(name)
}

/// The time, seconds since 1970; none where the clock is before that.
pub(crate) fn unix_seconds() -> Option<u64> {
    SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs())
}
