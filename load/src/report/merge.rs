//! The results of several generators as one.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{ClockOffset, LoadReport, MergedRun};
use crate::generator::GeneratorDescription;
use crate::outcome::{CodeCount, QueueMedians, SelfWatch, SendBursts, SendMethod, SlotInterval, SlotOutcome};

// With less overlap, the rates of the runs must not be added.
const LEAST_OVERLAP: f64 = 0.9;

// A warning names intervals whose beginnings differ by more than this share of their length.
const MOST_SHIFT: f64 = 0.1;

/// Why runs cannot be merged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MergeError {
    #[error("nothing to merge: name at least two documents")]
    TooFew,
    /// Different things were measured.
    #[error("{name} is of {its}, {first} of {expected}: only runs of the same workload can be merged")]
    Workload {
        first: String,
        expected: String,
        /// The run that differs.
        name: String,
        its: String,
    },
    /// One run would be counted twice.
    #[error("{name} and {other} are of the same run, which would be counted twice")]
    Twice { name: String, other: String },
}

/// One of the runs to merge.
#[derive(Debug, Clone)]
pub struct LoadPart {
    /// Distinguishes it from the other parts: a file or host name.
    pub name: String,
    pub argv: Vec<String>,
    pub report: LoadReport,
}

/// Merges runs. Counts are summed and distributions merged, so that the result is as if one
/// generator had recorded all runs. Rates are summed if the runs overlap in time by 90 % of the
/// shortest run; otherwise they are averages from the first start to the last end, with a warning.
/// Clocks with a known error are corrected; a warning reports clocks that may differ by too much.
/// Intervals are joined with the nearest in time; of their latency only the maximum is then known.
/// Returns the warnings of the merge next to the result.
///
/// # Errors
///
/// Fewer than two runs, different workloads, the same run twice.
pub fn merge(parts: &[LoadPart]) -> Result<(LoadReport, Vec<String>), MergeError> {
    check(parts)?;
    let merged = parts.iter().flat_map(LoadPart::runs).collect();
    let doubt = ClockDoubt::of(parts);
    let parts: &[LoadPart] = &parts.iter().map(LoadPart::by_right_clock).collect::<Vec<_>>();
    let overlap = overlap_ratio(parts);
    let mut warnings: Vec<String> = Vec::new();
    let concurrent = overlap >= LEAST_OVERLAP;
    if !concurrent {
        warnings.push(format!(
            "the runs overlap by {:.0} % of the shortest only: rates are over the whole stretch from the first start to the last end",
            overlap * 100.0
        ));
    }
    if concurrent && overlap - doubt.seconds / shortest_ns(parts) as f64 * 1e9 < LEAST_OVERLAP {
        warnings.push(format!(
            "the clocks of {} may differ by {:.3} s, so that the runs may overlap by less than the result says",
            doubt.names.join(" and "),
            doubt.seconds
        ));
    }
    let outcome = merged_outcome(parts, concurrent, &mut warnings);
    let generators: Vec<&GeneratorDescription> = parts.iter().map(|part| &part.report.generator).collect();
    let generator = GeneratorDescription::of_all(&generators);
    let merged = LoadReport {
        generator: generator.unwrap_or_else(|| parts[0].report.generator.clone()),
        outcome,
        no_reply: parts.iter().all(|part| part.report.no_reply),
        missed: Vec::new(),
        merged,
        overlap_ratio: Some(overlap),
        clock: None,
    };
    Ok((merged, warnings))
}

fn check(parts: &[LoadPart]) -> Result<(), MergeError> {
    let [first, rest @ ..] = parts else { return Err(MergeError::TooFew) };
    if rest.is_empty() {
        return Err(MergeError::TooFew);
    }
    for (index, part) in parts.iter().enumerate() {
        if part.workload() != first.workload() {
            return Err(MergeError::Workload {
                first: first.name.clone(),
                expected: first.workload(),
                name: part.name.clone(),
                its: part.workload(),
            });
        }
        let runs = part.runs();
        for other in &parts[..index] {
            let others = other.runs();
            let is_known = |run: &MergedRun| {
                others.iter().any(|its| MergedRun { name: run.name.clone(), ..its.clone() } == *run)
            };
            if runs.iter().any(is_known) {
                return Err(MergeError::Twice { name: part.name.clone(), other: other.name.clone() });
            }
        }
    }
    Ok(())
}

