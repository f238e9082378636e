//! The parts of a packet's delay.

use serde::{Deserialize, Serialize};

use super::speed::LinkSpeed;

// The speed of light in fibre, metres per second: two thirds of that in vacuum.
const FIBRE_METRES_PER_SECOND: f64 = 2e8;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DelayPath {
    /// Length of the fibre, m.
    pub distance_metres: f64,
    /// Time to process it, ns.
    pub processing_ns: f64,
    /// Datagrams of the same size that wait for the link before it.
    pub queued: u64,
}

/// The four components of one-way delay, and their sum.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct DelayParts {
    pub transmission_ns: f64,
    pub propagation_ns: f64,
    pub processing_ns: f64,
    /// Transmission time of the packets queued before it.
    pub queueing_ns: f64,
    pub total_ns: f64,
}

impl DelayParts {
    pub(super) fn new(wire_bits: u64, link: LinkSpeed, path: &DelayPath) -> Self {
        let transmission_ns = wire_bits as f64 / link.bits_per_second() as f64 * 1e9;
        let propagation_ns = path.distance_metres / FIBRE_METRES_PER_SECOND * 1e9;
        let queueing_ns = transmission_ns * path.queued as f64;
        DelayParts {
            transmission_ns,
            propagation_ns,
            processing_ns: path.processing_ns,
            queueing_ns,
            total_ns: transmission_ns + propagation_ns + path.processing_ns + queueing_ns,
        }
    }
}
