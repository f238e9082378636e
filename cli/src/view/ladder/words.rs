//! Sentences about a run.

use linerate_lab::ladder::config::KeepPolicy;
use linerate_lab::ladder::report::{
    LadderReport, RateEstimate, RatioInterval, StepReport, TestbedKind, VersusPrevious, WarningKind,
};
use linerate_load::stats::ComparisonVerdict;

use crate::envelope::Envelope;
use crate::render::format;

/// A warning, and the steps it applies to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StepCaveat {
    pub(crate) kind: String,
    /// The evidence, in its first form.
    pub(crate) detail: String,
    /// Steps with exactly this evidence.
    pub(crate) steps: Vec<String>,
    /// Steps whose evidence differs in its figures only.
    pub(crate) alike: Vec<String>,
    /// Whether it applies to the run as a whole.
    pub(crate) whole_run: bool,
}

/// Every warning once, ordered by kind, then by first appearance.
pub(crate) fn caveats(envelope: &Envelope<LadderReport>) -> Vec<StepCaveat> {
    let report = &envelope.result;
    let run_warnings = envelope
        .warnings
        .iter()
        .map(|warning| (None, warning.kind.as_deref().unwrap_or("note"), warning.detail.as_str()));
    let step_warnings = report.steps.iter().flat_map(|step| {
        step.warnings
            .iter()
            .map(move |warning| (Some(step.id.as_str()), warning.kind.name(), warning.detail.as_str()))
    });
    let mut caveats: Vec<StepCaveat> = Vec::new();
    for (step, kind, detail) in run_warnings.chain(step_warnings) {
        let key = without_figures(detail);
        // A step is named for other figures; a warning of the whole run would be lost.
        let matching = caveats.iter_mut().find(|caveat| {
            let is_alike = step.is_some() && without_figures(&caveat.detail) == key;
            caveat.kind == kind && (is_alike || caveat.detail == detail)
        });
        let caveat = match matching {
            Some(caveat) => caveat,
            None => {
                caveats.push(StepCaveat {
                    kind: kind.to_owned(),
                    detail: detail.to_owned(),
                    steps: Vec::new(),
                    alike: Vec::new(),
                    whole_run: false,
                });
                let last_index = caveats.len() - 1;
                &mut caveats[last_index]
            }
        };
        match step {
            None => caveat.whole_run = true,
            Some(step) => {
                let is_exact = caveat.detail == detail;
                let is_listed =
                    caveat.steps.iter().chain(&caveat.alike).any(|listed_step| listed_step == step);
                if !is_listed {
                    if is_exact { &mut caveat.steps } else { &mut caveat.alike }.push(step.to_owned());
                }
            }
        }
    }
    // In the order of the kinds; unknown kinds last.
    caveats.sort_by_key(|caveat| {
        WarningKind::ALL.iter().position(|kind| kind.name() == caveat.kind).unwrap_or(usize::MAX)
    });
    caveats
}

impl StepCaveat {
    /// The scope of the caveat: `whole run`, `steps baseline, xps`.
    pub(crate) fn scope(&self) -> String {
        let mut parts = Vec::new();
        if self.whole_run {
            parts.push("the whole run".to_owned());
        }
        match self.steps.as_slice() {
            [] => {}
            [step] => parts.push(format!("step {step}")),
            steps => parts.push(format!("steps {}", steps.join(", "))),
        }
        if !self.alike.is_empty() {
            parts.push(format!("with other figures {}", self.alike.join(", ")));
        }
        parts.join("; ")
    }
}

/// A verdict in words short enough for a table.
pub(crate) fn verdict_name(verdict: ComparisonVerdict) -> &'static str {
    match verdict {
        ComparisonVerdict::Better => "better",
        ComparisonVerdict::Worse => "worse",
        ComparisonVerdict::NoDifferenceShown => "no difference",
    }
}

/// The interval of a ratio if it is known: `1.19–1.30`.
pub(crate) fn ratio_interval(ratio: &RatioInterval) -> Option<String> {
    let (low, high) = ratio.low.zip(ratio.high)?;
    Some(format!("{low:.2}–{high:.2}"))
}

/// Whether the generator, not the server, was the limit of a step's rate.
pub(crate) fn is_lower_bound(step: &StepReport) -> bool {
    step.warnings.iter().any(|warning| warning.kind == WarningKind::GeneratorBound)
}

/// Whether a step was measured and then undone by the policy.
pub(crate) fn was_reverted(report: &LadderReport, step: &StepReport) -> bool {
    step.applied && !step.kept && report.config.policy != KeepPolicy::KeepAll
}

