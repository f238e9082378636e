//! The search for the highest paced rate that holds, and the goodput above it.
//!
//! A rate *holds* when few enough requests are lost, no queue grows while it lasts, and the
//! generator was able to offer it. Capacity is the highest rate that holds, found by search and
//! confirmed by repeats. Throughput of an unpaced flood does not measure capacity: above capacity
//! many servers answer fewer requests, down to none.

mod overload;
mod probe;
mod repeated_search;
mod search;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::GeneratorError;
use crate::generator::{MAX_RATE, check_duration};
use crate::latency::Latency;
use crate::outcome::{BoundReason, CodeCount, GROWTH, SendMethod};

pub use overload::{OverloadResult, overload};
pub use probe::{ProbeResult, ProbeVerdict};
pub use repeated_search::{RepeatedCapacity, search_repeatedly};
pub use search::search;

/// Options of a search.
#[derive(Clone, Copy)]
pub struct SearchOptions<'a> {
    /// The greatest share of lost requests at which a rate still holds; 0.001 by default.
    pub max_loss: f64,
    /// The highest 99th percentile of latency at which a rate still holds; not judged by default.
    pub max_p99: Option<Duration>,
    /// The growth of latency within a slot, as a share of it, from which a queue counts as growing;
    /// 0.02 by default. Half of the resolution suits a finer search.
    pub growth: f64,
    /// How long each rate is offered; 250 ms by default.
    pub slot: Duration,
    /// Time for which the rate is offered before the slot, without a pause and without being
    /// judged; 0 by default. A service that allows bursts hides an overload until the allowance is
    /// used up.
    pub lead_in: Duration,
    /// Factor by which slot and lead-in are longer when a rate is confirmed; 1 by default. A burst
    /// allowance hides less of an overload in a longer slot.
    pub confirm_stretch: u32,
    /// The longest wait for stragglers after each slot; 500 ms by default. A delayed service needs
    /// it to work off its backlog, which would spoil the next slot.
    pub drain: Duration,
    /// Start of a search without a bracket, requests per second; 1000 by default.
    pub start_per_second: f64,
    /// The highest rate to offer; if it holds, the search ends. No limit by default.
    pub most_per_second: f64,
    /// The expected capacity, requests per second: a rate that should hold and a rate that should
    /// not.
    /// A wrong bracket costs time, not correctness.
    pub bracket: Option<(f64, f64)>,
    /// The search ends when a rate holds and a rate higher by this factor does not; a ratio over 1,
    /// 1.04 by default.
    pub resolution: f64,
    /// How often the highest holding rate must hold again; 2 by default.
    pub confirm: u32,
    /// Number of a rate's failures to ignore if the machine may be the cause: many requests left
    /// late, or the loss was in a few of the slot's intervals only. A delayed machine loses much in
    /// one interval; an overloaded service loses a little in all. Intervals require a lead-in,
    /// whose length divides the slot. 0 by default.
    pub excused: u32,
    /// The longest time of a search; 30 s by default. Then the search returns its result so far.
    /// Without any rate that held, up to four times as long.
    pub budget: Duration,
    /// Ends the search when set; the result so far is returned.
    pub cancel: Option<&'a AtomicBool>,
    /// Called before and after each slot.
    pub observer: Option<&'a dyn Fn(SearchEvent<'_>)>,
}

/// An event that a search reports to its observer.
#[derive(Debug, Clone, Copy)]
pub enum SearchEvent<'a> {
    /// A rate is about to be offered.
    Offering {
        per_second: f64,
        /// With the lead-in, without the drain.
        slot: Duration,
    },
    Offered(&'a ProbeResult),
}

impl Default for SearchOptions<'_> {
    fn default() -> Self {
        SearchOptions {
            max_loss: 0.001,
            max_p99: None,
            growth: GROWTH,
            slot: Duration::from_millis(250),
            lead_in: Duration::ZERO,
            confirm_stretch: 1,
            drain: Duration::from_millis(500),
            start_per_second: 1_000.0,
            most_per_second: MAX_RATE,
            bracket: None,
            resolution: 1.04,
            confirm: 2,
            excused: 0,
            budget: Duration::from_secs(30),
            cancel: None,
            observer: None,
        }
    }
}

impl SearchOptions<'_> {
    fn check(&self) -> Result<(), GeneratorError> {
        let check = |option: &str, value: f64, is_valid: bool, range: &str| match is_valid {
            true => Ok(()),
            false => Err(GeneratorError::option(option, &format!("{value} is not {range}"))),
        };
        let Self { max_loss, resolution, start_per_second, most_per_second, growth, .. } = *self;
        check("max_loss", max_loss, (0.0..1.0).contains(&max_loss), "a share from 0 to below 1")?;
        let is_ratio = resolution > 1.0 && resolution <= 4.0;
        check("resolution", resolution, is_ratio, "a ratio over 1 and up to 4")?;
        let is_rate = start_per_second > 0.0 && start_per_second.is_finite();
        check("start_per_second", start_per_second, is_rate, "a positive rate")?;
        let is_rate = most_per_second > 0.0 && most_per_second <= MAX_RATE;
        check("most_per_second", most_per_second, is_rate, &format!("a rate up to {MAX_RATE}"))?;
        check("growth", growth, growth > 0.0 && growth < 1.0, "a share between 0 and 1")?;
        if self.confirm_stretch == 0 {
            return Err(GeneratorError::option("confirm_stretch", "0 leaves nothing to confirm in"));
        }
        check_duration(self.slot)?;
        match self.bracket {
            Some((low, high)) if !(low > 0.0 && low < high && high.is_finite()) => {
                let problem = format!("{low} to {high} is not a range of positive rates");
                Err(GeneratorError::option("bracket", &problem))
            }
            _ => Ok(()),
        }
    }

    fn is_cancelled(&self) -> bool {
        self.cancel.is_some_and(|flag| flag.load(Ordering::Relaxed))
    }

    fn notify_observer(&self, event: SearchEvent<'_>) {
        if let Some(observer) = self.observer {
            observer(event);
        }
    }
}

/// The result of a search.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CapacitySample {
    /// Capacity: replies per second at the highest rate that holds, the median of the confirming
    /// slots; 0 if none does. Every answer counts, because at a rate that holds no answer is late.
    pub transactions_per_second: f64,
    /// The offered rate.
    pub offered_per_second: f64,
    /// Share of lost requests at that rate, over all confirming slots; 1 if no rate holds.
    pub loss_ratio: f64,
    /// Latency at that rate, over all confirming slots.
    pub latency_ns: Latency,
    /// First replies by their code, of these slots and their lead-ins.
    #[serde(default)]
    pub codes: Vec<CodeCount>,
    /// Share of requests that left more than 1 ms late because of the generator. Latency includes
    /// that delay.
    pub late_ratio: f64,
    /// The send method of all requests.
    pub send_method: SendMethod,
    /// Whether the generator was or may have been the limit, so that capacity is a lower bound.
    pub generator_bound: bool,
    /// Why: the lowest rate that failed was never offered on schedule, or its requests left by
    /// another send method, or the search ended before one failed.
    pub bound_because: Vec<BoundReason>,
    /// How the search ended.
    pub ended: SearchEnd,
    /// Every slot, in order.
    pub slots: Vec<ProbeResult>,
}

/// How a search ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SearchEnd {
    /// A rate holds and was confirmed, and one a little higher does not.
    Confirmed,
    /// Even the lowest rate does not hold.
    NothingHolds,
    /// The time was over; the result is the best rate that had held.
    OutOfTime,
    /// It was cancelled; the result is the best rate that had held.
    Cancelled,
}
