//! The search for the highest rate that holds.

use std::time::{Duration, Instant};

use super::{CapacitySample, ProbeResult, ProbeVerdict, SearchEnd, SearchEvent, SearchOptions};
use crate::error::GeneratorError;
use crate::generator::{Generator, LEAST_INTERVAL, LoadSlot};
use crate::latency::Latency;
use crate::outcome::{BoundReason, SendMethod};
use crate::report::add_codes;
use crate::stats;

// With fewer requests in a slot, no conclusion is possible.
const FEWEST_REQUESTS: f64 = 20.0;

// Without a bracket: the factor from one rate to the next while all rates hold, or no rate does.
const STRIDE: f64 = 2.0;

// Beyond a bracket that proved wrong: the first factor, whose logarithm doubles with each step up
// to [`STRIDE`].
const FIRST_WIDENING: f64 = 1.2;

// The factor while there is no reply at all.
const SILENT_STRIDE: f64 = 10.0;

// A rate equal to the goodput above capacity would leave no room for chance, so the search tries
// this share of it, or more if its resolution is finer.
const BELOW_GOODPUT: f64 = 0.985;

// Without any rate that held, the search goes on for this many budgets.
const PATIENCE: u32 = 4;

// Failures that disprove a rate if the generator was punctual.
const FAILURES: u32 = 2;

// Failures that disprove a rate in any case.
const FAILURES_WHEN_LATE: u32 = 3;

// After this many consecutive rates that held next to a failed rate, that rate is tried again.
const HOLDS_IN_DOUBT: u32 = 3;

// Length of a slot that only shows the send method.
const TRIAL: Duration = Duration::from_millis(2);

// A lead-in is divided into this many intervals, and the slot after it into intervals of the same
// length.
const INTERVALS_A_LEAD_IN: u32 = 5;

/// Searches for the highest paced rate that holds.
///
/// Without a bracket the rate doubles from [`SearchOptions::start_per_second`] until it does not
/// hold. Within a bracket, given or found, the next rate is the one that the goodput above capacity
/// suggests, otherwise the middle on a logarithmic scale. A rate that does not hold is tried once
/// more, because a machine may be disturbed, and twice if the generator itself was delayed. A
/// failed rate is tried again after several consecutive rates next to it held. The result must then
/// hold again as often as [`SearchOptions::confirm`] requires; if it does not, the next lower rate
/// is tried.
///
/// All requests of a search leave by one send method, so that a request costs the service the same
/// at all rates. If clones are too slow for the service, and live frames are available, the search
/// is repeated with live frames; the result with clones stays, as a lower bound, if it is higher.
///
/// # Errors
/// Options out of range, or a generator that cannot run a slot. A service that never answers is no
/// error: its capacity is 0. A cancelled search is no error either.
pub fn search(
    generator: &mut dyn Generator,
    options: &SearchOptions<'_>,
) -> Result<CapacitySample, GeneratorError> {
    let began = Instant::now();
    let first_result = search_with_method(generator, options, false, PATIENCE)?;
    // Late requests come at any rate on a busy machine.
    let offered_too_little = |reason: &BoundReason| matches!(reason, BoundReason::OfferedTooLittle { .. });
    let uses_clones = first_result.slots.last().is_some_and(|probe| probe.send_method == SendMethod::Clones);
    if !uses_clones
        || !first_result.bound_because.iter().any(offered_too_little)
        || !sends_live_frames(generator)?
    {
        return Ok(first_result);
    }
    let low = first_result.offered_per_second;
    let bracket = (low > 0.0).then_some((low, low * STRIDE));
    let budget = options.budget.saturating_sub(began.elapsed());
    let options = SearchOptions { bracket: bracket.or(options.bracket), budget, ..*options };
    let frame_result = search_with_method(generator, &options, true, 1)?;
    if frame_result.transactions_per_second > first_result.transactions_per_second {
        Ok(frame_result)
    } else {
        Ok(first_result)
    }
}

