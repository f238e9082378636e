//! The climb: each step alternated with the configuration below it, and judged.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use linerate_host::Known;
use linerate_host::stage::machine::CpuTime;
use linerate_load::stats::{self, ComparisonVerdict};

use crate::ladder::bench::{BenchError, SampleRequest, StepSample, Testbed};
use crate::ladder::configuration::ServerConfiguration;
use crate::ladder::report::{ChangeMade, LadderWarning, RungReport, WarningKind};
use crate::ladder::step::{BASELINE, LadderStep};
use crate::ladder::summary;

/// What stays in place for the steps above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeepPolicy {
    /// Every step that could be applied.
    KeepAll,
    /// Rungs shown to be better than what is below them.
    KeepBetter,
}

impl KeepPolicy {
    /// The policy's name on the command line and in the report.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            KeepPolicy::KeepAll => "keep-all",
            KeepPolicy::KeepBetter => "keep-better",
        }
    }
}

#[derive(Debug, Clone)]
pub struct StepOptions {
    pub policy: KeepPolicy,
    /// Samples of each configuration in a comparison; rounded up to an even number, at least 4.
    pub samples: u32,
    /// Time for the whole climb; taken as far as `least_sample` allows.
    pub budget: Duration,
    /// The least time for a sample. With less, a search ends far from what it looks for.
    pub least_sample: Duration,
    /// Multiples of the capacity to offer for `goodput_at_overload`.
    pub overload: Vec<f64>,
    /// Bits of one transaction on the wire, one direction.
    pub wire_bits_per_transaction: u64,
    /// Speed of the link, bits a second.
    pub link_bits_per_second: u64,
}

/// What happens while climbing.
#[derive(Debug)]
pub enum LadderEvent<'a> {
    /// A step is about to be measured.
    Rung {
        /// Its place among those asked for, from 0.
        index: usize,
        /// How many were asked for.
        of: usize,
        step: &'a LadderStep,
    },
    /// A rate is about to be offered.
    Probing {
        /// Transactions a second.
        per_second: f64,
        /// Time left of the budget.
        left: Duration,
    },
    /// A step is done or was skipped.
    Done(&'a RungReport),
}

/// What a climb comes to.
#[derive(Debug)]
pub struct LadderResult {
    /// A report for each step asked for that was reached.
    pub steps: Vec<RungReport>,
    /// Doubts about the whole climb.
    pub warnings: Vec<LadderWarning>,
    /// What stayed in place.
    pub kept: ServerConfiguration,
}

/// Climbs `steps` in order.
///
/// # Errors
/// When nothing of the baseline could be measured. A step that fails by itself is reported as skipped; a
/// climb that cannot go on, or is told to stop, reports what it has, of the step it was at too.
pub fn climb(
    bench: &mut dyn Testbed,
    steps: &[&'static LadderStep],
    options: &StepOptions,
    observer: &mut dyn FnMut(&LadderEvent<'_>),
) -> Result<LadderResult, BenchError> {
    let mut climber = LadderRunner {
        bench,
        options,
        observer,
        started: Instant::now(),
        kept: ServerConfiguration::baseline(),
        kept_id: BASELINE,
        kept_rate: None,
        taken: 0,
    };
    let (mut reports, mut warnings) = (Vec::new(), Vec::new());
    for (index, step) in steps.iter().enumerate() {
        (climber.observer)(&LadderEvent::Rung { index, of: steps.len(), step });
        let StepProgress { report, ended } = climber.step(step, steps.len() - index);
        if let Some(error) = ended {
            // What was measured by then is worth having.
            if reports.is_empty() && !report.applied {
                return Err(error);
            }
            warnings.push(LadderWarning {
                kind: WarningKind::Interrupted,
                detail: format!(
                    "ended while measuring {}, the steps from there on are not measured: {error}",
                    step.id
                ),
            });
            (climber.observer)(&LadderEvent::Done(&report));
            reports.push(report);
            break;
        }
        (climber.observer)(&LadderEvent::Done(&report));
        reports.push(report);
    }
    Ok(LadderResult { steps: reports, warnings, kept: climber.kept })
}

/// A step as far as it came, and what ended the climb there, if something did.
struct StepProgress {
    report: RungReport,
    ended: Option<BenchError>,
}

struct LadderRunner<'a> {
    bench: &'a mut dyn Testbed,
    options: &'a StepOptions,
    observer: &'a mut dyn FnMut(&LadderEvent<'_>),
    started: Instant,
    kept: ServerConfiguration,
    kept_id: &'static str,
    /// Latest median of what is kept, transactions a second.
    kept_rate: Option<f64>,
    /// Samples taken so far.
    taken: u32,
}

