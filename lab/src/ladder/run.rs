//! A run of the ladder: each step alternated with the configuration before it, and judged.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use linerate_host::Known;
use linerate_host::stage::machine::CpuTime;
use linerate_load::capacity::OverloadResult;
use linerate_load::stats::{self, ComparisonVerdict};

use crate::ladder::config::{KeepPolicy, LadderConfig};
use crate::ladder::configuration::ServerConfiguration;
use crate::ladder::cpu_use::CpuUse;
use crate::ladder::error::TestbedError;
use crate::ladder::report::{
    self, LadderReport, LadderWarning, SettingDifference, StepReport, TestbedFacts, WarningKind,
};
use crate::ladder::step::{self, BASELINE, LadderStep};
use crate::ladder::summary;
use crate::ladder::testbed::{ConfigurationSamples, SampleRequest, StepSample, Testbed};

#[derive(Debug)]
pub enum LadderEvent<'a> {
    /// A step is about to be measured.
    Step {
        /// Its index among the steps of the run, from 0.
        index: usize,
        of: usize,
        step: &'a LadderStep,
    },
    /// A rate is about to be offered.
    Probe {
        per_second: f64,
        /// Planned time left of the run.
        left: Duration,
    },
    /// A step was measured or skipped.
    Done(&'a StepReport),
}

#[derive(Debug)]
pub struct LadderOutcome {
    pub report: LadderReport,
    /// Warnings about the whole run.
    pub warnings: Vec<LadderWarning>,
    /// The configuration that the policy keeps.
    pub kept: ServerConfiguration,
}

/// Multiples of the capacity offered for `goodput_at_overload`.
const OVERLOAD: [f64; 2] = [2.0, 5.0];
/// A search for a configuration that was measured before starts between these multiples of its median.
pub(crate) const OWN_BRACKET: (f64, f64) = (0.8, 1.25);
/// A search for a new step starts between these multiples of the rate before it.
const STEP_BRACKET: (f64, f64) = (0.5, 2.0);
/// The longest time for the first search, which has no hint. The search needs one to two seconds.
pub(crate) const FIRST_SEARCH: Duration = Duration::from_secs(10);
/// The coarsest grid a search may end on, as a ratio.
const GRID: f64 = 1.05;

/// Measures the steps of `config` on a testbed that is ready.
///
/// # Errors
/// When the baseline could not be measured at all. A step that fails by itself is reported as
/// skipped. If a run is cancelled or cannot continue, the report has the steps until then,
/// including samples of the last step.
pub(crate) fn run(
    testbed: &mut dyn Testbed,
    config: &LadderConfig,
    started: Instant,
    observer: &mut dyn FnMut(&LadderEvent<'_>),
) -> Result<LadderOutcome, TestbedError> {
    let facts = testbed.facts();
    let kind = facts.kind;
    let mut runner = LadderRunner {
        testbed,
        config,
        facts,
        observer,
        started,
        kept: ServerConfiguration::baseline(),
        kept_id: BASELINE,
        kept_rate: None,
        sample_count: 0,
        cpu_use: Vec::new(),
        end_error: None,
    };
    let (mut steps, mut warnings) = runner.run_steps()?;
    let cpu_use = std::mem::take(&mut runner.cpu_use);
    let kept_configuration = runner.kept;
    let published = report::published_ladders();
    for step in &mut steps {
        if step.id == BASELINE {
            let (title, what) = step::baseline_text(config.server.is_some(), kind);
            (step.title, step.what) = (title.to_owned(), what.to_owned());
        }
        step.published_ratio = report::published_ratio(&published, &step.id);
    }
    let facts = testbed.facts();
    warnings.extend(fact_warnings(&facts));
    warnings.extend(testbed.run_warnings());
    let report = LadderReport {
        elapsed_seconds: started.elapsed().as_secs_f64(),
        config: config.clone(),
        testbed: facts,
        settings: None,
        steps,
        cpu_use,
        published,
    };
    Ok(LadderOutcome { report, warnings, kept: kept_configuration })
}

fn fact_warnings(facts: &TestbedFacts) -> Vec<LadderWarning> {
    let detail = "generator and server ran on the same CPUs: the rates are of the machine running both, \
                  and the server alone could reach more";
    let shared_warning = facts.shares_cpus.then(|| LadderWarning::new(WarningKind::SharedCpus, detail));
    let fallbacks = facts.generator.iter().flat_map(|generator| &generator.fallbacks);
    let fallbacks =
        fallbacks.map(|fallback| LadderWarning::new(WarningKind::Fallback, format!("generator: {fallback}")));
    shared_warning.into_iter().chain(fallbacks).collect()
}

struct LadderRunner<'a> {
    testbed: &'a mut dyn Testbed,
    config: &'a LadderConfig,
    facts: TestbedFacts,
    observer: &'a mut dyn FnMut(&LadderEvent<'_>),
    started: Instant,
    kept: ServerConfiguration,
    kept_id: &'static str,
    /// Latest median of `kept`, transactions per second.
    kept_rate: Option<f64>,
    sample_count: u32,
    cpu_use: Vec<CpuUse>,
    /// The error that ended the run in the current step.
    end_error: Option<TestbedError>,
}

