//! Results for tests. Every figure in them is made up: nothing here was measured on any machine.

use linerate_lab::ladder::report::{LadderReport, LadderWarning, StepReport, WarningKind};

use crate::envelope::Envelope;
use crate::origin::Warning;

/// A run with every kind of step: better, worse, neither, skipped, bounded by the generator, noisy.
pub(crate) fn ladder_run() -> Envelope<LadderReport> {
    serde_json::from_str(include_str!("result_fixtures.json")).expect("the fixture is a report")
}

// A run in which no step could be measured.
pub(crate) fn all_skipped() -> Envelope<LadderReport> {
    let mut report = ladder_run();
    for step in &mut report.result.steps {
        *step = StepReport {
            applied: false,
            kept: false,
            skipped_because: Some("needs root: made-up reason".to_owned()),
            changes: Vec::new(),
            transactions_per_second: None,
            loss_ratio: None,
            latency_ns: None,
            cycles_per_transaction: None,
            instructions_per_transaction: None,
            wire_bits_per_second: None,
            line_rate_ratio: None,
            goodput_at_overload: [("2".to_owned(), None), ("5".to_owned(), None)].into(),
            versus_previous: None,
            warnings: Vec::new(),
            ..step.clone()
        };
    }
    report
}

/// A run on a machine that reports as little as possible.
pub(crate) fn little_known() -> Envelope<LadderReport> {
    let mut report = ladder_run();
    report.host.cpu_model = None;
    report.result.testbed.numa_nodes = None;
    report.host.hypervisor = None;
    report.result.published.clear();
    report.result.steps.truncate(4);
    for step in &mut report.result.steps {
        step.latency_ns = None;
        step.loss_ratio = None;
        step.cycles_per_transaction = None;
        step.instructions_per_transaction = None;
        step.goodput_at_overload.clear();
        step.published_ratio = None;
        if let Some(versus) = &mut step.versus_previous {
            versus.ratio.low = None;
            versus.ratio.high = None;
        }
        step.warnings = vec![LadderWarning {
            kind: WarningKind::Unknown,
            detail: "cycles and instructions: this machine has no hardware counters".to_owned(),
        }];
    }
    report
}

/// A run that was stopped after three steps.
pub(crate) fn interrupted_run() -> Envelope<LadderReport> {
    let mut report = ladder_run();
    let skipped_run = all_skipped();
    for (step, skipped_step) in report.result.steps.iter_mut().zip(skipped_run.result.steps).skip(3) {
        *step = skipped_step;
        step.skipped_because = Some("interrupted before its turn".to_owned());
    }
    report.warnings.push(Warning::new("interrupted", "stopped by SIGINT after 3 of 14 steps"));
    report
}

/// A run whose every text tries to break out of the page.
pub(crate) fn hostile() -> Envelope<LadderReport> {
    let attack = "</title><script>alert('x')</script>&\"";
    let mut report = ladder_run();
    report.argv.push(attack.to_owned());
    report.host.cpu_model = Some(attack.to_owned());
    report.host.kernel = Some(attack.to_owned());
    report.result.testbed.server_address = attack.to_owned();
    for step in &mut report.result.steps {
        step.id = format!("{}{attack}", step.id);
        step.title = attack.to_owned();
        step.what = attack.to_owned();
        step.skipped_because = step.skipped_because.as_ref().map(|_| attack.to_owned());
        for change in &mut step.changes {
            change.to = attack.to_owned();
        }
        for warning in &mut step.warnings {
            warning.detail = attack.to_owned();
        }
    }
    for ladder in &mut report.result.published {
        ladder.source = attack.to_owned();
        ladder.steps[0].id = attack.to_owned();
    }
    report
}
