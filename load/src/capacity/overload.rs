//! Goodput above capacity.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::GeneratorError;
use crate::generator::{Generator, LoadSlot, MAX_RATE};
use crate::outcome::{SendMethod, SlotOutcome};
use linerate_host::Known;

// Below this share of the planned requests, or of the replies, the figure does not count.
const LEAST_OFFERED: f64 = 0.95;

/// Goodput at a multiple of capacity.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OverloadResult {
    /// The offered load as a multiple of capacity.
    pub factor: f64,
    /// The rate that left this host.
    pub offered_per_second: f64,
    /// The send method of the requests: live frames only if the generator could not offer the rate
    /// otherwise.
    #[serde(default)]
    pub send_method: SendMethod,
    /// Goodput as a share of capacity; unknown if the generator could not offer the overload, or if
    /// its own sockets dropped more than 5 % of the replies.
    pub goodput_ratio: Known<f64>,
}

/// Offers multiples of `capacity` (transactions per second), each for `slot`, and reports the share
/// of capacity that is still answered: 1 if overload does not hurt the service, 0 for a livelock.
/// `drain` is the longest wait for stragglers after each slot.
///
/// # Errors
///
/// A generator that cannot run a slot, or a slot that was cut short.
pub fn overload(
    generator: &mut dyn Generator,
    capacity: f64,
    factors: &[f64],
    slot: Duration,
    drain: Duration,
) -> Result<Vec<OverloadResult>, GeneratorError> {
    factors.iter().map(|factor| overload_by(generator, capacity, *factor, slot, drain)).collect()
}

fn overload_by(
    generator: &mut dyn Generator,
    capacity: f64,
    factor: f64,
    slot: Duration,
    drain: Duration,
) -> Result<OverloadResult, GeneratorError> {
    let per_second = capacity * factor;
    let not_offered = |why: String| {
        let (send_method, goodput_ratio) = (SendMethod::default(), Known::unknown(why));
        Ok(OverloadResult { factor, offered_per_second: 0.0, send_method, goodput_ratio })
    };
    if !(capacity > 0.0 && capacity.is_finite()) {
        return not_offered("capacity is not known, so there is nothing to exceed".to_owned());
    }
    if !(per_second > 0.0 && per_second <= MAX_RATE) {
        return not_offered(format!("{factor} x capacity is beyond any generator"));
    }
    let slot = LoadSlot { drain, ..LoadSlot::rate(per_second, slot) };
    // A queue of this host may drop requests that were sent.
    let offered = |outcome: &SlotOutcome| {
        let drop_ratio = outcome.self_watch.send_drops as f64 / outcome.sent.max(1) as f64;
        outcome.offered_per_second * (1.0 - drop_ratio)
    };
    let falls_short = |outcome: &SlotOutcome| offered(outcome) < per_second * LEAST_OFFERED;
    let mut outcome = generator.run(&slot)?;
    if falls_short(&outcome) && outcome.self_watch.send_method == SendMethod::Clones {
        outcome = generator.run(&LoadSlot { live_frames: true, ..slot })?;
    }
    if outcome.duration < slot.duration {
        return Err(GeneratorError::Cancelled);
    }
    let offered_per_second = offered(&outcome);
    let reply_drops = outcome.self_watch.receive_drops;
    let received_ratio = outcome.answered as f64 / (outcome.answered + reply_drops).max(1) as f64;
    let goodput_ratio = if falls_short(&outcome) {
        let offered_percent = offered_per_second / per_second * 100.0;
        Known::unknown(format!(
            "the generator offered {offered_per_second:.0} requests/s, {offered_percent:.0} % of {factor} x capacity"
        ))
    } else if reply_drops > 0 && received_ratio < LEAST_OFFERED {
        Known::unknown(format!("the generator's own sockets dropped {reply_drops} replies"))
    } else {
        Known::Value(outcome.answered_per_second / capacity)
    };
    let send_method = outcome.self_watch.send_method;
    Ok(OverloadResult { factor, offered_per_second, send_method, goodput_ratio })
}
