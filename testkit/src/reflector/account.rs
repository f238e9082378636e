//! The counters of a reflector.

use hdrhistogram::Histogram;

// The longest time from request to reply that the histogram distinguishes, ns.
const LONGEST_NS: u64 = 60_000_000_000;

/// The requests of a reflector, counted by outcome.
///
/// `received == answered + corrupted + dropped + over_capacity + unsent` when the reflector has
/// stopped; while it runs, requests that wait for their reply are in `received` only.
#[derive(Debug, Clone, PartialEq)]
pub struct ReflectorAccount {
    /// Requests taken from the socket.
    pub received: u64,
    /// Requests answered with an unchanged payload.
    pub answered: u64,
    /// Requests whose only reply had one changed byte.
    pub corrupted: u64,
    /// Requests not answered on purpose.
    pub dropped: u64,
    /// Requests not answered because the token bucket was empty.
    pub over_capacity: u64,
    /// Requests whose reply the kernel did not accept.
    pub unsent: u64,
    /// Second replies to requests that were answered.
    pub duplicated: u64,
    /// Pairs of requests of one source whose replies were sent in reverse order.
    pub swapped: u64,
    /// Datagrams for which the socket had no room; they are not in `received`.
    pub overflowed: u64,
    /// The periods in which the reflector was frozen.
    pub frozen: Vec<FrozenSpan>,
    held: Histogram<u64>,
}

/// A period without answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrozenSpan {
    /// Start, ns of `CLOCK_REALTIME`.
    pub began_realtime_ns: u64,
    /// End, ns of `CLOCK_REALTIME`.
    pub ended_realtime_ns: u64,
}

impl ReflectorAccount {
    pub(crate) fn new() -> Self {
        let held = Histogram::new_with_bounds(1, LONGEST_NS, 3)
            .expect("constant bounds: high is more than twice low, and the digits are within 0..=5");
        ReflectorAccount {
            received: 0,
            answered: 0,
            corrupted: 0,
            dropped: 0,
            over_capacity: 0,
            unsent: 0,
            duplicated: 0,
            swapped: 0,
            overflowed: 0,
            frozen: Vec::new(),
            held,
        }
    }

    pub(crate) fn record_delay(&mut self, ns: u64) {
        self.held.saturating_record(ns);
    }

    /// Quantile (0 to 1) of the time, in ns, from the arrival of an answered request in the kernel
    /// to the call that sent the reply. None without answered requests.
    pub fn reply_delay_ns(&self, quantile: f64) -> Option<u64> {
        (!self.held.is_empty()).then(|| self.held.value_at_quantile(quantile).min(self.held.max()))
    }
}
