//! `linerate cost --compare` shows two results side by side.

use std::fs;

use serde_json::Value;

use crate::schema::conforms;
use crate::support::{assert_refused, document_of, errors_of, is_root, linerate};

#[test]
fn compare_shows_two_cost_results_and_refuses_other_schemas() {
    if !is_root("compare_shows_two_cost_results_and_refuses_other_schemas") {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).to_str().expect("a name").to_owned();
    let (one, other, html) = (path("a.json"), path("b.json"), path("b.html"));
    let cost = |arguments: &[&str]| {
        let output = linerate(&[&["cost", "--duration", "0.3"], arguments].concat());
        assert!(output.status.success(), "{}", errors_of(&output));
        String::from_utf8(output.stdout).expect("text")
    };
    let text = cost(&["--json", &one]);
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    assert!(text.starts_with("Packets took"), "{text}");
    cost(&["--by", "cgroup", "--json", &other, "--html", &html]);
    let page = fs::read_to_string(&html).expect("the page");
    assert!(page.contains("<svg") && page.contains("CPU 0"), "{page}");
    let document: Value = serde_json::from_str(&fs::read_to_string(&other).expect("read")).expect("JSON");
    conforms(&document, "linerate.cost/2");
    assert_eq!(document["result"]["by"], "cgroup");

    let comparison = linerate(&["cost", "--compare", &one, &other]);
    assert!(comparison.status.success(), "{}", errors_of(&comparison));
    let text = String::from_utf8_lossy(&comparison.stdout).into_owned();
    assert!(text.contains("a.json") && text.contains("b.json"), "{text}");
    let comparison = linerate(&["cost", "--compare", &one, &other, "--json", "-"]);
    conforms(&document_of(&comparison), "linerate.cost-comparison/2");

    let wrong = path("load.json");
    fs::write(&wrong, r#"{"schema": "linerate.load/1"}"#).expect("written");
    assert_refused(
        &linerate(&["cost", "--compare", &one, &wrong]),
        "load.json: its schema is linerate.load/1",
    );
}