impl LoadPart {
    fn workload(&self) -> String {
        let generator = &self.report.generator;
        format!("{} with {} bytes", generator.workload, generator.payload_bytes)
    }

    /// The run itself, or the runs from which it was merged.
    fn runs(&self) -> Vec<MergedRun> {
        if !self.report.merged.is_empty() {
            return self.report.merged.clone();
        }
        let outcome = &self.report.outcome;
        vec![MergedRun {
            name: self.name.clone(),
            argv: self.argv.clone(),
            started_realtime_ns: outcome.started_realtime_ns,
            duration_seconds: outcome.duration.as_secs_f64(),
            sent: outcome.sent,
            answered: outcome.answered,
            generator_bound: outcome.generator_bound,
            clock: self.report.clock,
            generator: self.report.generator.clone(),
        }]
    }

    fn by_right_clock(&self) -> Self {
        let mut part = self.clone();
        let correction_ns = part.report.clock.map_or(0, ClockOffset::correction_ns);
        let started = &mut part.report.outcome.started_realtime_ns;
        *started = started.saturating_add_signed(correction_ns.saturating_neg());
        part
    }
}

/// The two runs with the least certain clocks, and their largest possible difference.
struct ClockDoubt<'p> {
    names: Vec<&'p str>,
    seconds: f64,
}

impl<'p> ClockDoubt<'p> {
    fn of(parts: &'p [LoadPart]) -> Self {
        let known = parts.iter().filter_map(|part| Some((part.name.as_str(), part.report.clock?)));
        let mut errors: Vec<(&str, f64)> = known
            .map(|(name, clock)| {
                let corrected = clock.correction_ns() != 0;
                (name, if corrected { clock.uncertain_seconds } else { clock.max_error_seconds() })
            })
            .collect();
        errors.sort_by(|one, other| other.1.total_cmp(&one.1));
        errors.truncate(2);
        Self {
            names: errors.iter().map(|(name, _)| *name).collect(),
            seconds: errors.iter().map(|(_, seconds)| seconds).sum(),
        }
    }
}

fn stretches(parts: &[LoadPart]) -> impl Iterator<Item = (u128, u128)> {
    parts.iter().map(|part| {
        let began = u128::from(part.report.outcome.started_realtime_ns);
        (began, began + part.report.outcome.duration.as_nanos())
    })
}

// Share of the shortest run's time in which all runs sent.
fn overlap_ratio(parts: &[LoadPart]) -> f64 {
    let last_start = stretches(parts).map(|(began, _)| began).max().unwrap_or(0);
    let first_end = stretches(parts).map(|(_, ended)| ended).min().unwrap_or(0);
    first_end.saturating_sub(last_start) as f64 / shortest_ns(parts) as f64
}

fn shortest_ns(parts: &[LoadPart]) -> u128 {
    stretches(parts).map(|(began, ended)| ended - began).min().unwrap_or(1).max(1)
}

fn merged_outcome(parts: &[LoadPart], concurrent: bool, warnings: &mut Vec<String>) -> SlotOutcome {
    let outcomes: Vec<&SlotOutcome> = parts.iter().map(|part| &part.report.outcome).collect();
    let mut all = outcomes[0].clone();
    all.self_watch = SelfWatch::default();
    for outcome in &outcomes[1..] {
        add_counts(&mut all, outcome);
    }
    all.self_watch.send_method = outcomes[0].self_watch.send_method;
    for outcome in &outcomes {
        add_watch(&mut all.self_watch, &outcome.self_watch);
    }
    let began = stretches(parts).map(|(began, _)| began).min().unwrap_or(0);
    let ended = stretches(parts).map(|(_, ended)| ended).max().unwrap_or(0);
    all.started_realtime_ns = u64::try_from(began).unwrap_or(u64::MAX);
    all.duration = Duration::from_nanos(u64::try_from(ended - began).unwrap_or(u64::MAX));
    let whole_seconds = all.duration.as_secs_f64();
    let rate = |pick: fn(&SlotOutcome) -> f64| -> f64 {
        let of = |outcome: &&SlotOutcome| {
            let share = if concurrent { 1.0 } else { outcome.duration.as_secs_f64() / whole_seconds };
            pick(outcome) * share
        };
        outcomes.iter().map(of).sum()
    };
    all.offered_per_second = rate(|outcome| outcome.offered_per_second);
    all.answered_per_second = rate(|outcome| outcome.answered_per_second);
    all.requested_per_second = outcomes
        .iter()
        .map(|outcome| outcome.requested_per_second)
        .sum::<Option<f64>>()
        .filter(|_| concurrent);
    // Whether a queue grew shows in each run by itself; medians of several do not add up.
    all.queue = QueueMedians::default();
    // The largest of the medians, too: it is the median of a run, unlike a value below all medians.
    let largest = |pick: fn(&SendBursts) -> u64| outcomes.iter().map(|outcome| pick(&outcome.bursts)).max();
    all.bursts = SendBursts {
        median_requests: largest(|bursts| bursts.median_requests).unwrap_or(0),
        max_requests: largest(|bursts| bursts.max_requests).unwrap_or(0),
    };
    all.generator_bound = outcomes.iter().any(|outcome| outcome.generator_bound);
    all.intervals = merged_intervals(&outcomes, began, warnings);
    all
}