/// Samples of one configuration.
#[derive(Default)]
struct ConfigurationSamples(Vec<StepSample>);

impl ConfigurationSamples {
    fn rates(&self) -> Vec<f64> {
        self.0.iter().map(|sample| sample.transactions_per_second).collect()
    }

    fn median(&self) -> Option<f64> {
        stats::median(&self.rates()).filter(|rate| *rate > 0.0)
    }
}

/// How far a configuration's own samples may lie from their median: the search starts between.
const OWN_BRACKET: (f64, f64) = (0.8, 1.25);
/// The most time for the search that knows nothing yet; it takes a second or two.
const FIRST_SEARCH: Duration = Duration::from_secs(10);
/// The coarsest grid a search may end on, as a ratio.
const GRID: f64 = 1.05;
/// How far a step may lie from the one below, where nothing else is known.
const STEP_BRACKET: (f64, f64) = (0.5, 2.0);

impl LadderRunner<'_> {
    fn step(&mut self, step: &'static LadderStep, steps_left: usize) -> StepProgress {
        if let Some(why) = self.bench.refusal(step) {
            return StepProgress { report: skipped(step, why), ended: None };
        }
        let mut above = self.kept.clone();
        (step.change)(&mut above);
        let time_before = self.bench.cpu_time();
        let share = self.share(steps_left);
        let is_baseline = step.id == BASELINE;
        let taken = if is_baseline { self.baseline(&above, share) } else { self.alternate(&above, share) };
        if let Some(failed) = taken.failed {
            return self.broken_off(step, &above, &taken.above, failed);
        }
        let (mut report, ended) = self.report(step, &above, &taken.above, time_before);
        report.kept = is_baseline || self.compared(&mut report, &taken);
        if report.kept {
            self.kept = above;
            self.kept_id = step.id;
            self.kept_rate = taken.above.median();
        } else {
            self.kept_rate = taken.below.median();
        }
        StepProgress { report, ended }
    }

    /// Writes the comparison into the report, and tells whether the step stays.
    fn compared(&self, report: &mut RungReport, taken: &AlternatedSamples) -> bool {
        let comparison = stats::compare(&taken.below.rates(), &taken.above.rates());
        match &comparison {
            Ok(comparison) => report.versus_previous = Some(summary::versus(self.kept_id, comparison)),
            Err(error) => report.warnings.push(LadderWarning {
                kind: WarningKind::Unknown,
                detail: format!("no comparison with {}: {error}", self.kept_id),
            }),
        }
        match self.options.policy {
            KeepPolicy::KeepAll => true,
            KeepPolicy::KeepBetter => {
                comparison.is_ok_and(|comparison| comparison.verdict == ComparisonVerdict::Better)
            }
        }
    }

    /// A step whose samples are not all there.
    fn broken_off(
        &mut self,
        step: &'static LadderStep,
        above: &ServerConfiguration,
        samples: &ConfigurationSamples,
        failed: FailedSide,
    ) -> StepProgress {
        let error = match failed {
            FailedSide::Above(error) if step.id != BASELINE && !error.ends_the_climb() => {
                return StepProgress { report: skipped(step, error.to_string()), ended: None };
            }
            FailedSide::Above(error) | FailedSide::Below(error) => error,
        };
        let kind = match error {
            BenchError::GeneratorLost(_) => WarningKind::GeneratorLost,
            _ => WarningKind::Interrupted,
        };
        let taken = samples.0.len();
        let mut report = if taken == 0 {
            skipped(step, format!("the climb ended before it was measured: {error}"))
        } else {
            self.measured(step, above, samples)
        };
        let detail = format!("ended after {taken} of {} samples: {error}", self.samples());
        report.warnings.push(LadderWarning { kind, detail });
        StepProgress { report, ended: Some(error) }
    }

    /// The baseline has nothing below it to be alternated with.
    fn baseline(&mut self, configuration: &ServerConfiguration, share: Duration) -> AlternatedSamples {
        let mut taken = AlternatedSamples::default();
        let budget = (share / self.samples()).max(self.options.least_sample);
        let sampled = self.bench.switch(configuration).and_then(|()| {
            taken.above.0.push(self.sample(None, FIRST_SEARCH)?);
            while taken.above.0.len() < self.samples() as usize {
                let hint = taken.above.median().map(|rate| bracket(rate, OWN_BRACKET, self.taken));
                taken.above.0.push(self.sample(hint, budget)?);
            }
            Ok(())
        });
        taken.failed = sampled.err().map(FailedSide::Above);
        taken
    }

    /// A B B A, until there are samples enough.
    fn alternate(&mut self, above: &ServerConfiguration, share: Duration) -> AlternatedSamples {
        let below = self.kept.clone();
        let mut taken = AlternatedSamples::default();
        let blocks = self.samples().div_ceil(2);
        // One part in ten is for switching and for the overload that follows.
        let budget = (share * 9 / 10 / (blocks * 4 + 1)).max(self.options.least_sample);
        for _ in 0..blocks {
            for is_above in [false, true, true, false] {
                let mine = if is_above { &taken.above } else { &taken.below };
                // Of what is below there are samples from its own step; of what is above none yet.
                let known = mine.median().or(self.kept_rate.filter(|_| !is_above));
                let (hint, time) = match (known, self.kept_rate) {
                    (Some(rate), _) => (Some(bracket(rate, OWN_BRACKET, self.taken)), budget),
                    (None, Some(rate)) => (Some(bracket(rate, STEP_BRACKET, self.taken)), budget * 2),
                    (None, None) => (None, budget * 2),
                };
                let switched = self.bench.switch(if is_above { above } else { &below });
                match switched.and_then(|()| self.sample(hint, time)) {
                    Ok(sample) if is_above => taken.above.0.push(sample),
                    Ok(sample) => taken.below.0.push(sample),
                    Err(error) => {
                        taken.failed =
                            Some(if is_above { FailedSide::Above } else { FailedSide::Below }(error));
                        return taken;
                    }
                }
            }
        }
        taken
    }

    fn sample(&mut self, hint: Option<(f64, f64)>, budget: Duration) -> Result<StepSample, BenchError> {
        self.taken += 1;
        let left = self.left();
        let observer = &mut *self.observer;
        let mut probing = |per_second| observer(&LadderEvent::Probing { per_second, left });
        let first = self.bench.sample(&mut SampleRequest { hint, budget, probing: &mut probing })?;
        if first.transactions_per_second > 0.0 {
            return Ok(first);
        }
        // No rate held at all. Where others did before, the machine was held up rather than the
        // server; a search from the bottom tells.
        self.bench.sample(&mut SampleRequest { hint: None, budget: FIRST_SEARCH, probing: &mut probing })
    }

    /// What the samples alone tell.
    fn measured(
        &self,
        step: &'static LadderStep,
        above: &ServerConfiguration,
        samples: &ConfigurationSamples,
    ) -> RungReport {
        let mut report = empty(step);
        report.applied = true;
        report.changes = changes(&self.bench.describe(&self.kept), &self.bench.describe(above));
        summary::fill(&mut report, &samples.0, self.options);
        report.warnings.extend(self.bench.warnings(step, above));
        report
    }

    /// The same, and what happens under overload. Where that cannot be told, the rest still holds.
    fn report(
        &mut self,
        step: &'static LadderStep,
        above: &ServerConfiguration,
        samples: &ConfigurationSamples,
        time_before: Known<CpuTime>,
    ) -> (RungReport, Option<BenchError>) {
        let mut report = self.measured(step, above, samples);
        let mut ended = None;
        if let Some(capacity) = samples.median() {
            let factors = &self.options.overload;
            let offered = self.bench.switch(above).and_then(|()| self.bench.overload(capacity, factors));
            match offered {
                Ok(goodput) => report.goodput_at_overload = overload(&goodput, &mut report.warnings),
                Err(error) => {
                    let detail = format!("goodput above the capacity: {error}");
                    report.warnings.push(LadderWarning { kind: WarningKind::Unknown, detail });
                    ended = Some(error);
                }
            }
        }
        report.warnings.extend(summary::steal(time_before, self.bench.cpu_time()));
        (report, ended)
    }

    fn samples(&self) -> u32 {
        self.options.samples.max(4).next_multiple_of(2)
    }

    /// The next step's part of the time left.
    fn share(&self, steps_left: usize) -> Duration {
        self.left() / u32::try_from(steps_left).unwrap_or(u32::MAX).max(1)
    }

    fn left(&self) -> Duration {
        self.options.budget.saturating_sub(self.started.elapsed())
    }
}