/// Whether the run was stopped before its end.
pub(crate) fn was_interrupted(envelope: &Envelope<LadderReport>) -> bool {
    let interrupted = WarningKind::Interrupted.name();
    envelope.warnings.iter().any(|warning| warning.kind.as_deref() == Some(interrupted))
}

/// The first step with a rate, which is the base of comparisons.
fn first_measured(report: &LadderReport) -> Option<(&StepReport, RateEstimate)> {
    measured_steps(report).next()
}

/// The step with the highest rate, without steps that were undone; of equal steps, the first.
pub(crate) fn fastest(report: &LadderReport) -> Option<(&StepReport, RateEstimate)> {
    measured_steps(report).reduce(|best, next| {
        if next.1.median > best.1.median && !was_reverted(report, next.0) { next } else { best }
    })
}

/// Compares the best step with the first measured step, in one or two sentences.
pub(crate) fn best_step_sentence(report: &LadderReport) -> String {
    let Some(((first_step, first_rate), (best_step, best_rate))) =
        first_measured(report).zip(fastest(report))
    else {
        return "No step was measured.".to_owned();
    };
    if measured_steps(report).count() == 1 {
        return format!("Only {} was measured: {} tps.", first_step.id, format::rate(first_rate.median));
    }
    if std::ptr::eq(first_step, best_step) {
        return format!(
            "No step did better than {}: {} tps.",
            first_step.id,
            format::rate(first_rate.median)
        );
    }
    let at_least = if is_lower_bound(best_step) { "at least " } else { "" };
    let (best_text, first_text) = (format::rate(best_rate.median), format::rate(first_rate.median));
    if let Some(versus) = alternated(first_step, best_step) {
        let interval = ratio_interval(&versus.ratio).map(|bounds| format!(" ({bounds})")).unwrap_or_default();
        return format!(
            "Best: {} with {at_least}{best_text} tps, {} times{interval} the rate of {} when alternated with it: {}.",
            best_step.id,
            format::significant(versus.ratio.median),
            first_step.id,
            verdict_name(versus.verdict),
        );
    }
    let steps = if report.config.policy == KeepPolicy::KeepAll { "steps" } else { "kept steps" };
    let mut sentence = format!(
        "Best: {at_least}{best_text} tps with the {steps} up to {}, {} times the {first_text} of {}.",
        best_step.id,
        format::significant(best_rate.median / first_rate.median),
        first_step.id,
    );
    if best_rate.low <= first_rate.high {
        sentence.push_str(" Their intervals overlap, so it may be chance.");
    }
    sentence
}

/// The gain of the fastest step over the first: from alternation if these two steps were
/// alternated, otherwise from their medians.
pub(crate) fn gain(report: &LadderReport) -> Option<(&StepReport, f64)> {
    let ((first_step, first_rate), (best_step, best_rate)) = first_measured(report).zip(fastest(report))?;
    let ratio = alternated(first_step, best_step)
        .map_or(best_rate.median / first_rate.median, |versus| versus.ratio.median);
    (first_step.id != best_step.id).then_some((first_step, ratio))
}

/// The comparison of `best_step` with `first_step`, if those two were alternated.
fn alternated<'a>(first_step: &StepReport, best_step: &'a StepReport) -> Option<&'a VersusPrevious> {
    best_step.versus_previous.as_ref().filter(|versus| versus.id == first_step.id)
}

fn measured_steps(report: &LadderReport) -> impl Iterator<Item = (&StepReport, RateEstimate)> {
    report
        .steps
        .iter()
        .filter_map(|step| step.transactions_per_second.map(|rate| (step, rate)))
        .filter(|(_, rate)| rate.median.is_finite())
}

/// The limits of a lab's figures; `None` for a testbed with a real link and separate CPUs.
pub(crate) fn lab_caveat(report: &LadderReport) -> Option<String> {
    let is_shared = report.testbed.shares_cpus;
    let cpus = report.testbed.generator.as_ref().map(|generator| format::cpu_list(&generator.cpus));
    let cpus = cpus.unwrap_or_default();
    match (report.testbed.kind, is_shared) {
        (TestbedKind::Lab, true) => Some(format!(
            "Generator and server ran on the same CPUs ({cpus}) over a virtual link: the figures are of this machine, \
             not of a network card.",
        )),
        (TestbedKind::Lab, false) => Some(
            "Generator and server ran on one machine over a virtual link: the figures are of this machine, not of \
             a network card."
                .to_owned(),
        ),
        (_, true) => Some(format!(
            "Generator and server ran on the same CPUs ({cpus}): the figures are of this machine, not of its network card.",
        )),
        (_, false) => None,
    }
}

