//! Test support: servers with configurable faults, and fixture hosts.

#![deny(unsafe_code)]

pub mod fixture;
pub mod reflector;
mod sys;
mod trials;

pub use sys::{ALLOCATIONS, CountingAllocator, LIVE_BYTES, PEAK_BYTES};
pub use trials::{NamedTest, TrialResult, run_tests};

/// Prints that a test is skipped, even if the test runner captures output.
pub fn skip(test: &str, why: impl std::fmt::Display) {
    let line = format!("\nSKIP {test}: {}\n", why.to_string().trim());
    // `eprintln!` would be captured. One write, so that lines of parallel tests do not mix.
    let _ = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
}
