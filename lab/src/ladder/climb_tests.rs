use super::*;
use crate::ladder::bench::OverloadGoodput;
use crate::ladder::configuration::PortSharing;
use crate::ladder::step;
use linerate_load::Latency;

/// A bench whose capacity is a pure function of the configuration, with a small fixed scatter.
struct Fake {
    configuration: ServerConfiguration,
    capacity: fn(&ServerConfiguration) -> f64,
    refuse: &'static str,
    fails: fn(&ServerConfiguration) -> Option<BenchError>,
    order: Vec<PortSharing>,
    taken: u32,
    /// The sample, counted from 1, in which no rate holds; 0 for none.
    hiccup_at: u32,
    budgets: Vec<Duration>,
    /// How many samples are taken before the generator is gone.
    lost_after: u32,
}

impl Fake {
    fn new(capacity: fn(&ServerConfiguration) -> f64) -> Self {
        Self {
            configuration: ServerConfiguration::baseline(),
            capacity,
            refuse: "",
            fails: |_| None,
            order: Vec::new(),
            taken: 0,
            hiccup_at: 0,
            budgets: Vec::new(),
            lost_after: u32::MAX,
        }
    }
}

impl Testbed for Fake {
    fn refusal(&self, step: &LadderStep) -> Option<String> {
        (step.id == self.refuse).then(|| "not on this host".to_owned())
    }

    fn describe(&self, configuration: &ServerConfiguration) -> Vec<(String, String)> {
        configuration.server_options()
    }

    fn switch(&mut self, configuration: &ServerConfiguration) -> Result<(), BenchError> {
        self.configuration = configuration.clone();
        (self.fails)(configuration).map_or(Ok(()), Err)
    }

    fn sample(&mut self, request: &mut SampleRequest<'_>) -> Result<StepSample, BenchError> {
        if self.taken == self.lost_after {
            return Err(BenchError::GeneratorLost("198.18.0.2 does not answer".into()));
        }
        self.order.push(self.configuration.sharing);
        self.taken += 1;
        self.budgets.push(request.budget);
        let scatter = 1.0 + f64::from(self.taken * 7 % 5) / 500.0;
        let held = if self.taken == self.hiccup_at { 0.0 } else { scatter };
        let rate = (self.capacity)(&self.configuration) * held;
        (request.probing)(rate);
        Ok(StepSample {
            transactions_per_second: rate,
            loss_ratio: 0.001,
            latency: Latency::new(),
            cycles_per_transaction: Known::unknown("no counters"),
            instructions_per_transaction: Known::Value(10_000.0),
            generator_bound: None,
            unconfirmed: false,
            fallbacks: Vec::new(),
        })
    }

    fn overload(&mut self, _: f64, factors: &[f64]) -> Result<Vec<OverloadGoodput>, BenchError> {
        Ok(factors
            .iter()
            .map(|factor| OverloadGoodput { factor: *factor, ratio: Known::Value(1.0 / factor) })
            .collect())
    }

    fn cpu_time(&self) -> Known<CpuTime> {
        Known::unknown("a fake")
    }

    fn warnings(&self, _: &LadderStep, _: &ServerConfiguration) -> Vec<LadderWarning> {
        Vec::new()
    }
}

const LEAST: Duration = Duration::from_millis(500);

fn options(policy: KeepPolicy) -> StepOptions {
    StepOptions {
        policy,
        samples: 4,
        budget: Duration::from_secs(60),
        least_sample: LEAST,
        overload: vec![2.0, 5.0],
        wire_bits_per_transaction: 1328,
        link_bits_per_second: 10_000_000_000,
    }
}

fn climb_fake(fake: &mut Fake, names: &[&str], policy: KeepPolicy) -> LadderResult {
    let steps = step::select(names.iter().copied()).expect("known steps");
    climb(fake, &steps, &options(policy), &mut |_| {}).expect("climbed")
}

fn by_sharing(configuration: &ServerConfiguration) -> f64 {
    match configuration.sharing {
        PortSharing::OneSocket => 100_000.0,
        PortSharing::Reuseport => 200_000.0,
        PortSharing::SteeredByCpu => 150_000.0,
    }
}

#[test]
fn a_step_is_alternated_with_the_one_below() {
    let mut fake = Fake::new(by_sharing);
    let climbed = climb_fake(&mut fake, &["reuseport"], KeepPolicy::KeepAll);
    use PortSharing::{OneSocket as A, Reuseport as B};
    assert_eq!(fake.order, [A, A, A, A, A, B, B, A, A, B, B, A]);
    let step = &climbed.steps[1];
    let versus = step.versus_previous.as_ref().expect("compared");
    assert_eq!((versus.id.as_str(), versus.verdict), ("baseline", ComparisonVerdict::Better));
    assert!((versus.ratio.median - 2.0).abs() < 0.05, "{versus:?}");
    assert_eq!(step.changes.len(), 1);
    assert_eq!(step.changes[0].setting, "server sockets");
    assert_eq!(step.goodput_at_overload["5"], Some(0.2));
    assert!((step.loss_ratio.expect("measured") - 0.001).abs() < 1e-9);
    let rate = step.transactions_per_second.expect("measured");
    assert!((step.wire_bits_per_second.expect("a rate") - rate.median * 1328.0).abs() < 1.0);
    assert!(step.warnings.iter().any(|warning| warning.detail == "cycles a transaction: no counters"));
    assert_eq!(step.cycles_per_transaction, None);
    assert_eq!(step.instructions_per_transaction, Some(10_000.0));
}

