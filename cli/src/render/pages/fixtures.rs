//! A page of each kind, of made-up results.

use std::fs;
use std::path::Path;

use linerate_load::report::{OverloadReport, RampReport, SearchReport};
use linerate_trace::drops::{DropsResult, PacketAccounting};
use serde_json::{Map, Value, json};

use crate::command::report::fleet;
use crate::command::report::fleet_report::{FleetHost, FleetReport};
use crate::command::report::reading;
use crate::envelope::Envelope;
use crate::origin::{HostSummary, Warning};
use crate::render::report::{join, page};
use crate::render::{cost_fixtures, html, load_fixtures, result_fixtures};
use crate::view::drops::tests::accounting;
use crate::view::{boost, doctor, flame};

/// All pages by name. Pages of several results come last; their files are written to `directory`.
pub(super) fn pages(directory: &Path) -> Vec<(&'static str, String)> {
    let mut pages = vec![
        ("ladder", html::page(&result_fixtures::ladder_run().document())),
        ("ladder-little", html::page(&result_fixtures::little_known().document())),
        ("ladder-stopped", html::page(&result_fixtures::interrupted_run().document())),
        ("ladder-hostile", html::page(&result_fixtures::hostile().document())),
        ("load", html::page(&load_fixtures::envelope().document())),
        ("ramp", html::page(&ramp().document())),
        ("overload", html::page(&overload().document())),
        ("cost", html::page(&cost_fixtures::envelope().document())),
        ("cost-hostile", html::page(&cost_fixtures::hostile().document())),
        ("drops", html::page(&drops(true).document())),
        ("drops-none", html::page(&drops(false).document())),
        ("flame", html::page(&flame::tests::envelope().document())),
    ];
    for (name, fixture) in [("doctor", "million-packets"), ("doctor-nodes", "makita-2016")] {
        pages.push((name, html::page(&doctor::tests::fixture_diagnosis(fixture).document())));
    }
    pages.push(("fleet", html::page(&fleet(directory).document())));
    pages.push(("report", Ok(report(directory, true))));
    pages.push(("report-no-path", Ok(report(directory, false))));
    pages
        .into_iter()
        .map(|(name, page)| (name, page.unwrap_or_else(|error| panic!("{name}: {error:#}"))))
        .collect()
}

fn ramp() -> Envelope<RampReport> {
    let report = RampReport {
        generator: load_fixtures::generator(),
        steps: [(1_000.0, 0), (2_000.0, 40), (3_000.0, 900)]
            .map(|(rate, lost)| load_fixtures::outcome(rate, lost))
            .to_vec(),
        missed: Vec::new(),
    };
    let warning = Warning::remark("at 3.00 k/s: the generator was the limit");
    load_fixtures::of_sender(1_772_375_400, "--ramp 1k-3k/3", report).with_warnings([warning])
}

fn overload() -> Envelope<OverloadReport> {
    let overload = json!([
        {"factor": 2.0, "offered_per_second": 400_000.0, "goodput_ratio": 0.93},
        {"factor": 5.0, "offered_per_second": 700_000.0, "goodput_ratio": {"unknown": "the generator offered 70 % of it"}},
    ]);
    let report = OverloadReport {
        generator: load_fixtures::generator(),
        capacity_per_second: 200_000.0,
        overload: serde_json::from_value(overload).expect("made up"),
    };
    load_fixtures::of_sender(1_772_375_500, "--overload 2,5", report)
}

fn search() -> Envelope<SearchReport> {
    let latency = |p50: u64| {
        let mut latency = linerate_load::Latency::new();
        (1..=100).for_each(|share| latency.record(p50 * share / 50));
        json_of(&latency)
    };
    let probe = |rate: f64, loss: f64, verdict: &str| {
        json!({"requested_per_second": rate, "offered_per_second": rate, "answered_per_second": rate * (1.0 - loss), "sent": 9,
               "answered": 9, "loss_ratio": loss, "steady_loss_ratio": loss, "late_ratio": 0.0,
               "latency_ns": latency(40_000 + rate as u64), "verdict": verdict, "send_method": "clones",
               "bound_because": []})
    };
    let sample = |rate: f64, slots: Vec<Value>| {
        json!({"transactions_per_second": rate, "offered_per_second": rate, "loss_ratio": 0.0004, "latency_ns": latency(52_000),
               "late_ratio": 0.0, "send_method": "clones", "generator_bound": false, "bound_because": [], "ended": "confirmed", "slots": slots})
    };
    let confirmed_search = |rate: f64| {
        let offered_probes = [
            (0.96, 0.0001, "holds"),
            (1.02, 0.004, "loss"),
            (1.04, 0.02, "queue-grows"),
            (1.0, 0.0004, "holds"),
        ];
        sample(rate, offered_probes.map(|(share, loss, verdict)| probe(rate * share, loss, verdict)).to_vec())
    };
    let report = json!({
        "generator": load_fixtures::generator(),
        "method": {"max_loss_ratio": 0.001, "max_p99_ns": null, "resolution_ratio": 0.01, "slot_seconds": 0.5,
                   "lead_in_seconds": 0.25, "confirm_slot_seconds": 2.25, "searches_wanted": 3},
        "transactions_per_second": {"median": 231_000.0, "low": 229_000.0, "high": 233_000.0, "samples": 3},
        "spread_ratio": 0.017, "loss_ratio": 0.0004, "latency_ns": latency(52_000), "send_method": "clones",
        "generator_bound": false, "bound_because": [], "confirmed": 3,
        "neighbourhood": sample(240_000.0, vec![probe(60_000.0, 0.0, "holds"), probe(480_000.0, 0.5, "loss"), probe(240_000.0, 0.02, "loss")]),
        "searches": [confirmed_search(229_000.0), confirmed_search(231_000.0), confirmed_search(233_000.0)],
        "overload": [{"factor": 2.0, "offered_per_second": 462_000.0, "goodput_ratio": 0.91}],
        "missed": [],
    });
    let report: SearchReport = serde_json::from_value(report).expect("made up");
    load_fixtures::of_sender(1_772_375_450, "--search", report)
}

