//! The figures of a result of `load`.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use linerate_load::capacity::RepeatedCapacity;
use linerate_load::report::{LoadReport, RampReport, SearchReport};
use linerate_load::stats::{self, ConfidenceInterval};
use linerate_load::{BoundReason, GeneratorDescription, SlotInterval, SlotOutcome};
use serde::Deserialize;

use super::MethodFacts;
use crate::envelope::{CommandResult, Envelope};
use crate::origin::HostSummary;

/// The key of a search's figure.
pub(super) const CAPACITY_KEY: &str = "transactions_per_second";

const SEND_METHOD: &str = "the way in which requests left";

/// The parts of a result that a comparison requires.
pub(super) struct LoadFigures {
    pub(super) host: HostSummary,
    pub(super) method: MethodFacts,
    pub(super) figures: Vec<LoadFigure>,
}

pub(super) struct LoadFigure {
    pub(super) key: String,
    pub(super) less_is_better: bool,
    pub(super) value: ConfidenceInterval,
    /// Why the service may be better than this figure, if so.
    pub(super) bound: Option<String>,
}

impl LoadFigures {
    /// The keys of figures that the other result does not have.
    pub(super) fn keys_without_partner<'a>(&'a self, other: &Self) -> Vec<&'a str> {
        let keys = self.figures.iter().map(|figure| figure.key.as_str());
        keys.filter(|key| other.figures.iter().all(|figure| figure.key != *key)).collect()
    }
}

#[derive(Deserialize)]
struct SchemaLine {
    schema: String,
}

pub(super) fn read(path: &Path) -> Result<LoadFigures> {
    let path_text = || path.display().to_string();
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path_text()))?;
    parse(&text).with_context(path_text)
}

fn parse(text: &str) -> Result<LoadFigures> {
    let line: SchemaLine = serde_json::from_str(text).context("it is no result of linerate load --json")?;
    let (run, ramp, search) = (LoadReport::SCHEMA, RampReport::SCHEMA, SearchReport::SCHEMA);
    match line.schema.as_str() {
        schema if schema == run => Ok(run_figures(Envelope::parse(text)?)),
        schema if schema == ramp => Ok(ramp_figures(Envelope::parse(text)?)),
        schema if schema == search => Ok(search_figures(Envelope::parse(text)?)),
        schema => {
            bail!(
                "its schema is {schema}; only a run ({run}), a ramp ({ramp}) or a search ({search}) can be compared"
            )
        }
    }
}

fn run_figures(envelope: Envelope<LoadReport>) -> LoadFigures {
    let report = &envelope.result;
    let outcome = &report.outcome;
    // With neither rate nor window the load is a flood.
    let method = method("run", &envelope.host, &report.generator)
        .with_fact("the requested rate", outcome.requested_per_second)
        .with_fact("the window", report.window_requests)
        .with_fact("the number of merged runs", report.merged.len())
        .with_fact(SEND_METHOD, outcome.self_watch.send_method);
    LoadFigures { figures: slot_figures(outcome, ""), host: envelope.host, method }
}

/// The figures of all steps. Their keys contain the rate, so that steps of equal rates are
/// compared.
fn ramp_figures(envelope: Envelope<RampReport>) -> LoadFigures {
    let ramp = &envelope.result;
    let step_figures = |step: &SlotOutcome| {
        slot_figures(step, &format!("at {}/s: ", step.requested_per_second.unwrap_or_default()))
    };
    let figures = ramp.steps.iter().flat_map(step_figures).collect();
    let method = method("ramp", &envelope.host, &ramp.generator)
        .with_fact(SEND_METHOD, ramp.steps.first().map(|step| step.self_watch.send_method));
    LoadFigures { method, host: envelope.host, figures }
}

fn slot_bound(outcome: &SlotOutcome) -> Option<&BoundReason> {
    outcome.self_watch.bound_because.iter().find(|reason| reason.distorts_figures())
}

/// The figures of a slot by its intervals, with keys that begin with `prefix`.
fn slot_figures(outcome: &SlotOutcome, prefix: &str) -> Vec<LoadFigure> {
    let full_intervals = whole_intervals(outcome);
    let mut reply_rates: Vec<f64> =
        full_intervals.iter().map(|interval| interval.received as f64 / interval.seconds).collect();
    let figure = |key: &str, less_is_better: bool, samples: &[f64]| LoadFigure {
        key: format!("{prefix}{key}"),
        less_is_better,
        value: confidence_interval(samples),
        bound: slot_bound(outcome).map(ToString::to_string),
    };
    let mut figures = vec![figure("answered_per_second", false, &reply_rates)];
    if outcome.requested_per_second.is_none() {
        // Other programs on the machine only slow a server down, so the fastest intervals scatter least.
        reply_rates.sort_by(|left, right| right.total_cmp(left));
        let fastest = &reply_rates[..reply_rates.len() / 4];
        let key = "fastest_quarter_answered_per_second";
        figures.extend((fastest.len() > 2).then(|| figure(key, false, fastest)));
    } else {
        // Without a requested rate latency adds nothing: in a closed loop it follows from the rate,
        // and in a flood from the depth of the buffers.
        let medians =
            full_intervals.iter().filter_map(|interval| interval.latency_ns.p50).map(|ns| ns as f64);
        let medians: Vec<f64> = medians.collect();
        // Of the intervals of merged runs only the longest latency is known.
        figures.extend((medians.len() > 2).then(|| figure("latency_p50_ns", true, &medians)));
    }
    figures
}

