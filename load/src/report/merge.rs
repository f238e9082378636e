//! The results of several generators as one.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{ClockOffset, LoadReport, MergedRun};
use crate::generator::GeneratorDescription;
use crate::outcome::{CodeCount, QueueMedians, SelfWatch, SendBursts, SendMethod, SlotInterval, SlotOutcome};

/// With less overlap, the rates of the runs must not be added.
pub const LEAST_OVERLAP: f64 = 0.9;

// A warning names intervals whose beginnings differ by more than this share of their length.
const MOST_SHIFT: f64 = 0.1;

/// Why runs cannot be merged: one line.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct MergeError(String);

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
    let clock_doubt = ClockDoubt::from_parts(parts);
    let parts: &[LoadPart] = &parts.iter().map(LoadPart::with_corrected_clock).collect::<Vec<_>>();
    let overlap = overlap_ratio(parts);
    let mut warnings: Vec<String> = Vec::new();
    let concurrent = overlap >= LEAST_OVERLAP;
    if !concurrent {
        warnings.push(format!(
            "the runs overlap by {:.0} % of the shortest only: rates are over the whole stretch from the first start to the last end",
            overlap * 100.0
        ));
    }
    if concurrent && overlap - clock_doubt.seconds / shortest_ns(parts) as f64 * 1e9 < LEAST_OVERLAP {
        warnings.push(format!(
            "the clocks of {} may differ by {:.3} s, so that the runs may overlap by less than the result says",
            clock_doubt.names.join(" and "),
            clock_doubt.seconds
        ));
    }
    let outcome = merged_outcome(parts, concurrent, &mut warnings);
    let generators: Vec<&GeneratorDescription> = parts.iter().map(|part| &part.report.generator).collect();
    let generator = GeneratorDescription::merge_all(&generators);
    let merged = LoadReport {
        generator: generator.unwrap_or_else(|| parts[0].report.generator.clone()),
        outcome,
        window_requests: common_window(parts),
        no_reply: parts.iter().all(|part| part.report.no_reply),
        merged,
        overlap_ratio: Some(overlap),
        ..LoadReport::default()
    };
    Ok((merged, warnings))
}

fn common_window(parts: &[LoadPart]) -> Option<u32> {
    let first = parts.first()?.report.window_requests;
    first.filter(|_| parts.iter().all(|part| part.report.window_requests == first))
}

