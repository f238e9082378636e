//! Services with faults, between real sockets and hosts.

mod faults;
mod xdp;

use std::time::Duration;

/// Only a lost datagram takes longer.
const PATIENCE: Duration = Duration::from_secs(5);
