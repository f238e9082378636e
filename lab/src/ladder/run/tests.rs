use super::*;
use crate::ladder::config::RunTiming;
use crate::ladder::configuration::PortSharing;
use crate::ladder::step;
use crate::program::ServerRecipe;
use linerate_load::SendMethod;

type OverloadFailure = fn() -> Option<TestbedError>;

/// A testbed whose capacity is a function of the configuration, with a small fixed scatter.
struct FakeTestbed {
    configuration: ServerConfiguration,
    capacity: fn(&ServerConfiguration) -> f64,
    refuse: &'static str,
    fails: fn(&ServerConfiguration) -> Option<TestbedError>,
    order: Vec<PortSharing>,
    sample_count: u32,
    /// The sample, counted from 1, in which no rate holds; 0 for none.
    hiccup_at: u32,
    budgets: Vec<Duration>,
    /// The number of samples before the generator is lost.
    lost_after: u32,
    overload_fails: OverloadFailure,
}

impl FakeTestbed {
    fn new(capacity: fn(&ServerConfiguration) -> f64) -> Self {
        Self {
            configuration: ServerConfiguration::baseline(),
            capacity,
            refuse: "",
            fails: |_| None,
            order: Vec::new(),
            sample_count: 0,
            hiccup_at: 0,
            budgets: Vec::new(),
            lost_after: u32::MAX,
            overload_fails: || None,
        }
    }
}

impl Testbed for FakeTestbed {
    fn refusal(&self, step: &LadderStep) -> Option<String> {
        (step.id == self.refuse).then(|| "not on this host".to_owned())
    }

    fn describe(&self, configuration: &ServerConfiguration) -> Vec<(String, String)> {
        configuration.server_options()
    }

    fn switch(&mut self, configuration: &ServerConfiguration) -> Result<(), TestbedError> {
        self.configuration = configuration.clone();
        (self.fails)(configuration).map_or(Ok(()), Err)
    }

    fn sample(&mut self, request: &mut SampleRequest<'_>) -> Result<StepSample, TestbedError> {
        if self.sample_count == self.lost_after {
            return Err(TestbedError::GeneratorLost("198.18.0.2 does not answer".into()));
        }
        self.order.push(self.configuration.sharing);
        self.sample_count += 1;
        self.budgets.push(request.budget);
        let scatter = 1.0 + f64::from(self.sample_count * 7 % 5) / 500.0;
        let factor = if self.sample_count == self.hiccup_at { 0.0 } else { scatter };
        let rate = (self.capacity)(&self.configuration) * factor;
        (request.on_probe)(rate);
        Ok(StepSample {
            transactions_per_second: rate,
            loss_ratio: 0.001,
            cycles_per_transaction: Known::unknown("no counters"),
            instructions_per_transaction: Known::Value(10_000.0),
            ..StepSample::default()
        })
    }

    fn overload(&mut self, _: f64, factors: &[f64]) -> Result<Vec<OverloadResult>, TestbedError> {
        if let Some(error) = (self.overload_fails)() {
            return Err(error);
        }
        Ok(factors
            .iter()
            .map(|factor| OverloadResult {
                factor: *factor,
                offered_per_second: 0.0,
                send_method: SendMethod::default(),
                goodput_ratio: Known::Value(1.0 / factor),
            })
            .collect())
    }

    fn cpu_time(&self) -> Known<CpuTime> {
        Known::unknown("a fake")
    }

    fn cpu_use(&mut self, per_second: f64) -> Result<Known<CpuUse>, TestbedError> {
        Ok(Known::Value(CpuUse { offered_per_second: per_second, ..CpuUse::default() }))
    }

    fn facts(&self) -> TestbedFacts {
        TestbedFacts {
            link_bits_per_second: 10_000_000_000,
            wire_bits_per_transaction: 1328,
            ..TestbedFacts::default()
        }
    }
}

/// A run whose samples take at least [`LEAST`].
fn config(steps: Vec<&'static LadderStep>, policy: KeepPolicy) -> LadderConfig {
    let timing = RunTiming { slot: LEAST / 6, samples: 4, ..RunTiming::LAB };
    LadderConfig { policy, duration: Duration::from_secs(60), ..LadderConfig::new(steps, timing) }
}

const LEAST: Duration = Duration::from_millis(600);

fn run_fake(fake: &mut FakeTestbed, names: &[&str], policy: KeepPolicy) -> LadderOutcome {
    let steps = step::select(names.iter().copied()).expect("known steps");
    run_config(fake, &config(steps, policy)).expect("a report")
}

fn run_config(fake: &mut FakeTestbed, config: &LadderConfig) -> Result<LadderOutcome, TestbedError> {
    run(fake, config, Instant::now(), &mut |_| {})
}