impl LadderRunner<'_> {
    fn run_steps(&mut self) -> Result<(Vec<StepReport>, Vec<LadderWarning>), TestbedError> {
        let (mut reports, mut warnings) = (Vec::new(), Vec::new());
        let steps = &self.config.steps;
        for (index, step) in steps.iter().enumerate() {
            (self.observer)(&LadderEvent::Step { index, of: steps.len(), step });
            let report = self.step(step, steps.len() - index);
            let end_error = self.end_error.take();
            if reports.is_empty()
                && !report.applied
                && let Some(error) = end_error
            {
                return Err(error);
            }
            (self.observer)(&LadderEvent::Done(&report));
            reports.push(report);
            if let Some(error) = end_error {
                let id = step.id;
                let detail =
                    format!("ended while measuring {id}, the steps from there on are not measured: {error}");
                warnings.push(LadderWarning::new(WarningKind::Interrupted, detail));
                return Ok((reports, warnings));
            }
            if step.id == BASELINE {
                warnings.extend(self.sample_cpus());
            }
        }
        if self.kept_id != BASELINE {
            warnings.extend(self.sample_cpus());
        }
        Ok((reports, warnings))
    }

    /// Samples the CPUs in the current configuration at its median rate.
    fn sample_cpus(&mut self) -> Option<LadderWarning> {
        let rate = self.kept_rate?;
        let configuration = self.kept.clone();
        let result = self.testbed.switch(&configuration).and_then(|()| self.testbed.cpu_use(rate));
        let (kind, why) = match result {
            Ok(Known::Value(cpu_use)) => {
                self.cpu_use.push(CpuUse { step: self.kept_id.to_owned(), ..cpu_use });
                return None;
            }
            Ok(Known::Unknown { why }) => (WarningKind::Unknown, why),
            Err(error) if error.ends_run() => (WarningKind::Interrupted, error.to_string()),
            Err(error) => (WarningKind::Unknown, error.to_string()),
        };
        Some(LadderWarning::new(kind, format!("who had the CPUs: {why}")))
    }

    fn step(&mut self, step: &'static LadderStep, steps_left: usize) -> StepReport {
        if let Some(why) = self.testbed.refusal(step) {
            return skipped_report(step, why);
        }
        let mut candidate = self.kept.clone();
        (step.change)(&mut candidate);
        let time_before = self.testbed.cpu_time();
        // The next step's share of the time left.
        let time_share = self.time_left() / u32::try_from(steps_left).unwrap_or(u32::MAX).max(1);
        let is_baseline = step.id == BASELINE;
        let samples = if is_baseline {
            self.baseline(&candidate, time_share)
        } else {
            self.alternate(&candidate, time_share)
        };
        if let Some(failed_side) = samples.failed {
            return self.interrupted_step(step, &candidate, &samples.candidate, failed_side);
        }
        let mut report = self.report(step, &candidate, &samples.candidate, time_before);
        report.kept = is_baseline || self.compare(&mut report, &samples);
        if report.kept {
            self.kept = candidate;
            self.kept_id = step.id;
            self.kept_rate = samples.candidate.median();
        } else {
            self.kept_rate = samples.previous.median();
        }
        report
    }

    /// Writes the comparison into the report. Returns whether the step stays.
    fn compare(&self, report: &mut StepReport, samples: &AlternatedSamples) -> bool {
        let comparison = stats::compare(&samples.previous.rates(), &samples.candidate.rates());
        match &comparison {
            Ok(comparison) => report.versus_previous = Some(summary::versus(self.kept_id, comparison)),
            Err(error) => {
                let detail = format!("no comparison with {}: {error}", self.kept_id);
                report.warnings.push(LadderWarning::new(WarningKind::Unknown, detail));
            }
        }
        match self.config.policy {
            KeepPolicy::KeepAll => true,
            KeepPolicy::KeepBetter => {
                comparison.is_ok_and(|comparison| comparison.verdict == ComparisonVerdict::Better)
            }
        }
    }

    /// A step that could not be measured to its end.
    fn interrupted_step(
        &mut self,
        step: &LadderStep,
        candidate: &ServerConfiguration,
        samples: &ConfigurationSamples,
        failed: FailedSide,
    ) -> StepReport {
        let error = match failed {
            FailedSide::Candidate(error) if step.id != BASELINE && !error.ends_run() => {
                return skipped_report(step, error.to_string());
            }
            FailedSide::Candidate(error) | FailedSide::Previous(error) => error,
        };
        let kind = match error {
            TestbedError::GeneratorLost(_) => WarningKind::GeneratorLost,
            _ => WarningKind::Interrupted,
        };
        let count = samples.0.len();
        let mut report = if count == 0 {
            skipped_report(step, format!("the run ended before it was measured: {error}"))
        } else {
            self.measured(step, candidate, samples)
        };
        let detail = format!("ended after {count} of {} samples: {error}", self.required_samples());
        report.warnings.push(LadderWarning::new(kind, detail));
        self.end_error = Some(error);
        report
    }

    /// The baseline has no configuration before it to alternate with.
    fn baseline(&mut self, configuration: &ServerConfiguration, time_share: Duration) -> AlternatedSamples {
        let mut samples = AlternatedSamples::default();
        let required_samples = self.required_samples();
        let budget = (time_share / required_samples).max(self.config.least_sample());
        let candidate_samples = &mut samples.candidate;
        let result = self.testbed.switch(configuration).and_then(|()| {
            candidate_samples.0.push(self.sample(None, FIRST_SEARCH)?);
            while candidate_samples.0.len() < required_samples as usize {
                let hint =
                    candidate_samples.median().map(|rate| bracket(rate, OWN_BRACKET, self.sample_count));
                candidate_samples.0.push(self.sample(hint, budget)?);
            }
            Ok(())
        });
        samples.failed = result.err().map(FailedSide::Candidate);
        samples
    }

    /// Samples in the order A B B A, where A is the configuration before the step.
    fn alternate(&mut self, candidate: &ServerConfiguration, time_share: Duration) -> AlternatedSamples {
        let previous = self.kept.clone();
        let mut samples = AlternatedSamples::default();
        let blocks = self.required_samples().div_ceil(2);
        // One tenth is for switching and for the overload that follows.
        let budget = (time_share * 9 / 10 / (blocks * 4 + 1)).max(self.config.least_sample());
        for _ in 0..blocks {
            for is_candidate in [false, true, true, false] {
                let side_samples = if is_candidate { &samples.candidate } else { &samples.previous };
                // The previous configuration has samples from its own step.
                let known_rate = side_samples.median().or(self.kept_rate.filter(|_| !is_candidate));
                let (hint, time) = match (known_rate, self.kept_rate) {
                    (Some(rate), _) => (Some(bracket(rate, OWN_BRACKET, self.sample_count)), budget),
                    (None, Some(rate)) => (Some(bracket(rate, STEP_BRACKET, self.sample_count)), budget * 2),
                    (None, None) => (None, budget * 2),
                };
                let switch_result = self.testbed.switch(if is_candidate { candidate } else { &previous });
                match switch_result.and_then(|()| self.sample(hint, time)) {
                    Ok(sample) if is_candidate => samples.candidate.0.push(sample),
                    Ok(sample) => samples.previous.0.push(sample),
                    Err(error) => {
                        let side = if is_candidate { FailedSide::Candidate } else { FailedSide::Previous };
                        samples.failed = Some(side(error));
                        return samples;
                    }
                }
            }
        }
        samples
    }

    fn sample(&mut self, hint: Option<(f64, f64)>, budget: Duration) -> Result<StepSample, TestbedError> {
        self.sample_count += 1;
        let time_left = self.time_left();
        let observer = &mut *self.observer;
        let mut on_probe = |per_second| observer(&LadderEvent::Probe { per_second, left: time_left });
        let first_sample =
            self.testbed.sample(&mut SampleRequest { hint, budget, on_probe: &mut on_probe })?;
        if first_sample.transactions_per_second > 0.0 {
            return Ok(first_sample);
        }
        // No rate held. The machine may have been busy; a search without a hint starts at a low rate.
        self.testbed.sample(&mut SampleRequest { hint: None, budget: FIRST_SEARCH, on_probe: &mut on_probe })
    }

    fn measured(
        &self,
        step: &LadderStep,
        candidate: &ServerConfiguration,
        samples: &ConfigurationSamples,
    ) -> StepReport {
        let mut report = empty_report(step);
        report.applied = true;
        report.changes =
            setting_differences(&self.testbed.describe(&self.kept), &self.testbed.describe(candidate));
        summary::fill(&mut report, samples, &self.facts);
        report.warnings.extend(self.testbed.step_warning(step, candidate));
        report
    }

    /// The report with goodput under overload. If the overload fails, the other figures stay valid.
    fn report(
        &mut self,
        step: &LadderStep,
        candidate: &ServerConfiguration,
        samples: &ConfigurationSamples,
        time_before: Known<CpuTime>,
    ) -> StepReport {
        let mut report = self.measured(step, candidate, samples);
        if let Some(capacity) = samples.median() {
            let switch_result = self.testbed.switch(candidate);
            match switch_result.and_then(|()| self.testbed.overload(capacity, &OVERLOAD)) {
                Ok(goodput) => report.goodput_at_overload = overload(&goodput, &mut report.warnings),
                Err(error) => {
                    let detail = format!("goodput above the capacity: {error}");
                    report.warnings.push(LadderWarning::new(WarningKind::Unknown, detail));
                    self.end_error = error.ends_run().then_some(error);
                }
            }
        }
        report.warnings.extend(summary::steal(time_before, self.testbed.cpu_time()));
        report
    }

    fn required_samples(&self) -> u32 {
        self.config.timing.samples.max(4).next_multiple_of(2)
    }

    fn time_left(&self) -> Duration {
        self.config.duration.saturating_sub(self.started.elapsed())
    }
}