fn add_counts(all: &mut SlotOutcome, one: &SlotOutcome) {
    all.sent += one.sent;
    all.answered += one.answered;
    all.lost += one.lost;
    all.duplicate += one.duplicate;
    all.reordered += one.reordered;
    all.corrupt += one.corrupt;
    all.unsolicited += one.unsolicited;
    all.late += one.late;
    all.unverified += one.unverified;
    all.send_errors.add(&one.send_errors);
    all.latency_ns.merge(&one.latency_ns);
    add_codes(&mut all.codes, &one.codes);
}

fn add_codes(all: &mut Vec<CodeCount>, more: &[CodeCount]) {
    for code in more {
        match all.iter_mut().find(|known| known.code == code.code) {
            Some(known) => {
                known.count += code.count;
                known.truncated += code.truncated;
            }
            None => all.push(code.clone()),
        }
    }
    all.sort_by_key(|code| code.code);
}

fn add_watch(all: &mut SelfWatch, one: &SelfWatch) {
    all.late_sends += one.late_sends;
    all.worst_lag_ns = all.worst_lag_ns.max(one.worst_lag_ns);
    all.tick_ns = all.tick_ns.max(one.tick_ns);
    if all.send_method != one.send_method {
        all.send_method = SendMethod::Mixed;
    }
    all.thread_cpu_ratio.extend_from_slice(&one.thread_cpu_ratio);
    all.receive_drops += one.receive_drops;
    all.refused_by_link += one.refused_by_link;
    all.timed_out += one.timed_out;
    all.bound_because.extend_from_slice(&one.bound_because);
}

// Intervals joined with the intervals nearest in time; `began` is the first run's start, ns.
fn merged_intervals(outcomes: &[&SlotOutcome], began: u128, warnings: &mut Vec<String>) -> Vec<SlotInterval> {
    let Some(length) =
        outcomes.iter().find_map(|outcome| outcome.intervals.first()).map(|first| first.seconds)
    else {
        return Vec::new();
    };
    let mut joined: BTreeMap<u64, SlotInterval> = BTreeMap::new();
    let mut most_shift = 0.0_f64;
    for outcome in outcomes {
        // The first interval is complete unless it is the only interval.
        let its = outcome.intervals.first().map_or(length, |first| first.seconds);
        if outcome.intervals.len() > 1 && (its - length).abs() > length * 1e-6 {
            warnings.push(format!("intervals of {length} s and {its} s cannot be joined, and are left out"));
            return Vec::new();
        }
        let offset = (u128::from(outcome.started_realtime_ns) - began) as f64 / 1e9;
        for interval in &outcome.intervals {
            let place = (offset + interval.begins_seconds) / length;
            most_shift = most_shift.max((place - place.round()).abs());
            add_interval(&mut joined, place.round() as u64, length, interval);
        }
    }
    if most_shift > MOST_SHIFT {
        let shift_ms = most_shift * length * 1e3;
        warnings.push(format!("intervals were joined with the nearest, up to {shift_ms:.0} ms apart"));
    }
    joined.into_values().zip(0..).map(|(interval, number)| SlotInterval { number, ..interval }).collect()
}

fn add_interval(joined: &mut BTreeMap<u64, SlotInterval>, place: u64, length: f64, one: &SlotInterval) {
    match joined.get_mut(&place) {
        None => {
            joined.insert(place, SlotInterval { begins_seconds: place as f64 * length, ..one.clone() });
        }
        Some(all) => all.join(one),
    }
}