fn by_sharing(configuration: &ServerConfiguration) -> f64 {
    match configuration.sharing {
        PortSharing::OneSocket => 100_000.0,
        PortSharing::Reuseport => 200_000.0,
        PortSharing::SteeredByCpu => 150_000.0,
    }
}

#[test]
fn each_step_alternates_with_the_previous_configuration() {
    let mut fake = FakeTestbed::new(by_sharing);
    let outcome = run_fake(&mut fake, &["reuseport"], KeepPolicy::KeepAll);
    use PortSharing::{OneSocket as A, Reuseport as B};
    assert_eq!(fake.order, [A, A, A, A, A, B, B, A, A, B, B, A]);
    let step = &outcome.report.steps[1];
    let versus = step.versus_previous.as_ref().expect("compared");
    assert_eq!((versus.id.as_str(), versus.verdict), ("baseline", ComparisonVerdict::Better));
    assert!((versus.ratio.median - 2.0).abs() < 0.05, "{versus:?}");
    assert_eq!(step.changes.len(), 1);
    assert_eq!(step.changes[0].setting, "server sockets");
    assert_eq!(step.goodput_at_overload["5"], Some(0.2));
    assert!((step.loss_ratio.expect("measured") - 0.001).abs() < 1e-9);
    let rate = step.transactions_per_second.expect("measured");
    assert!((step.wire_bits_per_second.expect("a rate") - rate.median * 1328.0).abs() < 1.0);
    assert!(step.warnings.iter().any(|warning| warning.detail == "cycles per transaction: no counters"));
    assert_eq!(step.cycles_per_transaction, None);
    assert_eq!(step.instructions_per_transaction, Some(10_000.0));
}

#[test]
fn the_baseline_is_described_as_what_was_measured() {
    let what = |server: Option<ServerRecipe>| {
        let config = LadderConfig { server, ..config(step::select([]).expect("known"), KeepPolicy::KeepAll) };
        let outcome = run_config(&mut FakeTestbed::new(by_sharing), &config).expect("a report");
        outcome.report.steps[0].what.clone()
    };
    let nsd = ServerRecipe::of_running("nsd", 53, "echo");
    assert!(what(None).starts_with("One worker per CPU"));
    assert!(what(Some(nsd)).starts_with("The server with one worker"));
}

#[test]
fn only_keep_all_compares_with_a_worse_step() {
    let names = ["reuseport", "steer-by-cpu", "pin-threads"];
    let all = run_fake(&mut FakeTestbed::new(by_sharing), &names, KeepPolicy::KeepAll);
    let against = |outcome: &LadderOutcome, index: usize| {
        outcome.report.steps[index]
            .versus_previous
            .as_ref()
            .map(|versus| versus.id.clone())
            .expect("compared")
    };
    assert_eq!(against(&all, 3), "steer-by-cpu");
    assert!(all.report.steps.iter().all(|step| step.kept));
    let better = run_fake(&mut FakeTestbed::new(by_sharing), &names, KeepPolicy::KeepBetter);
    assert_eq!(against(&better, 3), "reuseport");
    assert!(!better.report.steps[2].kept && !better.report.steps[3].kept);
    assert_eq!(
        better.report.steps[2].versus_previous.as_ref().map(|versus| versus.verdict),
        Some(ComparisonVerdict::Worse)
    );
}

#[test]
fn a_refused_step_is_skipped_and_the_next_compares_with_baseline() {
    let mut fake = FakeTestbed::new(by_sharing);
    fake.refuse = "reuseport";
    let outcome = run_fake(&mut fake, &["reuseport", "steer-by-cpu"], KeepPolicy::KeepAll);
    assert_eq!(outcome.report.steps[1].skipped_because.as_deref(), Some("not on this host"));
    assert!(!outcome.report.steps[1].applied);
    assert_eq!(
        outcome.report.steps[2].versus_previous.as_ref().map(|versus| versus.id.as_str()),
        Some("baseline")
    );
}

#[test]
fn a_step_that_fails_is_skipped_with_its_error() {
    let mut fake = FakeTestbed::new(by_sharing);
    fake.fails = |configuration| configuration.pinned.then(|| TestbedError::Server("no such CPU".into()));
    let outcome = run_fake(&mut fake, &["pin-threads", "ip-id-skip"], KeepPolicy::KeepAll);
    assert_eq!(outcome.report.steps[1].skipped_because.as_deref(), Some("server: no such CPU"));
    assert!(outcome.report.steps[2].applied);
}

