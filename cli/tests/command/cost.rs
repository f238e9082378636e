//! `linerate cost` and its comparison of two results. The test program `cost_accuracy` tests how
//! accurate it is.

use std::fs;

use crate::schema::conforms;
use crate::support::{
    TestDirectory, assert_refused, document_of, errors_of, is_root, linerate, read_document, text_of,
};

#[test]
fn compare_shows_two_cost_results_and_refuses_other_schemas() {
    if !is_root() {
        return;
    }
    let directory = TestDirectory::new();
    let (one, other, html) = (directory.file("a.json"), directory.file("b.json"), directory.file("b.html"));
    let cost = |arguments: &[&str]| {
        let output = linerate(&[&["cost", "--duration", "0.3"], arguments].concat());
        assert!(output.status.success(), "{}", errors_of(&output));
        text_of(&output)
    };
    let text = cost(&["--json", &one]);
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    assert!(text.starts_with("Packets took"), "{text}");
    cost(&["--by", "cgroup", "--json", &other, "--html", &html]);
    let page = fs::read_to_string(&html).expect("the page");
    assert!(page.contains("<svg") && page.contains("CPU 0"), "{page}");
    let document = read_document(&other);
    conforms(&document, "linerate.cost/2");
    assert_eq!(document["result"]["by"], "cgroup");

    let comparison = linerate(&["cost", "--compare", &one, &other]);
    assert!(comparison.status.success(), "{}", errors_of(&comparison));
    let text = text_of(&comparison);
    assert!(text.contains("a.json") && text.contains("b.json"), "{text}");
    let comparison = linerate(&["cost", "--compare", &one, &other, "--json", "-"]);
    conforms(&document_of(&comparison), "linerate.cost-comparison/2");

    let wrong = directory.write("load.json", r#"{"schema": "linerate.load/1"}"#);
    assert_refused(
        &linerate(&["cost", "--compare", &one, &wrong]),
        "load.json: its schema is linerate.load/1",
    );
}
