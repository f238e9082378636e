//! `--compare OLD NEW` of `load`, `lab`, `ladder` and `cost`: two results, figure by figure, as a gate for pipelines.

mod load;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, bail, ensure};
use clap::Args;
use linerate_host::Known;
use linerate_host::stats::{ComparisonVerdict, ConfidenceInterval, RunComparison, RunFigure};
use linerate_lab::ladder::report::LadderReport;
use linerate_trace::cost::{CostComparison, CostReport, CostResult};
use serde::Serialize;

use super::results::ResultTargets;
use crate::envelope::Envelope;
use crate::origin::{self, HostSummary, Warning};
use crate::quantity;

/// Runs of one build differ by a few per cent on a quiet machine.
const DEFAULT_TOLERANCE: f64 = 0.05;

/// Two results to compare instead of a measurement.
#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// Compare two results that were written by --json; exit status 1 if the second is worse
    #[arg(long, num_args = 2, value_names = ["OLD.json", "NEW.json"], help_heading = "Comparison")]
    compare: Vec<PathBuf>,
    /// Smallest difference that counts [default: 5%]
    #[arg(long, value_name = "PERCENT", requires = "compare", value_parser = quantity::parse_share, help_heading = "Comparison")]
    tolerance: Option<f64>,
}

/// The results to compare, and the smallest difference that counts.
#[derive(Debug)]
pub(crate) struct ComparedPaths<'a> {
    paths: [&'a Path; 2],
    tolerance: Option<f64>,
}

impl CompareArgs {
    // `None` without `--compare`.
    pub(crate) fn paths(&self) -> Option<ComparedPaths<'_>> {
        let [old, new] = self.compare.as_slice() else { return None };
        Some(ComparedPaths { paths: [old, new], tolerance: self.tolerance })
    }
}

impl ComparedPaths<'_> {
    /// Compares runs, ramps and searches of `load`.
    pub(crate) fn loads(&self, targets: &ResultTargets) -> Result<ExitCode> {
        let [old, new] = [load::read(self.paths[0])?, load::read(self.paths[1])?];
        self.same_method([&old.method, &new.method])?;
        let figures = old.figures.iter().filter_map(|old| {
            let new = new.figures.iter().find(|new| new.key == old.key)?;
            Some((old.key.clone(), old.less_is_better, [old.value, new.value]))
        });
        let comparison = self.comparison(figures.collect())?;
        self.write(&old.host, Envelope::new(new.host, origin::unix_seconds(), comparison), targets)
    }

    /// Compares the steps that two ladders have in common.
    pub(crate) fn ladders(&self, targets: &ResultTargets) -> Result<ExitCode> {
        let [old, new] = [self.paths[0], self.paths[1]].map(Envelope::<LadderReport>::read);
        let (old, new) = (old?, new?);
        let methods = [&old, &new].map(|envelope| ladder_method(&envelope.host, &envelope.result));
        self.same_method([&methods[0], &methods[1]])?;
        let figures = old.result.steps.iter().filter_map(|step| {
            let same = new.result.steps.iter().find(|other| other.id == step.id)?;
            let values = [step.transactions_per_second?, same.transactions_per_second?];
            let values = values.map(|rate| ConfidenceInterval {
                median: rate.median,
                low: (rate.samples > 2).then_some(rate.low),
                high: (rate.samples > 2).then_some(rate.high),
                samples: rate.samples as usize,
            });
            Some((format!("{}.transactions_per_second", step.id), false, values))
        });
        let comparison = self.comparison(figures.collect())?;
        self.write(&old.host, Envelope::new(new.host, origin::unix_seconds(), comparison), targets)
    }

    /// Compares two costs of packets. The verdict is about their time per packet.
    pub(crate) fn costs(&self, targets: &ResultTargets) -> Result<ExitCode> {
        let [old, new] = [self.paths[0], self.paths[1]].map(Envelope::<CostResult>::read);
        let (old, new) = (old?, new?);
        let costs = [&old.result.cost, &new.result.cost];
        comparable(&self.names(), costs)?;
        let kernels = [old.host.kernel.clone(), new.host.kernel.clone()];
        let judged = self.judged_costs(costs);
        // A gate must not pass because nothing could be judged.
        if let (Err(error), Some(_)) = (&judged, self.tolerance) {
            bail!("{error:#}");
        }
        let judged = Known::from(judged.map_err(|error| format!("{error:#}")));
        let verdict = judged.value().map(|judged| judged.verdict);
        let comparison = CostComparison::new(self.names(), kernels, costs, judged);
        targets.write(&Envelope::new(new.host, origin::unix_seconds(), comparison))?;
        Ok(status(verdict))
    }

    fn judged_costs(&self, costs: [&CostReport; 2]) -> Result<RunComparison> {
        let samples = costs.map(|cost| cost.packets_ns_a_packet_samples.as_slice());
        let values = [load::of_samples(samples[0]), load::of_samples(samples[1])];
        self.comparison(vec![("packets_ns_a_packet".to_owned(), true, values)])
    }

    fn comparison(&self, figures: Vec<(String, bool, [ConfidenceInterval; 2])>) -> Result<RunComparison> {
        let names = self.names();
        ensure!(
            !figures.is_empty(),
            "{} and {} have no figure in common that was measured in both",
            names[0],
            names[1]
        );
        let tolerance = self.tolerance.unwrap_or(DEFAULT_TOLERANCE);
        let figures = figures.into_iter().map(|(key, less_is_better, values)| {
            let short = values.iter().position(|value| value.low.is_none()).map(|place| &names[place]);
            RunFigure::new(key.clone(), less_is_better, values, tolerance).map_err(|error| match short {
                Some(name) => anyhow::anyhow!("{name}: {key}: {error}: measure for longer"),
                None => anyhow::anyhow!("{key}: {error}"),
            })
        });
        let figures = figures.collect::<Result<Vec<_>>>()?;
        Ok(RunComparison::new(names, tolerance, figures))
    }

    fn names(&self) -> [String; 2] {
        self.paths.map(|path| path.display().to_string())
    }

    // Refuses results that were measured in another way, and names the first difference.
    fn same_method(&self, [old, new]: [&MethodFacts; 2]) -> Result<()> {
        let [old_name, new_name] = self.names();
        for ((what, one), (_, other)) in old.0.iter().zip(&new.0) {
            ensure!(
                one == other,
                "the two were not measured in the same way: {what} is {one} in {old_name} and {other} in {new_name}"
            );
        }
        Ok(())
    }

    fn write(
        &self,
        old: &HostSummary,
        envelope: Envelope<RunComparison>,
        targets: &ResultTargets,
    ) -> Result<ExitCode> {
        let [before, now] = [old, &envelope.host].map(|host| {
            [&host.name, &host.kernel].map(|part| part.as_deref().unwrap_or("unknown")).join(" ")
        });
        let moved = (before != now)
            .then(|| Warning::remark(format!("measured on different hosts or kernels: {before}, {now}")));
        let verdict = envelope.result.verdict;
        targets.write(&envelope.with_warnings(moved))?;
        Ok(status(Some(verdict)))
    }
}