fn json_of(document: &impl serde::Serialize) -> Value {
    serde_json::to_value(document).expect("JSON")
}

/// Packet accounting with losses, or with a reply to every request.
fn drops(lossy: bool) -> Envelope<DropsResult> {
    let mut ledger: PacketAccounting = accounting();
    if lossy {
        ledger.elsewhere = ledger.requests.stages.iter().flat_map(|stage| stage.losses.clone()).collect();
        ledger.requests.stages[1].waiting = 12;
        ledger.requests.stages[1].unaccounted = linerate_host::Known::Value(7);
        ledger.requests.stages[1].likely = vec!["packets on their way when counting ended".to_owned()];
        ledger.notes = vec!["The kernel lacks a tracepoint: net_dev_xmit".to_owned()];
    } else {
        for stage in ledger.requests.stages.iter_mut().chain(&mut ledger.replies.stages) {
            stage.losses.clear();
            stage.packets_in = linerate_host::Known::Value(900);
            stage.packets_out = linerate_host::Known::Value(900);
        }
    }
    Envelope::new(HostSummary::default(), Some(1_772_375_600), DropsResult::new(ledger))
}

/// Twelve hosts that have each kind of figure; one is unlike the others, and one has no result.
fn fleet(directory: &Path) -> Envelope<FleetReport> {
    let directory = directory.join("fleet");
    for number in 1..=12 {
        let host = directory.join(format!("host{number}"));
        fs::create_dir_all(&host).expect("a directory");
        let write =
            |name: &str, value: Value| fs::write(host.join(name), value.to_string()).expect("written");
        if number == 3 {
            write("error.txt", json!("no route to <host>"));
            continue;
        }
        let mut cost = json_of(&cost_fixtures::envelope());
        cost["host"]["kernel"] = if number == 7 { "6.1.0-<b>odd</b>" } else { "6.12.0-1-amd64" }.into();
        cost["started_unix_seconds"] = 1_772_375_700.into();
        write("doctor.json", json_of(&doctor::tests::fixture_diagnosis("makita-2016")));
        write("search.json", json_of(&search()));
        write("ladder.json", json_of(&result_fixtures::ladder_run()));
        write("drops.json", json_of(&drops(number == 7)));
        write("z-cost.json", cost);
    }
    let report = fleet::read(&directory).expect("read");
    let has_most_figures = |host: &FleetHost| {
        host.figures.named_figures().iter().filter(|(_, figure)| figure.is_some()).count() >= 5
    };
    assert!(report.hosts.iter().all(|host| has_most_figures(host) || host.name == "host3"), "{report:?}");
    let outliers: Vec<&str> = report
        .outliers
        .iter()
        .filter(|outlier| outlier.host == "host7")
        .map(|outlier| outlier.what.as_str())
        .collect();
    assert_eq!(outliers, ["counted losses per second", "kernel"], "{:?}", report.outliers);
    Envelope::new(HostSummary::default(), Some(1_772_375_700), report)
}

/// Each kind of result in a file, and two documents without a page.
fn report(directory: &Path, with_path: bool) -> String {
    let directory = directory.join(if with_path { "all" } else { "few" });
    fs::create_dir_all(&directory).expect("a directory");
    let write = |name: &str, value: Value| {
        fs::write(directory.join(name), value.to_string()).expect("written");
    };
    write("ladder.json", json_of(&result_fixtures::ladder_run()));
    write("flame.json", json_of(&flame::tests::envelope()));
    write("newer.json", json!({"schema": "linerate.cost/7", "version": "9.0.0"}));
    write("foreign.json", json!({"<b>name</b>": "somebody else's"}));
    if with_path {
        for (name, fixture) in [("doctor-1.json", "million-packets"), ("doctor-2.json", "makita-2016")] {
            write(name, json_of(&doctor::tests::fixture_diagnosis(fixture)));
        }
        write("search.json", json_of(&search()));
        write("load.json", json_of(&load_fixtures::envelope()));
        write("ramp.json", json_of(&ramp()));
        write("overload.json", json_of(&overload()));
        write("cost.json", json_of(&cost_fixtures::envelope()));
        write("cost-hostile.json", json_of(&cost_fixtures::hostile()));
        write("drops.json", json_of(&drops(true)));
        write("flame-again.json", json_of(&flame::tests::envelope()));
        for (name, document) in text_results() {
            write(&name, document);
        }
    }
    let results = reading::read(&[directory]).expect("read");
    assert_eq!(results.unread.len(), 2, "{:?}", results.unread);
    let report = join(results).expect("joined");
    assert_eq!(report.members.len(), if with_path { 12 + text_results().len() } else { 2 });
    page(&report, &["linerate".to_owned(), "report".to_owned(), "runs".to_owned()]).expect("a page")
}

/// Results of commands without an option for HTML, by file. A host name tries to inject a script.
fn text_results() -> Map<String, Value> {
    let mut documents: Map<String, Value> =
        serde_json::from_str(include_str!("text_results.json")).expect("JSON");
    let host = HostSummary::named(Some("<script>alert(1)</script>".to_owned()));
    let plan = Envelope::new(host.clone(), Some(1_772_375_000), boost::tests::nsd());
    let applied = Envelope::new(host, Some(1_772_375_000), boost::tests::nsd_applied());
    documents.extend([("boost-plan.json".into(), json_of(&plan)), ("boost.json".into(), json_of(&applied))]);
    documents
}
