//! `linerate lab predict` on published runs.

use std::process::Output;

use crate::support::{
    TestDirectory, assert_refused, checked_document, document_of, linerate, read_document, step,
};

fn predict(run: &str, arguments: &[&str]) -> Output {
    let file = format!("{}/../docs/runs/{run}.json", env!("CARGO_MANIFEST_DIR"));
    linerate(&[&["lab", "predict", &file], arguments].concat())
}

#[test]
fn predict_matches_the_published_prediction() {
    let output = predict("2026-11-26-2-cpu-vm", &["--cpus", "20", "--json", "-"]);
    let document = checked_document(&output, 0, "linerate.prediction/1");
    let prediction = &document["result"];
    assert!(prediction["rank_correlation"].as_f64().expect("a number") >= 0.7, "{prediction}");
    let methodology = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/methodology.md");
    let methodology = std::fs::read_to_string(methodology).expect("a page");
    for step in prediction["steps"].as_array().expect("steps") {
        let (id, rate) = (&step["id"], step["per_second"].as_f64().expect("a rate"));
        let rate = if rate < 1e6 { format!("{:.0} k", rate / 1e3) } else { format!("{:.2} M", rate / 1e6) };
        let row = format!("| `{}` | {rate} |", id.as_str().expect("an id"));
        assert!(methodology.contains(&row), "no {row}");
    }
}

#[test]
fn gains_here_are_predicted_for_the_cpus_of_the_server() {
    let directory = TestDirectory::new();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/runs/2026-11-26-2-cpu-vm.json");
    let mut run = read_document(file);
    let testbed = &mut run["result"]["testbed"];
    (testbed["server_cpus"], testbed["shares_cpus"]) = (vec![0].into(), false.into());
    let path = directory.write("run.json", run);
    let document = document_of(&linerate(&["lab", "predict", &path, "--cpus", "20", "--json", "-"]));
    let reuseport = step(&document["result"], "reuseport");
    // On one CPU, no datagram is read on another CPU than it arrived on.
    assert!(reuseport["local_ratio"].as_f64() >= Some(1.0), "{reuseport}");
}

#[test]
fn predict_refuses_runs_without_hot_spots_and_zero_cpus() {
    assert_refused(&predict("server-nsd", &["--cpus", "20"]), "measure again");
    assert_refused(&predict("2026-11-26-2-cpu-vm", &["--cpus", "0"]), "--cpus");
}
