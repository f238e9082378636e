//! `linerate lab placement`.

use std::fs;

use serde_json::Value;

use crate::support::{TestDirectory, can_make_labs, checked_document, is_root, linerate, machine, texts};

#[test]
fn each_placement_is_measured_or_skipped_with_a_reason() {
    machine();
    if !is_root() || !can_make_labs() {
        return;
    }
    let directory = TestDirectory::new();
    let page = &directory.file("placement.html");
    let output = linerate(&["lab", "placement", "--samples", "4", "--json", "-", "--html", page]);
    let document = checked_document(&output, 0, "linerate.placement/1");
    let placements = document["result"]["placements"].as_array().expect("placements");
    let names = texts(&document["result"]["placements"], "placement");
    assert_eq!(names, ["same-cpu", "smt-sibling", "other-core", "other-node"]);
    let (measured, skipped): (Vec<&Value>, Vec<&Value>) =
        placements.iter().partition(|result| result["skipped_because"].is_null());
    assert!(skipped.iter().all(|result| result["packets_per_second"].is_null()), "{document:#}");
    let mut cpus: Vec<u64> = measured.iter().filter_map(|result| result["receiver_cpu"].as_u64()).collect();
    assert_eq!(cpus.first(), document["result"]["packets_cpu"].as_u64().as_ref());
    cpus.dedup();
    assert_eq!(cpus.len(), measured.len(), "{document:#}");
    let usable = std::thread::available_parallelism().map_or(1, usize::from);
    assert!(measured.len() > 1 || usable == 1, "{document:#}");
    for result in measured {
        let is_first = result["placement"] == "same-cpu";
        assert!(result["packets_per_second"]["median"].as_f64() > Some(1000.0), "{result}");
        assert_eq!(result["versus_first"].is_null(), is_first, "{result}");
        // Unknown if a receiver that shares its CPU read nothing while it was traced.
        let cost = &result["cost"]["receiver_ns_per_packet"];
        assert!(is_first || cost.as_f64() > Some(10.0), "{result}");
    }
    assert!(fs::read_to_string(page).expect("the page").contains("<svg"));
}
