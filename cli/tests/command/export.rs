//! `linerate export`: by itself, in a lab, and scraped by a real Prometheus.

mod alone;
mod lab;
mod prometheus;
mod rules;
mod scraped;

use std::net::SocketAddr;

/// The address in the line that `linerate export` prints when it serves.
fn metrics_address(line: &str) -> Option<SocketAddr> {
    line.strip_prefix("serving metrics on http://")?.strip_suffix("/metrics")?.parse().ok()
}