/// The published ladders whose ratios are shown next to the measured ones.
pub(crate) fn published_sources(report: &LadderReport) -> Vec<&str> {
    let shown_steps: Vec<&str> = report
        .steps
        .iter()
        .filter(|step| step.published_ratio.is_some())
        .map(|step| step.id.as_str())
        .collect();
    report
        .published
        .iter()
        .filter(|ladder| {
            let steps = ladder.steps.iter().map(|step| step.id.as_str());
            let comparisons = ladder.comparisons.iter().map(|comparison| comparison.id.as_str());
            steps.skip(1).chain(comparisons).any(|id| shown_steps.contains(&id))
        })
        .map(|ladder| ladder.id.as_str())
        .collect()
}

/// The machine in one line.
pub(crate) fn machine(envelope: &Envelope<LadderReport>) -> String {
    let (host, report) = (&envelope.host, &envelope.result);
    let kernel = host.kernel.as_deref().unwrap_or("unknown");
    let mut parts = vec![
        format!("Linux {kernel} {}", report.testbed.architecture),
        host.cpu_model.clone().unwrap_or_else(|| "CPU model unknown".to_owned()),
        plural(report.config.cpus.len() as u64, "CPU"),
    ];
    if host.hypervisor == Some(true) {
        parts.push("virtual machine".to_owned());
    }
    parts.push(report.testbed.privilege.replace('-', " "));
    parts.join(" · ")
}

/// The method in one line.
pub(crate) fn method(report: &LadderReport) -> String {
    let LadderReport { config, testbed, .. } = report;
    let hosts = &testbed.generator_hosts;
    let hosts = (!hosts.is_empty()).then(|| format!("load from {}", hosts.join(", ")));
    let flows = testbed.generator.as_ref().map_or(0, |generator| generator.flows);
    // The number of workers of another server is among its settings.
    let workers = config.server.is_none().then(|| plural(testbed.server_cpus.len() as u64, "worker"));
    let load =
        [format!("{} B payload", format::grouped(config.payload_bytes.into())), plural(flows as u64, "flow")];
    let facts = [
        plural(testbed.queues.into(), "queue"),
        format!("loss up to {}", format::percent(config.max_loss_ratio)),
        format!("line rate {}", format::link(testbed.link_bits_per_second)),
        plural(config.timing.samples.into(), "sample"),
        format!("took {}", format::elapsed(report.elapsed_seconds)),
    ];
    hosts.into_iter().chain(load).chain(workers).chain(facts).collect::<Vec<_>>().join(" · ")
}

fn plural(count: u64, noun: &str) -> String {
    format!("{} {noun}{}", format::grouped(count), if count == 1 { "" } else { "s" })
}

/// The sentence with every figure replaced, so that sentences that differ only in figures are
/// equal.
fn without_figures(detail: &str) -> String {
    let mut key = String::with_capacity(detail.len());
    let mut characters = detail.chars().peekable();
    while let Some(character) = characters.next() {
        if !character.is_ascii_digit() {
            key.push(character);
            continue;
        }
        key.push('#');
        // A separator belongs to the figure only if a digit follows it.
        loop {
            let mut lookahead = characters.clone();
            let has_separator = matches!(lookahead.next(), Some('.' | ','))
                && lookahead.next().is_some_and(|c| c.is_ascii_digit());
            if has_separator || characters.peek().is_some_and(char::is_ascii_digit) {
                characters.next();
            } else {
                break;
            }
        }
    }
    key
}

#[cfg(test)]
mod tests {
    use linerate_lab::ladder::report::LadderWarning;

    use super::*;
    use crate::origin::Warning;
    use crate::render::result_fixtures;

    fn warning(kind: WarningKind, detail: &str) -> LadderWarning {
        LadderWarning { kind, detail: detail.to_owned() }
    }

    #[test]
    fn the_method_lists_the_generator_hosts() {
        let mut report = result_fixtures::ladder_run().result;
        report.testbed.generator_hosts = vec!["ssh://a".to_owned(), "ssh://b".to_owned()];
        assert!(method(&report).starts_with("load from ssh://a, ssh://b · "), "{}", method(&report));
    }

