//! Several independent searches and their joint result.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::search::{lowest_rate, search_with_method};
use super::{CapacitySample, SearchEnd, SearchOptions, search};
use crate::error::GeneratorError;
use crate::generator::Generator;
use crate::latency::Latency;
use crate::outcome::{BoundReason, CodeCount, SendMethod};
use crate::report::add_codes;
use crate::stats::{self, ConfidenceInterval};

// The search for the neighbourhood stops when a rate holds and a rate this much higher does not.
const COARSE: f64 = 1.15;

// The bracket of the fine searches: this factor below and above the coarse result.
const NEIGHBOURHOOD: f64 = 1.05;

/// Capacity by several searches.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RepeatedCapacity {
    /// Transactions per second: the median of the searches, with its 95 % interval if there are
    /// three or more.
    pub transactions_per_second: ConfidenceInterval,
    /// The difference between highest and lowest result, as a share of the median.
    pub spread_ratio: f64,
    /// Share of lost requests at that rate: the median of the searches.
    pub loss_ratio: f64,
    /// Latency at that rate, over all searches.
    pub latency_ns: Latency,
    /// First replies at that rate by their code, over all searches.
    #[serde(default)]
    pub codes: Vec<CodeCount>,
    /// The send method of all searches.
    pub send_method: SendMethod,
    /// Whether the generator was the limit in a search, so that capacity is a lower bound.
    pub generator_bound: bool,
    /// Why, in the first such search.
    pub bound_because: Vec<BoundReason>,
    /// Searches whose result was confirmed.
    pub confirmed: usize,
    /// The coarse search.
    pub neighbourhood: CapacitySample,
    /// The fine searches, in order.
    pub searches: Vec<CapacitySample>,
}

impl RepeatedCapacity {
    /// Whether the search was cancelled before any rate held, which shows nothing about the server.
    pub fn is_unknown(&self) -> bool {
        self.transactions_per_second.median == 0.0 && self.neighbourhood.ended == SearchEnd::Cancelled
    }
}

/// Searches `times` times for the highest paced rate that holds: first once coarsely, then each
/// time independently and with the resolution of `options`. [`SearchOptions::budget`] is the time
/// for all searches together; when it is over, the remaining searches are left out.
/// [`SearchOptions::bracket`] applies to the coarse search only.
pub fn search_repeatedly(
    generator: &mut dyn Generator,
    options: &SearchOptions<'_>,
    times: u32,
) -> Result<RepeatedCapacity, GeneratorError> {
    let began = Instant::now();
    let mut neighbourhood = search(generator, &coarse_options(options))?;
    // Its slots are short, so its lowest rate is higher than that of the fine searches.
    let has_answers = neighbourhood.slots.iter().any(|probe| probe.answered > 0);
    if neighbourhood.ended == SearchEnd::NothingHolds && has_answers {
        let slow_options = SearchOptions {
            slot: options.slot,
            lead_in: options.lead_in,
            start_per_second: lowest_rate(options),
            budget: options.budget.saturating_sub(began.elapsed()),
            bracket: None,
            ..coarse_options(options)
        };
        let tried_slots = neighbourhood.slots;
        neighbourhood = search_with_method(generator, &slow_options, false, 1)?;
        neighbourhood.slots.splice(0..0, tried_slots);
    }
    let coarse_rate = neighbourhood.transactions_per_second;
    let live_frames = neighbourhood.send_method == SendMethod::LiveFrames;
    let mut searches = Vec::new();
    for index in 0..times {
        let remaining_budget = options.budget.saturating_sub(began.elapsed());
        let is_cancelled = options.is_cancelled() || neighbourhood.ended == SearchEnd::Cancelled;
        if coarse_rate <= 0.0 || is_cancelled || (index > 0 && remaining_budget.is_zero()) {
            break;
        }
        let fine_options = SearchOptions {
            bracket: Some((coarse_rate / NEIGHBOURHOOD, coarse_rate * NEIGHBOURHOOD)),
            budget: remaining_budget / (times - index),
            ..*options
        };
        let sample = search_with_method(generator, &fine_options, live_frames, 1)?;
        // A search that ran out of time without a result proves nothing; the neighbourhood is
        // known.
        let is_cut_short = matches!(sample.ended, SearchEnd::Cancelled | SearchEnd::OutOfTime);
        if !is_cut_short || sample.transactions_per_second > 0.0 {
            searches.push(sample);
        }
    }
    Ok(summarize(neighbourhood, searches))
}

// Options that find the neighbourhood quickly: short slots, wide steps.
fn coarse_options<'a>(options: &SearchOptions<'a>) -> SearchOptions<'a> {
    SearchOptions {
        slot: (options.slot / 4).max(Duration::from_millis(100).min(options.slot)),
        lead_in: options.lead_in / 4,
        growth: options.growth.max(crate::outcome::GROWTH),
        resolution: options.resolution.max(COARSE),
        confirm: 1,
        confirm_stretch: 1,
        ..*options
    }
}

fn summarize(neighbourhood: CapacitySample, searches: Vec<CapacitySample>) -> RepeatedCapacity {
    // Searches that were cut short count only without other results, and the coarse search only
    // without any.
    let confirmed_searches = || searches.iter().filter(|sample| sample.ended == SearchEnd::Confirmed);
    let counted_searches: Vec<&CapacitySample> = match confirmed_searches().next() {
        Some(_) => confirmed_searches().collect(),
        None if searches.is_empty() => vec![&neighbourhood],
        None => searches.iter().collect(),
    };
    let rates: Vec<f64> = counted_searches.iter().map(|sample| sample.transactions_per_second).collect();
    let losses: Vec<f64> = counted_searches.iter().map(|sample| sample.loss_ratio).collect();
    let median = stats::median(&rates).unwrap_or(0.0);
    let highest = rates.iter().copied().fold(0.0, f64::max);
    let lowest = rates.iter().copied().fold(f64::INFINITY, f64::min);
    let bound_search = counted_searches.iter().find(|sample| sample.generator_bound);
    let mut latency_ns = Latency::new();
    let mut codes = Vec::new();
    for sample in &counted_searches {
        latency_ns.merge(&sample.latency_ns);
        add_codes(&mut codes, &sample.codes);
    }
    let median_only = ConfidenceInterval { median, low: None, high: None, samples: rates.len() };
    RepeatedCapacity {
        // The rates are finite and at least one exists, so there is no error to report.
        transactions_per_second: stats::interval(&rates).unwrap_or(median_only),
        spread_ratio: if median > 0.0 { (highest - lowest) / median } else { 0.0 },
        loss_ratio: stats::median(&losses).unwrap_or(1.0),
        latency_ns,
        codes,
        send_method: neighbourhood.send_method,
        generator_bound: bound_search.is_some(),
        bound_because: bound_search.map_or_else(Vec::new, |sample| sample.bound_because.clone()),
        confirmed: confirmed_searches().count(),
        neighbourhood,
        searches,
    }
}
