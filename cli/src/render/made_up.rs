//! Results for tests. Every figure in them is made up: nothing here was measured on any machine.

use linerate_lab::ladder::report::{Report, Warning, WarningKind};

/// A climb with every kind of rung: better, worse, neither, skipped, bounded by the generator, noisy.
pub(crate) fn climb() -> Report {
    serde_json::from_str(include_str!("made_up.json")).expect("the fixture is a report")
}

/// A climb in which no rung could be measured.
pub(crate) fn all_skipped() -> Report {
    let mut report = climb();
    for rung in &mut report.rungs {
        *rung = linerate_lab::ladder::report::RungReport {
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
            ..rung.clone()
        };
    }
    report
}

/// A climb on a machine that tells as little as a machine may.
pub(crate) fn little_known() -> Report {
    let mut report = climb();
    report.host.cpu_model = None;
    report.host.numa_nodes = None;
    report.host.hypervisor = None;
    report.published.clear();
    report.rungs.truncate(4);
    for rung in &mut report.rungs {
        rung.latency_ns = None;
        rung.loss_ratio = None;
        rung.cycles_per_transaction = None;
        rung.instructions_per_transaction = None;
        rung.goodput_at_overload.clear();
        rung.published_ratio = None;
        if let Some(versus) = &mut rung.versus_previous {
            versus.ratio.low = None;
            versus.ratio.high = None;
        }
        rung.warnings = vec![Warning {
            kind: WarningKind::Unknown,
            detail: "cycles and instructions: this machine has no hardware counters".to_owned(),
        }];
    }
    report
}

/// A climb that was stopped after three rungs.
pub(crate) fn interrupted() -> Report {
    let mut report = climb();
    let stopped = all_skipped();
    for (rung, stopped) in report.rungs.iter_mut().zip(stopped.rungs).skip(3) {
        *rung = stopped;
        rung.skipped_because = Some("interrupted before its turn".to_owned());
    }
    report.warnings.push(Warning {
        kind: WarningKind::Interrupted,
        detail: "stopped by SIGINT after 3 of 14 rungs".to_owned(),
    });
    report
}

/// A climb whose every text tries to break out of the page.
pub(crate) fn hostile() -> Report {
    let attack = "</title><script>alert('x')</script>&\"";
    let mut report = climb();
    report.argv.push(attack.to_owned());
    report.host.cpu_model = Some(attack.to_owned());
    report.host.kernel = attack.to_owned();
    report.method.server_address = attack.to_owned();
    for rung in &mut report.rungs {
        rung.id = format!("{}{attack}", rung.id);
        rung.title = attack.to_owned();
        rung.what = attack.to_owned();
        rung.skipped_because = rung.skipped_because.as_ref().map(|_| attack.to_owned());
        for change in &mut rung.changes {
            change.to = attack.to_owned();
        }
        for warning in &mut rung.warnings {
            warning.detail = attack.to_owned();
        }
    }
    for ladder in &mut report.published {
        ladder.source = attack.to_owned();
        ladder.steps[0].id = attack.to_owned();
    }
    report
}
