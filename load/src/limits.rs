//! Limits of the generators.

use std::time::Duration;

/// The most outstanding requests a flow may have in window mode.
pub const MAX_WINDOW: u32 = 1 << 16;

/// The most requests sent by one system call.
pub const MAX_BURST: usize = 64;

/// The shortest interval that is accounted for.
pub const LEAST_INTERVAL: Duration = Duration::from_millis(10);
