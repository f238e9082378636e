//! Two results side by side.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use linerate_host::Known;
use linerate_trace::cost::{CostReport, CpuCost};
use serde::Serialize;

use super::document::{CostDocument, SCHEMA};
use crate::command::results::ResultTargets;
use crate::output;
use crate::render::cost_compare;
use crate::render::style::TextStyle;

/// The schema of `--compare --json`.
const COMPARISON: &str = "linerate.cost-comparison/1";

/// Two looks, figure by figure.
#[derive(Debug, Serialize)]
pub(crate) struct CostComparison {
    schema: &'static str,
    version: &'static str,
    argv: Vec<String>,
    /// Both files, by their names.
    pub(crate) names: [String; 2],
    /// Both kernels; null where unknown.
    pub(crate) kernels: [Option<String>; 2],
    /// Where both count a packet.
    pub(crate) counting_point: Known<String>,
    pub(crate) figures: Vec<ComparedFigure>,
}

/// A figure of both.
#[derive(Debug, Serialize)]
pub(crate) struct ComparedFigure {
    /// What it is, with its unit as in other documents.
    pub(crate) key: &'static str,
    /// Null where there is none, such as the time a packet took where none came.
    pub(crate) values: [Option<f64>; 2],
    /// The second by the first.
    pub(crate) ratio: Option<f64>,
}

/// Reads both, and shows them.
pub(super) fn compare(one: &Path, other: &Path, targets: &ResultTargets) -> Result<()> {
    let [before, after] = [read(one)?, read(other)?];
    let both = [(one, &before), (other, &after)];
    counted_alike(both)?;
    let comparison = CostComparison::of(both);
    if let Some(target) = &targets.json {
        target.write_json(&comparison)?;
    }
    if targets.text {
        output::print(&cost_compare::comparison_text(&comparison, TextStyle::stdout()))?;
    }
    Ok(())
}

/// What `--json` of an earlier look wrote.
fn read(path: &Path) -> Result<CostDocument> {
    let shown = path.display().to_string();
    let text = fs::read_to_string(path).with_context(|| shown.clone())?;
    document(&text).with_context(|| shown)
}

/// Time per packet means something else where packets are counted elsewhere.
fn counted_alike(both: [(&Path, &CostDocument); 2]) -> Result<()> {
    let [one, other] = both.map(|(_, document)| document.cost.counting_point.value());
    if one.is_some() && one == other {
        return Ok(());
    }
    let told = both.map(|(path, document)| {
        let version = &document.version;
        let point = match &document.cost.counting_point {
            Known::Value(point) => format!("at \"{point}\""),
            Known::Unknown { .. } => "with each poll that it passes".to_owned(),
        };
        format!("{} counts a packet {point} (version {version})", path.display())
    });
    bail!("the two cannot be compared: {}; run linerate cost --json again for both", told.join(", "))
}

fn document(text: &str) -> Result<CostDocument> {
    let value: serde_json::Value = serde_json::from_str(text)?;
    match value.get("schema").and_then(serde_json::Value::as_str) {
        Some(SCHEMA) => {}
        Some(schema) => bail!("its schema is {schema}; give what linerate cost --json wrote, {SCHEMA}"),
        None => bail!("it names no schema; give what linerate cost --json wrote, {SCHEMA}"),
    }
    Ok(serde_json::from_value(value)?)
}

impl CostComparison {
    pub(crate) fn of(both: [(&Path, &CostDocument); 2]) -> Self {
        let costs = both.map(|(_, document)| &document.cost);
        Self {
            schema: COMPARISON,
            version: env!("CARGO_PKG_VERSION"),
            argv: output::argv(),
            names: both.map(|(path, _)| path.display().to_string()),
            kernels: both.map(|(_, document)| document.host.kernel.clone()),
            counting_point: both[0].1.cost.counting_point.clone(),
            figures: FIGURES.iter().map(|(key, figure)| ComparedFigure::of(key, costs.map(figure))).collect(),
        }
    }
}

impl ComparedFigure {
    fn of(key: &'static str, values: [Option<f64>; 2]) -> Self {
        let ratio = match values {
            [Some(one), Some(other)] if one > 0.0 => Some(other / one),
            _ => None,
        };
        Self { key, values, ratio }
    }
}

type Reader = fn(&CostReport) -> Option<f64>;