/// Samples of the two configurations that were alternated, as far as it came.
#[derive(Default)]
struct AlternatedSamples {
    below: ConfigurationSamples,
    above: ConfigurationSamples,
    failed: Option<FailedSide>,
}

/// Which of the two failed.
enum FailedSide {
    Below(BenchError),
    Above(BenchError),
}

/// Rates around `rate` between which to search for sample number `number`.
///
/// A search ends on one of the rates it tried. Brackets at slightly different places for each
/// sample keep samples from falling on the same grid and so seeming more alike than they are.
fn bracket(rate: f64, (low, high): (f64, f64), number: u32) -> (f64, f64) {
    // Fractions of the golden ratio's multiples are spread evenly however many there are.
    let place = (f64::from(number) * 0.618_033_988_749_895).fract() - 0.5;
    let shift = GRID.powf(place);
    (rate * low * shift, rate * high * shift)
}

fn empty(step: &LadderStep) -> RungReport {
    RungReport {
        id: step.id.to_owned(),
        title: step.title.to_owned(),
        what: step.what.to_owned(),
        applied: false,
        kept: false,
        skipped_because: None,
        changes: Vec::new(),
        transactions_per_second: None,
        loss_ratio: None,
        latency_ns: None,
        cycles_per_transaction: None,
        instructions_per_transaction: None,
        wire_bits_per_second: None,
        line_rate_ratio: None,
        goodput_at_overload: BTreeMap::new(),
        versus_previous: None,
        published_ratio: None,
        warnings: Vec::new(),
    }
}

fn skipped(step: &LadderStep, why: String) -> RungReport {
    RungReport { skipped_because: Some(why), ..empty(step) }
}

fn changes(before: &[(String, String)], after: &[(String, String)]) -> Vec<ChangeMade> {
    let before: BTreeMap<&str, &str> =
        before.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    after
        .iter()
        .filter_map(|(name, to)| {
            let from = before.get(name.as_str()).copied().unwrap_or("not set");
            (from != to).then(|| ChangeMade { setting: name.clone(), from: from.to_owned(), to: to.clone() })
        })
        .collect()
}

fn overload(
    goodput: &[crate::ladder::bench::OverloadGoodput],
    warnings: &mut Vec<LadderWarning>,
) -> BTreeMap<String, Option<f64>> {
    goodput
        .iter()
        .map(|goodput| {
            if let Some(why) = goodput.ratio.why() {
                let detail = format!("goodput at {} times the capacity: {why}", goodput.factor);
                warnings.push(LadderWarning { kind: WarningKind::Unknown, detail });
            }
            (goodput.factor.to_string(), goodput.ratio.value().copied())
        })
        .collect()
}

#[cfg(test)]
#[path = "climb_tests.rs"]
mod tests;