/// Samples of two alternated configurations, up to a failure.
#[derive(Default)]
struct AlternatedSamples {
    previous: ConfigurationSamples,
    candidate: ConfigurationSamples,
    failed: Option<FailedSide>,
}

enum FailedSide {
    Previous(TestbedError),
    Candidate(TestbedError),
}

/// Rates around `rate` between which to search for sample number `number`.
///
/// A search ends on one of the rates that it tried. Each sample uses a slightly different bracket,
/// so that samples do not fall on the same grid and seem more alike than they are.
pub(crate) fn bracket(rate: f64, (low, high): (f64, f64), number: u32) -> (f64, f64) {
    // The fractional parts of multiples of the golden ratio are spread evenly, whatever their number.
    let offset = (f64::from(number) * 0.618_033_988_749_895).fract() - 0.5;
    let shift = GRID.powf(offset);
    (rate * low * shift, rate * high * shift)
}

fn empty_report(step: &LadderStep) -> StepReport {
    StepReport {
        id: step.id.to_owned(),
        title: step.title.to_owned(),
        what: step.what.to_owned(),
        ..StepReport::default()
    }
}

fn skipped_report(step: &LadderStep, why: String) -> StepReport {
    StepReport { skipped_because: Some(why), ..empty_report(step) }
}

fn setting_differences(before: &[(String, String)], after: &[(String, String)]) -> Vec<SettingDifference> {
    let before: BTreeMap<&str, &str> =
        before.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    after
        .iter()
        .filter_map(|(name, to)| {
            let from = before.get(name.as_str()).copied().unwrap_or("not set");
            (from != to).then(|| SettingDifference {
                setting: name.clone(),
                from: from.to_owned(),
                to: to.clone(),
            })
        })
        .collect()
}

fn overload(goodput: &[OverloadResult], warnings: &mut Vec<LadderWarning>) -> BTreeMap<String, Option<f64>> {
    goodput
        .iter()
        .map(|goodput| {
            if let Some(why) = goodput.goodput_ratio.why() {
                let detail = format!("goodput at {} times the capacity: {why}", goodput.factor);
                warnings.push(LadderWarning::new(WarningKind::Unknown, detail));
            }
            (goodput.factor.to_string(), goodput.goodput_ratio.value().copied())
        })
        .collect()
}

#[cfg(test)]
mod tests;