// Whether paced requests leave as live frames if requested. Only a short slot shows it.
fn sends_live_frames(generator: &mut dyn Generator) -> Result<bool, GeneratorError> {
    let trial = LoadSlot {
        live_frames: true,
        drain: Duration::from_millis(1),
        ..LoadSlot::rate(FEWEST_REQUESTS / TRIAL.as_secs_f64(), TRIAL)
    };
    match generator.run(&trial) {
        Ok(outcome) => Ok(outcome.self_watch.send_method == SendMethod::LiveFrames),
        Err(GeneratorError::Cancelled) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The lowest rate that a search offers, requests per second.
pub(super) fn lowest_rate(options: &SearchOptions<'_>) -> f64 {
    FEWEST_REQUESTS / options.slot.as_secs_f64()
}

/// Searches with a given send method. While no rate has held, it goes on for `patience` budgets.
pub(super) fn search_with_method(
    generator: &mut dyn Generator,
    options: &SearchOptions<'_>,
    live_frames: bool,
    patience: u32,
) -> Result<CapacitySample, GeneratorError> {
    options.check()?;
    let mut search = CapacitySearch {
        generator,
        options,
        live_frames,
        patience,
        began: Instant::now(),
        slots: Vec::new(),
        holds: None,
        fails: None,
        goodput: 0.0,
        widening: FIRST_WIDENING,
        holds_in_a_row: 0,
        doubted: false,
    };
    let lowest = lowest_rate(options);
    let ended = match search.narrow_bracket(lowest)? {
        Some(ended) => ended,
        None => search.confirm(lowest)?,
    };
    Ok(search.result(ended))
}

struct CapacitySearch<'a, 'o> {
    generator: &'a mut dyn Generator,
    options: &'a SearchOptions<'o>,
    /// Whether requests leave as live frames, if possible.
    live_frames: bool,
    patience: u32,
    began: Instant,
    slots: Vec<ProbeResult>,
    /// The highest rate that held, and the slots in which it did, as indices.
    holds: Option<(f64, Vec<usize>)>,
    /// The lowest rate that did not hold.
    fails: Option<RateFailure>,
    // The best goodput of the slots at that rate: the capacity of the service, unless overload
    // reduces it.
    goodput: f64,
    widening: f64,
    // Rates that held since a rate failed.
    holds_in_a_row: u32,
    /// Whether a rate held that had failed before.
    doubted: bool,
}

struct RateFailure {
    rate: f64,
    verdict: ProbeVerdict,
    // Whether one attempt was on schedule, so that the service is the cause; otherwise, why none
    // was.
    on_schedule: bool,
    bound_because: Vec<BoundReason>,
    send_method: SendMethod,
}

enum RateAttempt {
    /// It held, in the slot with this index.
    Held(usize),
    Failed(RateFailure),
    /// The search ended before the answer was known.
    Ended(SearchEnd),
}

impl CapacitySearch<'_, '_> {
    /// Narrows the gap between a holding and a failing rate. Returns early if the search ends.
    fn narrow_bracket(&mut self, lowest: f64) -> Result<Option<SearchEnd>, GeneratorError> {
        while let Some(rate) = self.next_rate(lowest) {
            match self.attempt_rate(rate, 1)? {
                RateAttempt::Ended(ended) => return Ok(Some(ended)),
                RateAttempt::Held(slot) => {
                    self.holds = Some((rate, vec![slot]));
                    self.holds_in_a_row += 1;
                    // It failed before and holds now, so the earlier failure was not the service's.
                    self.doubted |= self.fails.as_ref().is_some_and(|fails| fails.rate <= rate);
                    self.fails = self.fails.take().filter(|fails| fails.rate > rate);
                }
                RateAttempt::Failed(failure) => {
                    self.fails = Some(failure);
                    self.goodput = self.best_goodput(rate);
                    self.holds_in_a_row = 0;
                }
            }
        }
        Ok(self.holds.is_none().then_some(SearchEnd::NothingHolds))
    }

    /// The next rate to try; `None` if the search is complete.
    fn next_rate(&mut self, lowest: f64) -> Option<f64> {
        let (resolution, max_rate) = (self.options.resolution, self.options.most_per_second);
        let holding_rate = self.holds.as_ref().map(|(rate, _)| *rate);
        if let Some(rate) = self.rate_by_goodput(holding_rate, lowest) {
            return Some(rate);
        }
        let failure = self.fails.as_ref().map(|failure| (failure.rate, failure.verdict));
        match (holding_rate, failure, self.options.bracket) {
            (Some(low), Some((high, _)), _) if high / low > resolution => Some((low * high).sqrt()),
            (Some(_), Some((high, _)), _) => (self.holds_in_a_row >= HOLDS_IN_DOUBT).then_some(high),
            (None, None, None) => Some(self.options.start_per_second.max(lowest).min(max_rate)),
            (None, None, Some((low, high))) => Some((low * high).sqrt().max(lowest).min(max_rate)),
            (Some(low), None, _) if low >= max_rate => None,
            (Some(low), None, Some((_, high))) if low < high => {
                Some(if high / low > resolution { (low * high).sqrt() } else { high }.min(max_rate))
            }
            // Above the bracket, or above a rate that failed by mistake.
            (Some(low), None, bracket) if bracket.is_some() || self.doubted => {
                Some((low * self.widen()).min(max_rate))
            }
            (Some(low), None, _) => Some((low * STRIDE).min(max_rate)),
            (None, Some((high, _)), _) if high <= lowest => None,
            (None, Some((high, ProbeVerdict::NothingAnswered)), _) => {
                Some((high / SILENT_STRIDE).max(lowest))
            }
            (None, Some((high, _)), Some((low, _))) if high > low => {
                Some(if high / low > resolution { (low * high).sqrt() } else { low }.max(lowest))
            }
            (None, Some((high, _)), Some(_)) => Some((high / self.widen()).max(lowest)),
            (None, Some((high, _)), None) => Some((high / STRIDE).max(lowest)),
        }
    }

    // The rate that the goodput above capacity suggests, if it lies between the highest rate that
    // holds and the lowest that does not.
    fn rate_by_goodput(&mut self, holds: Option<f64>, lowest: f64) -> Option<f64> {
        let high = self.fails.as_ref()?.rate;
        // Once only: a service that overload hurts suggests too low a rate, and is then searched by
        // halves.
        let rate =
            std::mem::take(&mut self.goodput) * BELOW_GOODPUT.max(1.0 / self.options.resolution.sqrt());
        let margin = self.options.resolution.sqrt();
        let low = holds.map_or(lowest, |low| low * margin);
        (rate > low && rate < high / margin).then_some(rate)
    }

    fn widen(&mut self) -> f64 {
        let step = self.widening;
        self.widening = (step * step).min(STRIDE);
        step
    }

    /// Repeats the highest holding rate to confirm it, and steps down while it fails.
    fn confirm(&mut self, lowest: f64) -> Result<SearchEnd, GeneratorError> {
        while let Some((rate, mut slots)) = self.holds.take() {
            let mut confirm_failure = None;
            for _ in 0..self.options.confirm {
                match self.attempt_rate(rate, self.options.confirm_stretch)? {
                    RateAttempt::Held(slot) => slots.push(slot),
                    RateAttempt::Failed(failure) => {
                        confirm_failure = Some(failure);
                        break;
                    }
                    RateAttempt::Ended(ended) => {
                        self.holds = Some((rate, slots));
                        return Ok(ended);
                    }
                }
            }
            let Some(failure) = confirm_failure else {
                self.holds = Some((rate, slots));
                return Ok(SearchEnd::Confirmed);
            };
            self.fails = Some(failure);
            let mut lower_rate = rate / self.options.resolution;
            while lower_rate >= lowest && self.holds.is_none() {
                match self.attempt_rate(lower_rate, 1)? {
                    RateAttempt::Held(slot) => self.holds = Some((lower_rate, vec![slot])),
                    RateAttempt::Failed(failure) => self.fails = Some(failure),
                    RateAttempt::Ended(ended) => {
                        self.holds = self.best_below(lower_rate);
                        return Ok(ended);
                    }
                }
                lower_rate /= self.options.resolution;
            }
        }
        Ok(SearchEnd::NothingHolds)
    }

    /// Offers a rate, and repeats it if it did not hold. `stretch`: as [`SearchOptions::confirm_stretch`].
    fn attempt_rate(&mut self, rate: f64, stretch: u32) -> Result<RateAttempt, GeneratorError> {
        let (mut failures, mut punctual_failures, mut excused_count) = (0, 0, 0);
        let mut on_schedule = false;
        loop {
            if let Some(ended) = self.search_end() {
                return Ok(RateAttempt::Ended(ended));
            }
            let Some(verdict) = self.offer_rate(rate, stretch)? else {
                return Ok(RateAttempt::Ended(SearchEnd::Cancelled));
            };
            if verdict == ProbeVerdict::Holds {
                return Ok(RateAttempt::Held(self.slots.len() - 1));
            }
            let Some(last_probe) = self.slots.last() else { continue };
            if excused_count < self.options.excused && last_probe.is_excusable(self.options.max_loss) {
                excused_count += 1;
                continue;
            }
            failures += 1;
            punctual_failures += u32::from(last_probe.is_punctual());
            on_schedule |= last_probe.bound_because.is_empty() && verdict != ProbeVerdict::GeneratorBound;
            if failures >= FAILURES_WHEN_LATE || punctual_failures >= FAILURES {
                let bound_because = if on_schedule { Vec::new() } else { last_probe.bound_because.clone() };
                return Ok(RateAttempt::Failed(RateFailure {
                    rate,
                    verdict,
                    on_schedule,
                    bound_because,
                    send_method: last_probe.send_method,
                }));
            }
        }
    }

    // Offers a rate for a slot; `None` for a slot that was cut short, because it proves nothing.
    fn offer_rate(&mut self, per_second: f64, stretch: u32) -> Result<Option<ProbeVerdict>, GeneratorError> {
        let options = self.options;
        let (lead_in, judged_duration) = (options.lead_in * stretch, options.slot * stretch);
        options.notify_observer(SearchEvent::Offering { per_second, slot: lead_in + judged_duration });
        let slot = LoadSlot {
            drain: options.drain,
            live_frames: self.live_frames,
            interval: (!lead_in.is_zero()).then(|| (lead_in / INTERVALS_A_LEAD_IN).max(LEAST_INTERVAL)),
            ..LoadSlot::rate(per_second, lead_in + judged_duration)
        };
        let outcome = match self.generator.run(&slot) {
            Ok(outcome) if outcome.duration < slot.duration => return Ok(None),
            // The wait for its replies was cut short.
            Ok(outcome) if outcome.lost > 0 && options.is_cancelled() => return Ok(None),
            Ok(outcome) => outcome,
            Err(GeneratorError::Cancelled) => return Ok(None),
            Err(error) => return Err(error),
        };
        let probe = ProbeResult::new(per_second, &outcome, lead_in, options);
        options.notify_observer(SearchEvent::Offered(&probe));
        let verdict = probe.verdict;
        self.slots.push(probe);
        Ok(Some(verdict))
    }

    /// The best goodput of the slots in which `rate` was offered.
    fn best_goodput(&self, rate: f64) -> f64 {
        let probes_at_rate = self.slots.iter().filter(|probe| probe.requested_per_second == rate);
        probes_at_rate.map(|probe| probe.answered_per_second).fold(0.0, f64::max)
    }

    /// The highest rate below `rate` that held in some slot.
    fn best_below(&self, rate: f64) -> Option<(f64, Vec<usize>)> {
        let holding_probes =
            self.slots.iter().enumerate().filter(|(_, probe)| probe.verdict == ProbeVerdict::Holds);
        let lower_probes = holding_probes.filter(|(_, probe)| probe.requested_per_second < rate);
        let best =
            lower_probes.max_by(|(_, a), (_, b)| a.requested_per_second.total_cmp(&b.requested_per_second));
        best.map(|(index, probe)| (probe.requested_per_second, vec![index]))
    }

    fn search_end(&self) -> Option<SearchEnd> {
        if self.options.is_cancelled() {
            Some(SearchEnd::Cancelled)
        } else {
            // Without any result it is worth waiting a little longer for one.
            let has_held = self.slots.iter().any(|probe| probe.verdict == ProbeVerdict::Holds);
            let patience = if has_held { 1 } else { self.patience };
            (self.began.elapsed() >= self.options.budget.saturating_mul(patience))
                .then_some(SearchEnd::OutOfTime)
        }
    }

    fn result(self, ended: SearchEnd) -> CapacitySample {
        let (offered_rate, holding_slots) = self.holds.unwrap_or_default();
        let holding_probes: Vec<&ProbeResult> =
            holding_slots.iter().filter_map(|index| self.slots.get(*index)).collect();
        // A failure caused by the generator, or with another send method, is no upper bound.
        let (mut generator_bound, mut bound_because) = (false, Vec::new());
        if let Some(failed) = self.fails {
            generator_bound = !failed.on_schedule;
            bound_because = failed.bound_because;
            let other_method_probe =
                holding_probes.iter().find(|probe| probe.send_method != failed.send_method);
            if let Some(probe) = other_method_probe {
                generator_bound = true;
                let (sustained, failed) = (probe.send_method, failed.send_method);
                bound_because.push(BoundReason::SentAnotherWay { sustained, failed });
            }
        } else if offered_rate > 0.0 {
            // A rate above may have failed, but the search ended before it was tried often enough.
            generator_bound = true;
            let higher_probe =
                self.slots.iter().rev().find(|probe| probe.requested_per_second > offered_rate);
            bound_because = higher_probe.map_or_else(Vec::new, |probe| probe.bound_because.clone());
            if bound_because.is_empty() {
                bound_because.push(BoundReason::NothingHigher);
            }
        }
        // The slot that found a rate was chosen because it held; the slots that confirmed it were
        // not.
        let holding_probes =
            if holding_probes.len() > 1 { &holding_probes[1..] } else { &holding_probes[..] };
        let mut latency_ns = Latency::new();
        let (mut sent, mut answered, mut late, mut codes) = (0, 0, 0.0, Vec::new());
        for probe in holding_probes {
            latency_ns.merge(&probe.latency_ns);
            sent += probe.sent;
            answered += probe.answered;
            add_codes(&mut codes, &probe.codes);
            late += probe.late_ratio * probe.sent as f64;
        }
        let rates: Vec<f64> =
            holding_probes.iter().map(|probe| probe.offered_per_second * (1.0 - probe.loss_ratio)).collect();
        CapacitySample {
            transactions_per_second: stats::median(&rates).unwrap_or(0.0),
            offered_per_second: offered_rate,
            loss_ratio: if sent == 0 { 1.0 } else { (sent - answered) as f64 / sent as f64 },
            latency_ns,
            codes,
            late_ratio: late / sent.max(1) as f64,
            send_method: self.slots.last().map_or_else(SendMethod::default, |probe| probe.send_method),
            generator_bound,
            bound_because,
            ended,
            slots: self.slots,
        }
    }
}
