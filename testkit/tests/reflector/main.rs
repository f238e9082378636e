//! Services with faults, between real sockets and hosts.

mod faults;
mod xdp;

use std::time::Duration;

/// Only a lost datagram takes longer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Prints that a test cannot run here, past the capture of the test runner.
fn skip(test: &str, why: impl std::fmt::Display) {
    let _ = std::io::Write::write_all(&mut std::io::stderr(), format!("\nSKIP {test}: {why}\n").as_bytes());
}