fn check(parts: &[LoadPart]) -> Result<(), MergeError> {
    let [first, _, ..] = parts else {
        return Err(MergeError("nothing to merge: name at least two documents".to_owned()));
    };
    for (index, part) in parts.iter().enumerate() {
        if part.workload() != first.workload() {
            return Err(MergeError(format!(
                "{} is of {}, {} of {}: only runs of the same workload can be merged",
                part.name,
                part.workload(),
                first.name,
                first.workload()
            )));
        }
        let runs = part.runs();
        for other in &parts[..index] {
            let other_runs = other.runs();
            let is_in_other = |run: &MergedRun| {
                other_runs
                    .iter()
                    .any(|other_run| MergedRun { name: run.name.clone(), ..other_run.clone() } == *run)
            };
            if runs.iter().any(is_in_other) {
                return Err(MergeError(format!(
                    "{} and {} are of the same run, which would be counted twice",
                    part.name, other.name
                )));
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

    fn with_corrected_clock(&self) -> Self {
        let mut part = self.clone();
        let correction_ns = part.report.clock.map_or(0, ClockOffset::correction_ns);
        let start_ns = &mut part.report.outcome.started_realtime_ns;
        *start_ns = start_ns.saturating_add_signed(correction_ns.saturating_neg());
        part
    }
}

/// The two runs with the least certain clocks, and their largest possible difference.
struct ClockDoubt<'p> {
    names: Vec<&'p str>,
    seconds: f64,
}

impl<'p> ClockDoubt<'p> {
    fn from_parts(parts: &'p [LoadPart]) -> Self {
        let clocks = parts.iter().filter_map(|part| Some((part.name.as_str(), part.report.clock?)));
        let mut errors: Vec<(&str, f64)> = clocks
            .map(|(name, clock)| {
                let is_corrected = clock.correction_ns() != 0;
                (name, if is_corrected { clock.uncertain_seconds } else { clock.max_error_seconds() })
            })
            .collect();
        errors.sort_by(|left, right| right.1.total_cmp(&left.1));
        errors.truncate(2);
        Self {
            names: errors.iter().map(|(name, _)| *name).collect(),
            seconds: errors.iter().map(|(_, seconds)| seconds).sum(),
        }
    }
}

fn run_spans(parts: &[LoadPart]) -> impl Iterator<Item = (u128, u128)> {
    parts.iter().map(|part| {
        let start_ns = u128::from(part.report.outcome.started_realtime_ns);
        (start_ns, start_ns + part.report.outcome.duration.as_nanos())
    })
}

// Share of the shortest run's time in which all runs sent.
fn overlap_ratio(parts: &[LoadPart]) -> f64 {
    let last_start = run_spans(parts).map(|(start, _)| start).max().unwrap_or(0);
    let first_end = run_spans(parts).map(|(_, end)| end).min().unwrap_or(0);
    first_end.saturating_sub(last_start) as f64 / shortest_ns(parts) as f64
}

fn shortest_ns(parts: &[LoadPart]) -> u128 {
    run_spans(parts).map(|(start, end)| end - start).min().unwrap_or(1).max(1)
}

fn merged_outcome(parts: &[LoadPart], concurrent: bool, warnings: &mut Vec<String>) -> SlotOutcome {
    let outcomes: Vec<&SlotOutcome> = parts.iter().map(|part| &part.report.outcome).collect();
    let mut merged = outcomes[0].clone();
    merged.self_watch = SelfWatch::default();
    for outcome in &outcomes[1..] {
        add_counts(&mut merged, outcome);
    }
    merged.self_watch.send_method = outcomes[0].self_watch.send_method;
    for outcome in &outcomes {
        add_watch(&mut merged.self_watch, &outcome.self_watch);
    }
    let start_ns = run_spans(parts).map(|(start_ns, _)| start_ns).min().unwrap_or(0);
    let end_ns = run_spans(parts).map(|(_, end_ns)| end_ns).max().unwrap_or(0);
    merged.started_realtime_ns = u64::try_from(start_ns).unwrap_or(u64::MAX);
    merged.duration = Duration::from_nanos(u64::try_from(end_ns - start_ns).unwrap_or(u64::MAX));
    let whole_seconds = merged.duration.as_secs_f64();
    let rate = |value_of: fn(&SlotOutcome) -> f64| -> f64 {
        let weighted_rate = |outcome: &&SlotOutcome| {
            let share = if concurrent { 1.0 } else { outcome.duration.as_secs_f64() / whole_seconds };
            value_of(outcome) * share
        };
        outcomes.iter().map(weighted_rate).sum()
    };
    merged.offered_per_second = rate(|outcome| outcome.offered_per_second);
    merged.answered_per_second = rate(|outcome| outcome.answered_per_second);
    merged.requested_per_second = outcomes
        .iter()
        .map(|outcome| outcome.requested_per_second)
        .sum::<Option<f64>>()
        .filter(|_| concurrent);
    // Whether a queue grew shows in each run by itself; medians of several do not add up.
    merged.queue = QueueMedians::default();
    // The largest of the medians, too: it is the median of a run, unlike a value below all medians.
    let largest =
        |value_of: fn(&SendBursts) -> u64| outcomes.iter().map(|outcome| value_of(&outcome.bursts)).max();
    merged.bursts = SendBursts {
        median_requests: largest(|bursts| bursts.median_requests).unwrap_or(0),
        max_requests: largest(|bursts| bursts.max_requests).unwrap_or(0),
    };
    merged.generator_bound = outcomes.iter().any(|outcome| outcome.generator_bound);
    merged.intervals = merged_intervals(&outcomes, start_ns, warnings);
    merged
}

fn add_counts(merged: &mut SlotOutcome, outcome: &SlotOutcome) {
    merged.sent += outcome.sent;
    merged.answered += outcome.answered;
    merged.lost += outcome.lost;
    merged.duplicate += outcome.duplicate;
    merged.reordered += outcome.reordered;
    merged.corrupt += outcome.corrupt;
    merged.unsolicited += outcome.unsolicited;
    merged.late += outcome.late;
    merged.fragmented += outcome.fragmented;
    merged.unverified += outcome.unverified;
    merged.send_errors.add(&outcome.send_errors);
    merged.mean_in_flight += outcome.mean_in_flight;
    merged.latency_ns.merge(&outcome.latency_ns);
    merged.second_half_ns.merge(&outcome.second_half_ns);
    add_codes(&mut merged.codes, &outcome.codes);
}

pub(crate) fn add_codes(merged: &mut Vec<CodeCount>, codes: &[CodeCount]) {
    for code in codes {
        match merged.iter_mut().find(|entry| entry.code == code.code) {
            Some(entry) => {
                entry.count += code.count;
                entry.truncated += code.truncated;
            }
            None => merged.push(code.clone()),
        }
    }
    merged.sort_by_key(|code| code.code);
}

fn add_watch(merged: &mut SelfWatch, watch: &SelfWatch) {
    merged.late_sends += watch.late_sends;
    merged.worst_lag_ns = merged.worst_lag_ns.max(watch.worst_lag_ns);
    merged.tick_ns = merged.tick_ns.max(watch.tick_ns);
    if merged.send_method != watch.send_method {
        merged.send_method = SendMethod::Mixed;
    }
    merged.thread_cpu_ratio.extend_from_slice(&watch.thread_cpu_ratio);
    merged.receive_drops += watch.receive_drops;
    merged.send_drops += watch.send_drops;
    merged.refused_by_link += watch.refused_by_link;
    merged.timed_out += watch.timed_out;
    merged.bound_because.extend_from_slice(&watch.bound_because);
}

// Intervals joined with the intervals nearest in time; `start_ns` is the first run's start, ns.
fn merged_intervals(
    outcomes: &[&SlotOutcome],
    start_ns: u128,
    warnings: &mut Vec<String>,
) -> Vec<SlotInterval> {
    let Some(length) =
        outcomes.iter().find_map(|outcome| outcome.intervals.first()).map(|first| first.seconds)
    else {
        return Vec::new();
    };
    let mut joined_intervals: BTreeMap<u64, SlotInterval> = BTreeMap::new();
    let mut most_shift = 0.0_f64;
    for outcome in outcomes {
        // The first interval is complete unless it is the only interval.
        let outcome_length = outcome.intervals.first().map_or(length, |first| first.seconds);
        if outcome.intervals.len() > 1 && (outcome_length - length).abs() > length * 1e-6 {
            warnings.push(format!(
                "intervals of {length} s and {outcome_length} s cannot be joined, and are left out"
            ));
            return Vec::new();
        }
        let offset = (u128::from(outcome.started_realtime_ns) - start_ns) as f64 / 1e9;
        for interval in &outcome.intervals {
            let position = (offset + interval.begins_seconds) / length;
            most_shift = most_shift.max((position - position.round()).abs());
            let begins_seconds = position.round() * length;
            joined_intervals
                .entry(position.round() as u64)
                .and_modify(|joined_interval| joined_interval.join(interval))
                .or_insert_with(|| SlotInterval { begins_seconds, ..interval.clone() });
        }
    }
    if most_shift > MOST_SHIFT {
        let shift_ms = most_shift * length * 1e3;
        warnings.push(format!("intervals were joined with the nearest, up to {shift_ms:.0} ms apart"));
    }
    joined_intervals
        .into_values()
        .zip(0..)
        .map(|(interval, number)| SlotInterval { number, ..interval })
        .collect()
}
