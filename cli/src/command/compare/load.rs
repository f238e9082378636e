//! The figures of a result of `load`.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use linerate_load::report::{LoadReport, RampReport, SearchReport};
use linerate_load::stats::{self, ConfidenceInterval};
use linerate_load::{GeneratorDescription, SlotInterval, SlotOutcome};
use serde::Deserialize;

use super::MethodFacts;
use crate::envelope::{CommandResult, Envelope};
use crate::origin::HostSummary;

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
}

#[derive(Deserialize)]
struct SchemaLine {
    schema: String,
}

pub(super) fn read(path: &Path) -> Result<LoadFigures> {
    let shown = || path.display().to_string();
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", shown()))?;
    parse(&text).with_context(shown)
}

fn parse(text: &str) -> Result<LoadFigures> {
    let line: SchemaLine = serde_json::from_str(text).context("it is no result of linerate load --json")?;
    let (run, ramp, search) = (LoadReport::SCHEMA, RampReport::SCHEMA, SearchReport::SCHEMA);
    match line.schema.as_str() {
        schema if schema == run => Ok(of_run(Envelope::parse(text)?)),
        schema if schema == ramp => Ok(of_ramp(Envelope::parse(text)?)),
        schema if schema == search => Ok(of_search(Envelope::parse(text)?)),
        other => {
            bail!(
                "its schema is {other}; only a run ({run}), a ramp ({ramp}) or a search ({search}) can be compared"
            )
        }
    }
}

fn of_run(envelope: Envelope<LoadReport>) -> LoadFigures {
    let report = &envelope.result;
    let outcome = &report.outcome;
    // Without rate the load is a window or a flood.
    let method = method("run", &envelope.host, &report.generator)
        .with("the requested rate", outcome.requested_per_second)
        .with("the number of merged runs", report.merged.len());
    LoadFigures { host: envelope.host, method, figures: figures_of(outcome, "") }
}

/// The figures of all steps. Their keys contain the rate, so that steps of equal rates are
/// compared.
fn of_ramp(envelope: Envelope<RampReport>) -> LoadFigures {
    let ramp = &envelope.result;
    let of_step = |step: &SlotOutcome| {
        figures_of(step, &format!("at {}/s: ", step.requested_per_second.unwrap_or_default()))
    };
    let figures = ramp.steps.iter().flat_map(of_step).collect();
    LoadFigures { method: method("ramp", &envelope.host, &ramp.generator), host: envelope.host, figures }
}

/// The figures of a slot by its intervals, with keys that begin with `prefix`.
fn figures_of(outcome: &SlotOutcome, prefix: &str) -> Vec<LoadFigure> {
    let whole = whole_intervals(outcome);
    let mut answered: Vec<f64> =
        whole.iter().map(|interval| interval.received as f64 / interval.seconds).collect();
    let figure = |key: &str, less_is_better: bool, samples: &[f64]| LoadFigure {
        key: format!("{prefix}{key}"),
        less_is_better,
        value: of_samples(samples),
    };
    let mut figures = vec![figure("answered_per_second", false, &answered)];
    if outcome.requested_per_second.is_none() {
        // Other programs on the machine only slow a server down, so the fastest intervals scatter least.
        answered.sort_by(|one, other| other.total_cmp(one));
        let fastest = &answered[..answered.len() / 4];
        let key = "fastest_quarter_answered_per_second";
        figures.extend((fastest.len() > 2).then(|| figure(key, false, fastest)));
    } else {
        // Without a requested rate latency adds nothing: in a closed loop it follows from the rate,
        // and in a flood from the depth of the buffers.
        let medians = whole.iter().filter_map(|interval| interval.latency_ns.p50).map(|ns| ns as f64);
        figures.push(figure("latency_p50_ns", true, &medians.collect::<Vec<_>>()));
    }
    figures
}

/// Intervals of full length. The last may be shorter.
fn whole_intervals(outcome: &SlotOutcome) -> Vec<&SlotInterval> {
    let longest = outcome.intervals.iter().map(|interval| interval.seconds).fold(0.0, f64::max);
    outcome.intervals.iter().filter(|interval| interval.seconds > 0.9 * longest).collect()
}

fn of_search(envelope: Envelope<SearchReport>) -> LoadFigures {
    let search = &envelope.result;
    let method = method("search", &envelope.host, &search.generator)
        .with("the loss limit", search.method.max_loss_ratio)
        .with("the p99 limit in ns", search.method.max_p99_ns)
        .with("the way in which requests left", search.capacity.send_method);
    let figure = LoadFigure {
        key: "transactions_per_second".to_owned(),
        less_is_better: false,
        value: search.capacity.transactions_per_second,
    };
    LoadFigures { host: envelope.host, method, figures: vec![figure] }
}

fn method(kind: &str, host: &HostSummary, generator: &GeneratorDescription) -> MethodFacts {
    MethodFacts::default()
        .with("the kind of result", kind)
        .with_host(host)
        .with("the workload", &generator.workload)
        .with("the payload in bytes", generator.payload_bytes)
        .with("the backend", &generator.backend)
        .with("the number of threads", generator.threads)
        .with("the number of flows", generator.flows)
        .with("the list of the generator's CPUs", &generator.cpus)
        .with("the number of destinations", generator.targets.len())
}

// The interval of samples; one without bounds if there are too few.
pub(super) fn of_samples(samples: &[f64]) -> ConfidenceInterval {
    // An interval without replies has no logarithm.
    let least = samples.iter().sum::<f64>() / samples.len().max(1) as f64 / 1e3;
    let samples: Vec<f64> = samples.iter().map(|sample| sample.max(least)).collect();
    let none = ConfidenceInterval { median: 0.0, low: None, high: None, samples: samples.len() };
    stats::interval(&samples).unwrap_or(none)
}