/// Each figure and how it is read of a look.
const FIGURES: [(&str, Reader); 18] = [
    ("seconds", |cost| Some(cost.seconds)),
    ("cpus", |cost| Some(cost.cpus.len() as f64)),
    ("packets_per_second", |cost| per_second(cost, cost.all_cpus().entered_packets)),
    ("packets_cpu_ratio", |cost| of_all(cost, CpuCost::packets_ns)),
    ("highest_cpu_packets_ratio", |cost| {
        let shares = cost.cpus.iter().filter_map(|cpu| quotient(cpu.packets_ns(), cpu.elapsed_ns));
        shares.max_by(f64::total_cmp)
    }),
    ("packets_ns_a_packet", |cost| cost.all_cpus().ns_a_packet()),
    ("net_rx_ns_a_packet", |cost| a_packet(cost, |all| all.net_rx_ns)),
    ("net_tx_ns_a_packet", |cost| a_packet(cost, |all| all.net_tx_ns)),
    ("nic_irq_ns_a_packet", |cost| a_packet(cost, |all| all.nic_irq_ns)),
    ("packets_a_poll", |cost| quotient(cost.all_cpus().packets, cost.all_cpus().polls)),
    ("polls_a_run", |cost| cost.all_cpus().polls_a_run()),
    ("budget_exhausted_ratio", |cost| {
        let exhausted = cost.devices.iter().map(|device| device.budget_exhausted).sum();
        quotient(exhausted, cost.devices.iter().map(|device| device.polls).sum())
    }),
    ("ksoftirqd_ratio", |cost| quotient(cost.all_cpus().in_ksoftirqd_ns, cost.all_cpus().packets_ns())),
    ("threads_of_napi_ratio", |cost| quotient(cost.all_cpus().in_threads_ns, cost.all_cpus().packets_ns())),
    ("taken_from_tasks_cpu_ratio", |cost| {
        let taken: u64 = cost.victims.iter().map(|victim| victim.taken_ns).sum();
        quotient(taken, cost.all_cpus().elapsed_ns)
    }),
    ("tasks_cpu_ratio", |cost| of_all(cost, |cpu| cpu.tasks_ns)),
    ("idle_cpu_ratio", |cost| of_all(cost, |cpu| cpu.idle_ns)),
    ("own_cpu_ratio", |cost| cost.own.share.value().copied()),
];

fn quotient(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

fn per_second(cost: &CostReport, count: u64) -> Option<f64> {
    (cost.seconds > 0.0).then(|| count as f64 / cost.seconds)
}

fn of_all(cost: &CostReport, part: fn(&CpuCost) -> u64) -> Option<f64> {
    let all = cost.all_cpus();
    quotient(part(&all), all.elapsed_ns)
}

fn a_packet(cost: &CostReport, part: fn(&CpuCost) -> u64) -> Option<f64> {
    let all = cost.all_cpus();
    quotient(part(&all), all.entered_packets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_documents_are_refused_by_their_schema() {
        for (text, words) in [
            (r#"{"schema": "linerate.load/1"}"#, "its schema is linerate.load/1"),
            ("{}", "it names no schema"),
            ("", "EOF"),
            (r#"{"schema": "linerate.cost/1"}"#, "missing field"),
        ] {
            let error = document(text).expect_err(text);
            assert!(error.to_string().contains(words), "{error}");
        }
    }

    #[test]
    fn figures_that_are_counted_differently_are_refused() {
        let document = crate::render::made_up_cost::document();
        let mut older = document.clone();
        older.cost.counting_point = Known::default();
        let (a, b) = (Path::new("a.json"), Path::new("b.json"));
        assert!(counted_alike([(a, &document), (b, &document)]).is_ok());
        for both in [[(a, &document), (b, &older)], [(a, &older), (b, &document)], [(a, &older), (b, &older)]]
        {
            let error = counted_alike(both).expect_err("refused").to_string();
            assert!(error.contains("a.json") && error.contains("b.json"), "{error}");
        }
        // A result of version 0.1, which has no such key.
        let mut value = serde_json::to_value(&document).expect("JSON");
        value.as_object_mut().expect("an object").remove("counting_point");
        let older: CostDocument = serde_json::from_value(value).expect("read");
        assert!(counted_alike([(a, &document), (b, &older)]).is_err());
    }

    #[test]
    fn nothing_has_no_ratio() {
        assert_eq!(ComparedFigure::of("x", [Some(2.0), Some(3.0)]).ratio, Some(1.5));
        assert_eq!(ComparedFigure::of("x", [Some(0.0), Some(3.0)]).ratio, None);
        assert_eq!(ComparedFigure::of("x", [None, Some(3.0)]).ratio, None);
    }
}