fn status(verdict: Option<ComparisonVerdict>) -> ExitCode {
    ExitCode::from(u8::from(verdict == Some(ComparisonVerdict::Worse)))
}

// How a result was measured: names and values that two comparable results have in common.
#[derive(Debug, Default)]
pub(crate) struct MethodFacts(Vec<(&'static str, String)>);

impl MethodFacts {
    fn with(mut self, what: &'static str, value: impl Serialize) -> Self {
        let text = serde_json::to_value(value).map_or_else(
            |error| error.to_string(),
            |value| match value {
                serde_json::Value::String(text) => text,
                other => other.to_string(),
            },
        );
        self.0.push((what, text));
        self
    }

    // The kind of host; its name and kernel may differ.
    fn with_host(self, host: &HostSummary) -> Self {
        self.with("the number of CPUs", host.cpus)
            .with("the CPU model", &host.cpu_model)
            .with("the hypervisor's presence", host.hypervisor)
    }
}

fn ladder_method(host: &HostSummary, report: &LadderReport) -> MethodFacts {
    let (config, testbed) = (&report.config, &report.testbed);
    MethodFacts::default()
        .with("the testbed", testbed.kind)
        .with("the server", config.server.as_ref().map(|server| &server.name))
        .with("the payload in bytes", config.payload_bytes)
        .with("the number of flows", config.flows)
        .with("the loss limit", config.max_loss_ratio)
        .with("the backend", testbed.generator.as_ref().map(|generator| &generator.backend))
        .with("the list of the server's CPUs", &testbed.server_cpus)
        .with("the number of queues", testbed.queues)
        .with_host(host)
}

// Refuses results that count packets at different points, because their times per packet differ in meaning.
fn comparable(names: &[String; 2], costs: [&CostReport; 2]) -> Result<()> {
    let by_path = costs.map(|cost| cost.paths.is_some());
    if by_path[0] != by_path[1] {
        let (with, without) = if by_path[0] { (&names[0], &names[1]) } else { (&names[1], &names[0]) };
        bail!(
            "the two cannot be compared: {with} was measured with --path, which takes time per packet, and {without} without"
        );
    }
    let [one, other] = costs.map(|cost| cost.counting_point.value());
    if one.is_some() && one == other {
        return Ok(());
    }
    let points = costs.map(|cost| match &cost.counting_point {
        Known::Value(point) => format!("at \"{point}\""),
        Known::Unknown { .. } => "at an unknown point".to_owned(),
    });
    let [(a, at_a), (b, at_b)] = [(&names[0], &points[0]), (&names[1], &points[1])];
    bail!(
        "the two cannot be compared: {a} counts packets {at_a}, {b} {at_b}; run linerate cost --json again for both"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::made_up_cost::cost;

    #[test]
    fn results_with_different_counting_points_are_refused() {
        let (new, mut old) = (cost(), cost());
        old.counting_point = Known::default();
        let names = ["a.json".to_owned(), "b.json".to_owned()];
        assert!(comparable(&names, [&new, &new]).is_ok());
        let with_paths = CostReport { paths: Some(Vec::new()), ..cost() };
        let error = comparable(&names, [&new, &with_paths]).expect_err("refused").to_string();
        assert!(
            error.contains("b.json was measured with --path") && error.contains("a.json without"),
            "{error}"
        );
        for costs in [[&new, &old], [&old, &new], [&old, &old]] {
            let error = comparable(&names, costs).expect_err("refused").to_string();
            assert!(error.contains("a.json") && error.contains("b.json"), "{error}");
        }
    }

    #[test]
    fn a_different_method_is_refused_by_its_name() {
        let paths = [Path::new("a.json"), Path::new("b.json")];
        let compared = ComparedPaths { paths, tolerance: None };
        let method = |payload: u32| MethodFacts::default().with("the payload in bytes", payload);
        assert!(compared.same_method([&method(100), &method(100)]).is_ok());
        let error = compared.same_method([&method(100), &method(18)]).expect_err("refused").to_string();
        assert!(error.contains("the payload in bytes is 100 in a.json and 18 in b.json"), "{error}");
    }
}