/// Intervals of full length. The last may be shorter.
fn whole_intervals(outcome: &SlotOutcome) -> Vec<&SlotInterval> {
    let longest = outcome.intervals.iter().map(|interval| interval.seconds).fold(0.0, f64::max);
    outcome.intervals.iter().filter(|interval| interval.seconds > 0.9 * longest).collect()
}

fn search_figures(envelope: Envelope<SearchReport>) -> LoadFigures {
    let search = &envelope.result;
    let method = method("search", &envelope.host, &search.generator)
        .with_fact("the loss limit", search.method.max_loss_ratio)
        .with_fact("the p99 limit in ns", search.method.max_p99_ns)
        .with_fact(SEND_METHOD, search.capacity.send_method);
    let figure = LoadFigure {
        key: CAPACITY_KEY.to_owned(),
        less_is_better: false,
        value: search.capacity.transactions_per_second,
        bound: capacity_bound(&search.capacity),
    };
    LoadFigures { host: envelope.host, method, figures: vec![figure] }
}

// Why the capacity may be higher. That the server delivers its own replies slows down every build.
fn capacity_bound(capacity: &RepeatedCapacity) -> Option<String> {
    if capacity.is_unknown() {
        return Some("it was interrupted before a rate held".to_owned());
    }
    let reasons = &capacity.bound_because;
    let reason = reasons.iter().find(|reason| **reason != BoundReason::ServerDeliversReplies);
    let is_bound = capacity.generator_bound && (reason.is_some() || reasons.is_empty());
    is_bound.then(|| reason.map_or_else(|| "the generator was the limit".to_owned(), ToString::to_string))
}

fn method(kind: &str, host: &HostSummary, generator: &GeneratorDescription) -> MethodFacts {
    MethodFacts::default()
        .with_fact("the kind of result", kind)
        .with_host(host)
        .with_fact("the workload", &generator.workload)
        .with_fact("the payload in bytes", generator.payload_bytes)
        .with_fact("the backend", &generator.backend)
        .with_fact("the number of threads", generator.threads)
        .with_fact("the number of flows", generator.flows)
        .with_fact("the list of the generator's CPUs", &generator.cpus)
        .with_fact("the number of destinations", generator.targets.len())
}

// The interval of samples; one without bounds if there are too few.
pub(super) fn confidence_interval(samples: &[f64]) -> ConfidenceInterval {
    // An interval without replies has no logarithm.
    let floor = samples.iter().sum::<f64>() / samples.len().max(1) as f64 / 1e3;
    let samples: Vec<f64> = samples.iter().map(|sample| sample.max(floor)).collect();
    let no_replies = ConfidenceInterval { median: 0.0, low: None, high: None, samples: samples.len() };
    stats::interval(&samples).unwrap_or(no_replies)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::load_fixtures;
    use linerate_load::SendMethod;

    #[test]
    fn merged_runs_are_compared_without_their_unknown_medians() {
        let mut outcome = load_fixtures::outcome(1_000.0, 0);
        let keys = |outcome: &SlotOutcome| -> Vec<String> {
            slot_figures(outcome, "").into_iter().map(|figure| figure.key).collect()
        };
        assert_eq!(keys(&outcome), ["answered_per_second", "latency_p50_ns"]);
        outcome.intervals.iter_mut().for_each(|interval| interval.latency_ns.p50 = None);
        assert_eq!(keys(&outcome), ["answered_per_second"]);
    }

    #[test]
    fn windows_and_send_methods_are_part_of_the_method() {
        let method = |window_requests, send_method| {
            let mut envelope = load_fixtures::envelope();
            envelope.result.window_requests = window_requests;
            envelope.result.outcome.self_watch.send_method = send_method;
            format!("{:?}", run_figures(envelope).method)
        };
        let small_window = method(Some(4), SendMethod::Clones);
        assert_ne!(small_window, method(Some(64), SendMethod::Clones));
        assert_ne!(small_window, method(None, SendMethod::Clones));
        assert_ne!(small_window, method(Some(4), SendMethod::LiveFrames));
    }

    #[test]
    fn figures_that_the_generator_limited_are_lower_bounds() {
        let (busy, late) =
            (BoundReason::ThreadBusy { cpu_ratio: 1.0 }, BoundReason::SentLate { ratio: 0.05 });
        let dropped = BoundReason::RequestsDropped { ratio: 0.5 };
        for (reasons, is_bound) in [(vec![busy, late], false), (vec![busy, dropped], true)] {
            let mut envelope = load_fixtures::envelope();
            envelope.result.outcome.self_watch.bound_because = reasons;
            let steps = vec![load_fixtures::outcome(1.0, 0), envelope.result.outcome.clone()];
            let ramp = RampReport { generator: load_fixtures::generator(), steps, missed: Vec::new() };
            let has_bound = |figure: &LoadFigure| figure.bound.is_some();
            assert!(run_figures(envelope).figures.iter().all(|figure| has_bound(figure) == is_bound));
            let figures = ramp_figures(load_fixtures::of_sender(0, "", ramp)).figures;
            let is_limited_step = |figure: &LoadFigure| is_bound && figure.key.starts_with("at 1000/s");
            assert!(figures.iter().all(|figure| has_bound(figure) == is_limited_step(figure)));
        }
    }
}
