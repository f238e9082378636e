//! `--compare OLD NEW` of `load`, `lab`, `ladder` and `cost`: two results, figure by figure, as a gate for pipelines.

mod load;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, bail, ensure};
use clap::Args;
use linerate_host::Known;
use linerate_host::stats::{ComparisonVerdict, ConfidenceInterval, RunComparison, RunFigure};
use linerate_lab::ladder::report::{LadderReport, StepReport};
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
    #[arg(long, value_name = "SHARE", requires = "compare", value_parser = tolerance, help_heading = "Comparison")]
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
    pub(crate) fn compare_loads(&self, targets: &ResultTargets) -> Result<ExitCode> {
        let [old, new] = [load::read(self.paths[0])?, load::read(self.paths[1])?];
        self.check_same_method([&old.method, &new.method])?;
        let figures = old.figures.iter().filter_map(|old| {
            let new = new.figures.iter().find(|new| new.key == old.key)?;
            Some((old.key.clone(), old.less_is_better, [old.value, new.value]))
        });
        let comparison = self.build_comparison(figures.collect())?;
        // A figure that is worse and no lower bound is enough.
        let worse = comparison.figures.iter().filter(|figure| figure.verdict == ComparisonVerdict::Worse);
        let worse_bounds: Option<Vec<&str>> = worse
            .map(|worse| new.figures.iter().find(|figure| figure.key == worse.key)?.bound.as_deref())
            .collect();
        let new_bound = worse_bounds.and_then(|bounds| bounds.first().copied());
        let old_bound = old.figures.iter().find_map(|figure| figure.bound.as_deref());
        let bound_warning = self.judge_bounds(comparison.verdict, [old_bound, new_bound])?;
        let names = self.names();
        let warnings =
            [old.keys_without_partner(&new), new.keys_without_partner(&old)].into_iter().zip(names);
        let warnings = warnings.filter(|(keys, _)| !keys.is_empty()).map(|(keys, name)| {
            let keys = keys.join(", ");
            Warning::remark(format!(
                "{name} has figures that the other lacks, so they are not compared: {keys}"
            ))
        });
        let warnings: Vec<Warning> = bound_warning.into_iter().chain(warnings).collect();
        let envelope = Envelope::new(new.host, origin::unix_seconds(), comparison);
        self.write(&old.host, envelope.with_warnings(warnings), targets)
    }

    // Whether the verdict holds if the service may be better than measured: refuses a worse one, and
    // warns of another.
    fn judge_bounds(
        &self,
        verdict: ComparisonVerdict,
        [old, new]: [Option<&str>; 2],
    ) -> Result<Option<Warning>> {
        let names = self.names();
        match (verdict, old, new) {
            (ComparisonVerdict::Worse, _, Some(reason)) => bail!(
                "{}: its result is a lower bound, so it may be no worse: {reason}; measure again with a faster generator, or search for longer (--time)",
                names[1]
            ),
            (ComparisonVerdict::Better | ComparisonVerdict::NoDifferenceShown, Some(reason), _) => {
                let detail = format!(
                    "{}: its result is a lower bound, so the new one may be worse: {reason}",
                    names[0]
                );
                Ok(Some(Warning::remark(detail)))
            }
            _ => Ok(None),
        }
    }

    /// Compares the steps that two ladders have in common.
    pub(crate) fn compare_ladders(&self, targets: &ResultTargets) -> Result<ExitCode> {
        let [old, new] = [self.paths[0], self.paths[1]].map(Envelope::<LadderReport>::read);
        let (old, new) = (old?, new?);
        let methods = [&old, &new].map(|envelope| ladder_method(&envelope.host, &envelope.result));
        self.check_same_method([&methods[0], &methods[1]])?;
        let mut warnings = Vec::new();
        let figures = old.result.steps.iter().filter_map(|old_step| {
            let new_step = new.result.steps.iter().find(|candidate| candidate.id == old_step.id)?;
            let values = [old_step.transactions_per_second?, new_step.transactions_per_second?];
            let in_place = [&old.result, &new.result].map(|report| steps_in_place(report, &old_step.id));
            if in_place[0] != in_place[1] {
                warnings.push(self.other_steps_warning(&old_step.id, in_place));
                return None;
            }
            let values = values.map(|rate| ConfidenceInterval {
                median: rate.median,
                low: (rate.samples > 2).then_some(rate.low),
                high: (rate.samples > 2).then_some(rate.high),
                samples: rate.samples as usize,
            });
            Some((format!("{}.transactions_per_second", old_step.id), false, values))
        });
        let mut comparison = self.build_comparison(figures.collect())?;
        let (details, has_lost_step) = uncompared_steps(&self.names(), [&old.result, &new.result]);
        warnings.extend(details);
        if has_lost_step {
            comparison.verdict = ComparisonVerdict::Worse;
        }
        let envelope = Envelope::new(new.host, origin::unix_seconds(), comparison);
        self.write(&old.host, envelope.with_warnings(warnings), targets)
    }

    fn other_steps_warning(&self, step: &str, in_place: [Vec<&str>; 2]) -> Warning {
        let [old_name, new_name] = self.names();
        let [old_steps, new_steps] = in_place.map(|steps| steps.join(", "));
        Warning::remark(format!(
            "step {step} is not compared: the steps before it were {old_steps} in {old_name} and \
             {new_steps} in {new_name}"
        ))
    }

    /// Compares two costs of packets. The verdict is about their time per packet.
    pub(crate) fn compare_costs(&self, targets: &ResultTargets) -> Result<ExitCode> {
        let [old, new] = [self.paths[0], self.paths[1]].map(Envelope::<CostResult>::read);
        let (old, new) = (old?, new?);
        let costs = [&old.result.cost, &new.result.cost];
        check_comparable(&self.names(), costs)?;
        let kernels = [old.host.kernel.clone(), new.host.kernel.clone()];
        let comparison_result = self.judged_costs(costs);
        // A gate must not pass because nothing could be judged.
        if let (Err(error), Some(_)) = (&comparison_result, self.tolerance) {
            bail!("{error:#}");
        }
        let comparison_result = Known::from(comparison_result.map_err(|error| format!("{error:#}")));
        let verdict = comparison_result.value().map(|comparison_result| comparison_result.verdict);
        let comparison = CostComparison::new(self.names(), kernels, costs, comparison_result);
        targets.write(&Envelope::new(new.host, origin::unix_seconds(), comparison))?;
        Ok(status(verdict))
    }

    fn judged_costs(&self, costs: [&CostReport; 2]) -> Result<RunComparison> {
        let samples = costs.map(|cost| cost.packets_ns_a_packet_samples.as_slice());
        let values = [load::confidence_interval(samples[0]), load::confidence_interval(samples[1])];
        self.build_comparison(vec![("packets_ns_a_packet".to_owned(), true, values)])
    }

    fn build_comparison(
        &self,
        figures: Vec<(String, bool, [ConfidenceInterval; 2])>,
    ) -> Result<RunComparison> {
        let names = self.names();
        ensure!(
            !figures.is_empty(),
            "{} and {} have no figure in common that was measured in both",
            names[0],
            names[1]
        );
        let tolerance = self.tolerance.unwrap_or(DEFAULT_TOLERANCE);
        let figures = figures.into_iter().map(|(key, less_is_better, values)| {
            let short_name = values.iter().position(|value| value.low.is_none()).map(|index| &names[index]);
            RunFigure::new(key.clone(), less_is_better, values, tolerance).map_err(|error| match short_name {
                Some(name) => {
                    let is_search = key == load::CAPACITY_KEY;
                    let advice =
                        if is_search { "search more often (--searches)" } else { "measure for longer" };
                    anyhow::anyhow!("{name}: {key}: {error}: {advice}")
                }
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
    fn check_same_method(&self, [old, new]: [&MethodFacts; 2]) -> Result<()> {
        let [old_name, new_name] = self.names();
        for ((fact_name, old_value), (_, new_value)) in old.0.iter().zip(&new.0) {
            ensure!(
                old_value == new_value,
                "the two were not measured in the same way: {fact_name} is {old_value} in {old_name} and {new_value} in {new_name}"
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
        let [before, after] = [old, &envelope.host].map(|host| {
            [&host.name, &host.kernel].map(|part| part.as_deref().unwrap_or("unknown")).join(" ")
        });
        let host_warning = (before != after)
            .then(|| Warning::remark(format!("measured on different hosts or kernels: {before}, {after}")));
        let verdict = envelope.result.verdict;
        targets.write(&envelope.with_warnings(host_warning))?;
        Ok(status(Some(verdict)))
    }
}

/// Parses a tolerance. A greater one would hide any difference: 1 is 100 %, not 1 %.
fn tolerance(text: &str) -> Result<f64, String> {
    let share = quantity::parse_share(text).ok().filter(|share| *share <= 0.5);
    share.ok_or_else(|| format!("'{text}' is no share up to 50% such as 5% or 0.05"))
}

/// The measured steps that one of two ladders lacks, and whether the new one could not measure one
/// of the old.
fn uncompared_steps(names: &[String; 2], [old, new]: [&LadderReport; 2]) -> (Vec<Warning>, bool) {
    let [old_name, new_name] = names;
    let mut has_lost_step = false;
    let mut details = Vec::new();
    for StepReport { id, .. } in old.steps.iter().filter(|step| step.transactions_per_second.is_some()) {
        match new.steps.iter().find(|step| step.id == *id) {
            None => details.push(format!("step {id} is in {old_name} only")),
            Some(step) if step.transactions_per_second.is_none() => {
                has_lost_step = true;
                let reason = step.skipped_because.as_deref().unwrap_or("no rate held");
                details.push(format!("step {id} was measured in {old_name} and not in {new_name}: {reason}"));
            }
            Some(_) => {}
        }
    }
    for StepReport { id, .. } in new.steps.iter().filter(|step| step.transactions_per_second.is_some()) {
        let old_step = old.steps.iter().find(|step| step.id == *id);
        if old_step.is_none_or(|step| step.transactions_per_second.is_none()) {
            details.push(format!("step {id} was measured in {new_name} only"));
        }
    }
    (details.into_iter().map(Warning::remark).collect(), has_lost_step)
}

fn status(verdict: Option<ComparisonVerdict>) -> ExitCode {
    ExitCode::from(u8::from(verdict == Some(ComparisonVerdict::Worse)))
}

// How a result was measured: names and values that two comparable results have in common.
#[derive(Debug, Default)]
pub(crate) struct MethodFacts(Vec<(&'static str, String)>);

impl MethodFacts {
    fn with_fact(mut self, fact_name: &'static str, value: impl Serialize) -> Self {
        let text = serde_json::to_value(value).map_or_else(
            |error| error.to_string(),
            |value| match value {
                serde_json::Value::String(text) => text,
                number => number.to_string(),
            },
        );
        self.0.push((fact_name, text));
        self
    }

    // The kind of host; its name and kernel may differ.
    fn with_host(self, host: &HostSummary) -> Self {
        self.with_fact("the number of CPUs", host.cpus)
            .with_fact("the CPU model", &host.cpu_model)
            .with_fact("the hypervisor's presence", host.hypervisor)
    }
}

// The steps whose settings were in place when a step was measured.
fn steps_in_place<'r>(report: &'r LadderReport, id: &str) -> Vec<&'r str> {
    let steps_before = report.steps.iter().take_while(|step| step.id != id);
    steps_before.filter(|step| step.kept).map(|step| step.id.as_str()).collect()
}

fn ladder_method(host: &HostSummary, report: &LadderReport) -> MethodFacts {
    let (config, testbed) = (&report.config, &report.testbed);
    MethodFacts::default()
        .with_fact("the testbed", testbed.kind)
        .with_fact("the server", config.server.as_ref().map(|server| &server.name))
        .with_fact("the payload in bytes", config.payload_bytes)
        .with_fact("the number of flows", config.flows)
        .with_fact("the loss limit", config.max_loss_ratio)
        .with_fact("the backend", testbed.generator.as_ref().map(|generator| &generator.backend))
        .with_fact("the list of the server's CPUs", &testbed.server_cpus)
        .with_fact("the number of queues", testbed.queues)
        .with_host(host)
}

// Refuses results that count packets at different points, because their times per packet differ in meaning.
fn check_comparable(names: &[String; 2], costs: [&CostReport; 2]) -> Result<()> {
    let has_paths = costs.map(|cost| cost.paths.is_some());
    if has_paths[0] != has_paths[1] {
        let (with_paths, without_paths) =
            if has_paths[0] { (&names[0], &names[1]) } else { (&names[1], &names[0]) };
        bail!(
            "the two cannot be compared: {with_paths} was measured with --path, which takes time per packet, and {without_paths} without"
        );
    }
    let [old_point, new_point] = costs.map(|cost| cost.counting_point.value());
    if old_point.is_some() && old_point == new_point {
        return Ok(());
    }
    let place_texts = costs.map(|cost| match &cost.counting_point {
        Known::Value(point) => format!("at \"{point}\""),
        Known::Unknown { .. } => "at an unknown point".to_owned(),
    });
    let [(old_name, old_place), (new_name, new_place)] =
        [(&names[0], &place_texts[0]), (&names[1], &place_texts[1])];
    bail!(
        "the two cannot be compared: {old_name} counts packets {old_place}, {new_name} {new_place}; run linerate cost --json again for both"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::cost_fixtures::cost;

    #[test]
    fn results_with_different_counting_points_are_refused() {
        let (new, mut old) = (cost(), cost());
        old.counting_point = Known::default();
        let names = ["a.json".to_owned(), "b.json".to_owned()];
        assert!(check_comparable(&names, [&new, &new]).is_ok());
        let with_paths = CostReport { paths: Some(Vec::new()), ..cost() };
        let error = check_comparable(&names, [&new, &with_paths]).expect_err("refused").to_string();
        assert!(
            error.contains("b.json was measured with --path") && error.contains("a.json without"),
            "{error}"
        );
        for costs in [[&new, &old], [&old, &new], [&old, &old]] {
            let error = check_comparable(&names, costs).expect_err("refused").to_string();
            assert!(error.contains("a.json") && error.contains("b.json"), "{error}");
        }
    }

    #[test]
    fn a_lower_bound_is_not_judged_worse() {
        let comparison = ComparedPaths { paths: [Path::new("a.json"), Path::new("b.json")], tolerance: None };
        let (none, bound) = (None, Some("no higher rate was judged"));
        let judge = |verdict, bounds| comparison.judge_bounds(verdict, bounds);
        let error = judge(ComparisonVerdict::Worse, [none, bound]).expect_err("refused").to_string();
        assert!(error.starts_with("b.json: its result is a lower bound"), "{error}");
        let warning = judge(ComparisonVerdict::Better, [bound, none]).expect("judged").expect("a warning");
        assert!(warning.detail.starts_with("a.json: its result is a lower bound"), "{}", warning.detail);
        for (verdict, bounds) in [
            (ComparisonVerdict::Worse, [bound, none]),
            (ComparisonVerdict::Better, [none, bound]),
            (ComparisonVerdict::NoDifferenceShown, [none, bound]),
        ] {
            assert!(judge(verdict, bounds).expect("judged").is_none());
        }
    }
}