    #[test]
    fn equal_caveats_are_merged_and_list_their_steps() {
        let mut envelope = result_fixtures::ladder_run();
        let not_restored =
            |irq| Warning::new("not-restored", format!("the CPUs of IRQ {irq} were '0' before"));
        envelope.warnings = vec![Warning::new("unknown", "no cycles: no counters")];
        envelope.warnings.extend([45, 46, 46].map(not_restored));
        let report = &mut envelope.result;
        for step in &mut report.steps {
            step.warnings.clear();
        }
        report.steps[0].warnings.push(warning(WarningKind::Unknown, "no cycles: no counters"));
        report.steps[1].warnings.push(warning(WarningKind::CpuSteal, "lost 3.5 % of 2 CPUs"));
        report.steps[2].warnings.push(warning(WarningKind::CpuSteal, "lost 12 % of 2 CPUs"));
        report.steps[1].warnings.push(warning(WarningKind::CpuSteal, "lost 4 % of 2 CPUs"));
        let ids: Vec<String> = report.steps.iter().map(|step| step.id.clone()).collect();
        let caveats = caveats(&envelope);
        let details: Vec<&str> = caveats[2..].iter().map(|caveat| caveat.detail.as_str()).collect();
        assert_eq!(details, ["the CPUs of IRQ 45 were '0' before", "the CPUs of IRQ 46 were '0' before"]);
        assert_eq!(caveats[0].kind, "cpu-steal");
        assert_eq!(caveats[0].scope(), format!("step {}; with other figures {}", ids[1], ids[2]));
        assert_eq!(caveats[1].scope(), "the whole run; step baseline");
    }

    #[test]
    fn without_figures_replaces_numbers_with_a_hash() {
        assert_eq!(without_figures("lost 3.5 % of 2 CPUs."), "lost # % of # CPUs.");
        assert_eq!(without_figures("7,530,120, then 5"), "#, then #");
    }

    #[test]
    fn the_best_step_is_reported_with_its_gain_and_caveat() {
        let mut report = result_fixtures::ladder_run().result;
        assert!(best_step_sentence(&report).starts_with("Best: "), "{}", best_step_sentence(&report));
        assert!(!best_step_sentence(&report).contains("overlap"));
        for step in &mut report.steps {
            if let Some(rate) = &mut step.transactions_per_second {
                rate.low = 1.0;
            }
        }
        assert!(best_step_sentence(&report).ends_with("Their intervals overlap, so it may be chance."));
        report.steps.truncate(3);
        assert_eq!(gain(&report).map(|(first, _)| first.id.as_str()), Some("baseline"));
        if let Some(versus) = &mut report.steps[2].versus_previous {
            versus.id = "baseline".to_owned();
        }
        assert_eq!(
            best_step_sentence(&report),
            "Best: reuseport with 231 k tps, 1.24 times (1.19–1.30) the rate of baseline when alternated with it: better."
        );
        assert_eq!(gain(&report).map(|(_, ratio)| ratio), Some(1.242));
        report.steps.truncate(1);
        assert_eq!(gain(&report).map(|(_, ratio)| ratio), None);
        assert_eq!(best_step_sentence(&report), "Only baseline was measured: 204 k tps.");
        report.steps.clear();
        assert_eq!(best_step_sentence(&report), "No step was measured.");
    }

    #[test]
    fn a_run_without_gain_reports_no_better_step() {
        let mut report = result_fixtures::ladder_run().result;
        report.steps.truncate(2);
        assert_eq!(best_step_sentence(&report), "No step did better than baseline: 204 k tps.");
    }

    #[test]
    fn a_step_that_was_undone_is_not_the_best() {
        let mut report = result_fixtures::ladder_run().result;
        report.config.policy = KeepPolicy::KeepBetter;
        let fastest_id = |report: &LadderReport| fastest(report).map(|(step, _)| step.id.clone());
        let undone_id = fastest_id(&report);
        for step in &mut report.steps {
            step.kept = Some(&step.id) != undone_id.as_ref();
        }
        assert_ne!(fastest_id(&report), undone_id);
        assert!(best_step_sentence(&report).contains(" with the kept steps up to "));
        // The baseline of a run that was interrupted in its first step.
        report.steps.truncate(1);
        report.steps[0].kept = false;
        assert_eq!(best_step_sentence(&report), "Only baseline was measured: 204 k tps.");
    }

    #[test]
    fn the_lab_caveat_lists_the_shared_cpus() {
        let mut report = result_fixtures::ladder_run().result;
        assert!(lab_caveat(&report).is_some_and(|text| text.contains("same CPUs (0-1)")));
        report.testbed.shares_cpus = false;
        assert!(lab_caveat(&report).is_some_and(|text| text.contains("one machine")));
        report.testbed.kind = TestbedKind::Host;
        assert_eq!(lab_caveat(&report), None);
    }
}