#[test]
fn keep_all_compares_with_a_worse_step_and_keep_better_does_not() {
    let names = ["reuseport", "steer-by-cpu", "pin-threads"];
    let all = climb_fake(&mut Fake::new(by_sharing), &names, KeepPolicy::KeepAll);
    let against = |climbed: &LadderResult, index: usize| {
        climbed.steps[index].versus_previous.as_ref().map(|versus| versus.id.clone()).expect("compared")
    };
    assert_eq!(against(&all, 3), "steer-by-cpu");
    assert!(all.steps.iter().all(|step| step.kept));
    let better = climb_fake(&mut Fake::new(by_sharing), &names, KeepPolicy::KeepBetter);
    assert_eq!(against(&better, 3), "reuseport");
    assert!(!better.steps[2].kept && !better.steps[3].kept);
    assert_eq!(
        better.steps[2].versus_previous.as_ref().map(|versus| versus.verdict),
        Some(ComparisonVerdict::Worse)
    );
}

#[test]
fn a_refused_step_is_skipped_and_the_next_is_compared_with_what_is_there() {
    let mut fake = Fake::new(by_sharing);
    fake.refuse = "reuseport";
    let climbed = climb_fake(&mut fake, &["reuseport", "steer-by-cpu"], KeepPolicy::KeepAll);
    assert_eq!(climbed.steps[1].skipped_because.as_deref(), Some("not on this host"));
    assert!(!climbed.steps[1].applied);
    assert_eq!(climbed.steps[2].versus_previous.as_ref().map(|versus| versus.id.as_str()), Some("baseline"));
}

#[test]
fn a_step_that_fails_is_skipped_with_its_error() {
    let mut fake = Fake::new(by_sharing);
    fake.fails = |configuration| configuration.pinned.then(|| BenchError::Server("no such CPU".into()));
    let climbed = climb_fake(&mut fake, &["pin-threads", "ip-id-skip"], KeepPolicy::KeepAll);
    assert_eq!(climbed.steps[1].skipped_because.as_deref(), Some("server: no such CPU"));
    assert!(climbed.steps[2].applied);
}

#[test]
fn a_climb_told_to_stop_keeps_what_it_has() {
    let mut fake = Fake::new(by_sharing);
    fake.fails = |configuration| configuration.pinned.then_some(BenchError::Cancelled);
    let climbed = climb_fake(&mut fake, &["reuseport", "pin-threads", "ip-id-skip"], KeepPolicy::KeepAll);
    let ids: Vec<&str> = climbed.steps.iter().map(|step| step.id.as_str()).collect();
    assert_eq!(ids, ["baseline", "reuseport", "pin-threads"]);
    assert_eq!(climbed.warnings[0].kind, WarningKind::Interrupted);
    let stopped = &climbed.steps[2];
    assert_eq!(
        stopped.skipped_because.as_deref(),
        Some("the climb ended before it was measured: interrupted")
    );
    assert_eq!(stopped.warnings[0].kind, WarningKind::Interrupted);
    assert_eq!(climbed.kept.sharing, PortSharing::Reuseport);
    assert!(!climbed.kept.pinned);
}

#[test]
fn a_step_whose_generator_is_lost_keeps_its_samples_and_ends_the_climb() {
    let mut fake = Fake::new(by_sharing);
    // Four of the baseline, then below, above, above.
    fake.lost_after = 7;
    let climbed = climb_fake(&mut fake, &["reuseport", "pin-threads"], KeepPolicy::KeepAll);
    assert_eq!(climbed.steps.len(), 2);
    let cut = &climbed.steps[1];
    assert!(cut.applied && !cut.kept && cut.versus_previous.is_none());
    assert_eq!(cut.transactions_per_second.expect("measured").samples, 2);
    let marked = cut.warnings.iter().find(|warning| warning.kind == WarningKind::GeneratorLost);
    assert_eq!(
        marked.expect("marked").detail,
        "ended after 2 of 4 samples: generator lost: 198.18.0.2 does not answer"
    );
    assert_eq!(climbed.kept, ServerConfiguration::baseline());
}

#[test]
fn a_baseline_cut_short_is_reported_and_one_without_a_sample_is_an_error() {
    let steps = step::select(["reuseport"]).expect("known steps");
    let climbed = |lost_after| {
        let mut fake = Fake::new(by_sharing);
        fake.lost_after = lost_after;
        climb(&mut fake, &steps, &options(KeepPolicy::KeepAll), &mut |_| {})
    };
    assert_eq!(climbed(2).expect("two samples").steps.len(), 1);
    assert!(matches!(climbed(0), Err(BenchError::GeneratorLost(_))));
}

#[test]
fn a_sample_where_nothing_held_is_taken_again() {
    let mut fake = Fake::new(by_sharing);
    fake.hiccup_at = 7;
    let climbed = climb_fake(&mut fake, &["reuseport"], KeepPolicy::KeepAll);
    assert_eq!(fake.taken, 13);
    assert!(climbed.steps[1].versus_previous.is_some());
}

#[test]
fn a_search_has_time_however_short_the_climb() {
    let mut fake = Fake::new(by_sharing);
    let steps = step::select([]).expect("the baseline");
    let options = StepOptions { budget: Duration::ZERO, ..options(KeepPolicy::KeepAll) };
    climb(&mut fake, &steps, &options, &mut |_| {}).expect("climbed");
    assert_eq!((fake.budgets[0], fake.budgets[1]), (FIRST_SEARCH, LEAST));
}

#[test]
fn equal_steps_are_not_told_apart() {
    let mut fake = Fake::new(|_| 100_000.0);
    let climbed = climb_fake(&mut fake, &["reuseport"], KeepPolicy::KeepBetter);
    let versus = climbed.steps[1].versus_previous.clone().expect("compared");
    assert_eq!(versus.verdict, ComparisonVerdict::NoDifferenceShown);
    assert!(!climbed.steps[1].kept);
}