#[test]
fn an_error_of_the_overload_ends_the_run_only_if_no_step_can_be_measured() {
    let cases: [(OverloadFailure, usize); 2] = [
        (|| Some(TestbedError::Server("not bound in time".into())), 2),
        (|| Some(TestbedError::Cancelled), 1),
    ];
    for (overload_fails, steps) in cases {
        let mut fake = FakeTestbed { overload_fails, ..FakeTestbed::new(by_sharing) };
        let outcome = run_fake(&mut fake, &["reuseport"], KeepPolicy::KeepAll);
        assert_eq!(outcome.report.steps.len(), steps);
        let baseline = &outcome.report.steps[0];
        assert!(baseline.applied && baseline.goodput_at_overload.is_empty());
        assert!(baseline.warnings.iter().any(|warning| warning.detail.starts_with("goodput above")));
    }
}

#[test]
fn a_cancelled_run_reports_the_steps_before_cancellation() {
    let mut fake = FakeTestbed::new(by_sharing);
    fake.fails = |configuration| configuration.pinned.then_some(TestbedError::Cancelled);
    let outcome = run_fake(&mut fake, &["reuseport", "pin-threads", "ip-id-skip"], KeepPolicy::KeepAll);
    let ids: Vec<&str> = outcome.report.steps.iter().map(|step| step.id.as_str()).collect();
    assert_eq!(ids, ["baseline", "reuseport", "pin-threads"]);
    assert_eq!(outcome.warnings[0].kind, WarningKind::Interrupted);
    let interrupted_step = &outcome.report.steps[2];
    assert_eq!(
        interrupted_step.skipped_because.as_deref(),
        Some("the run ended before it was measured: interrupted")
    );
    assert_eq!(interrupted_step.warnings[0].kind, WarningKind::Interrupted);
    assert_eq!(outcome.kept.sharing, PortSharing::Reuseport);
    assert!(!outcome.kept.pinned);
}

#[test]
fn losing_the_generator_ends_the_run_and_keeps_samples() {
    let mut fake = FakeTestbed::new(by_sharing);
    // Four samples of the baseline, then one of the previous configuration and two of the
    // candidate.
    fake.lost_after = 7;
    let outcome = run_fake(&mut fake, &["reuseport", "pin-threads"], KeepPolicy::KeepAll);
    assert_eq!(outcome.report.steps.len(), 2);
    let interrupted_step = &outcome.report.steps[1];
    assert!(interrupted_step.applied && !interrupted_step.kept && interrupted_step.versus_previous.is_none());
    assert_eq!(interrupted_step.transactions_per_second.expect("measured").samples, 2);
    let lost_warning =
        interrupted_step.warnings.iter().find(|warning| warning.kind == WarningKind::GeneratorLost);
    assert_eq!(
        lost_warning.expect("a warning").detail,
        "ended after 2 of 4 samples: generator lost: 198.18.0.2 does not answer"
    );
    assert_eq!(outcome.kept, ServerConfiguration::baseline());
}

#[test]
fn an_incomplete_baseline_is_reported_if_any_sample_exists() {
    let steps = step::select(["reuseport"]).expect("known steps");
    let config = config(steps, KeepPolicy::KeepAll);
    let outcome = |lost_after| {
        let mut fake = FakeTestbed::new(by_sharing);
        fake.lost_after = lost_after;
        run_config(&mut fake, &config)
    };
    assert_eq!(outcome(2).expect("two samples").report.steps.len(), 1);
    assert!(matches!(outcome(0), Err(TestbedError::GeneratorLost(_))));
}

#[test]
fn a_sample_in_which_no_rate_holds_is_repeated() {
    let mut fake = FakeTestbed::new(by_sharing);
    fake.hiccup_at = 7;
    let outcome = run_fake(&mut fake, &["reuseport"], KeepPolicy::KeepAll);
    assert_eq!(fake.sample_count, 13);
    assert!(outcome.report.steps[1].versus_previous.is_some());
}

#[test]
fn searches_have_a_minimum_budget_in_a_zero_duration_run() {
    let mut fake = FakeTestbed::new(by_sharing);
    let steps = step::select([]).expect("the baseline");
    let config = LadderConfig { duration: Duration::ZERO, ..config(steps, KeepPolicy::KeepAll) };
    run_config(&mut fake, &config).expect("a report");
    assert_eq!((fake.budgets[0], fake.budgets[1]), (FIRST_SEARCH, LEAST));
}

#[test]
fn steps_of_equal_capacity_show_no_difference() {
    let mut fake = FakeTestbed::new(|_| 100_000.0);
    let outcome = run_fake(&mut fake, &["reuseport"], KeepPolicy::KeepBetter);
    let versus = outcome.report.steps[1].versus_previous.clone().expect("compared");
    assert_eq!(versus.verdict, ComparisonVerdict::NoDifferenceShown);
    assert!(!outcome.report.steps[1].kept);
}
