//! Saved documents that `flame` reads, and its errors for documents that it cannot read.

use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};

use crate::schema::conforms;
use crate::support;

/// A run of 1 s on one CPU. Half of the samples are softirq, or all are idle.
fn document(idle: bool) -> Value {
    let context = if idle { "idle" } else { "softirq" };
    json!({
        "schema": "linerate.flame/2", "version": "0.1.0", "argv": ["linerate", "flame"], "started_unix_seconds": 0,
        "host": {"name": "ns1", "kernel": "6.18.0", "cpu_model": null}, "warnings": [],
        "result": {
        "irq_only": false, "per_cpu": false, "path_samples": 0, "spots": [], "functions": [], "contention": null,
        "profile": {
            "seconds": 1.0, "event": {"kind": "cpu_clock", "why": "made up"}, "frequency_hz": 100,
            "cpus": [{"cpu": 0, "samples": 100, "idle": if idle { 100 } else { 50 }, "lost": 0}],
            "frames": [
                {"name": "handle_softirqs", "kind": "kernel"},
                {"name": "net_rx_action", "kind": "kernel"},
                {"name": "nft_do_chain", "module": "nf_tables", "kind": "kernel"},
                {"name": "default_idle", "kind": "kernel"},
            ],
            "stacks": [
                {"frames": if idle { vec![3] } else { vec![0, 1, 2] }, "context": context, "entry": 0, "cpu": 0, "pid": 0,
                 "comm": "swapper/0", "samples": 50},
                {"frames": [3], "context": "idle", "entry": 0, "cpu": 0, "pid": 0, "comm": "swapper/0", "samples": 50},
            ],
            "notes": [],
        }},
    })
}

fn write(directory: &Path, name: &str, document: &Value) -> String {
    let path = directory.join(name);
    std::fs::write(&path, document.to_string()).expect("written");
    path.to_str().expect("a name").to_owned()
}

fn refused(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), errors.lines().count()), (Some(2), 1), "{errors}");
    errors
}

#[test]
fn a_saved_run_is_shown_drawn_and_saved_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = write(directory.path(), "run.json", &document(false));
    let svg = directory.path().join("run.svg");
    let shown = support::linerate(&["flame", "--from", &file, "--svg", svg.to_str().expect("a name")]);
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.status.success(), "{}", String::from_utf8_lossy(&shown.stderr));
    assert!(text.contains("nft_do_chain [nf_tables]") && text.contains("50 %"), "{text}");
    let svg = std::fs::read_to_string(svg).expect("drawn");
    assert!(svg.contains("<svg") && svg.contains("nft_do_chain"), "{svg}");

    let again = support::linerate(&["flame", "--from", &file, "--irq-only", "--json", "-"]);
    let again: Value = serde_json::from_slice(&again.stdout).expect("a document");
    assert_eq!(again["result"]["profile"]["stacks"], document(false)["result"]["profile"]["stacks"]);
    conforms(&again, "linerate.flame/2");
    assert_eq!(again["result"]["irq_only"], true);
    let folded = support::linerate(&["flame", "--from", &file, "--folded", "-"]);
    let folded = String::from_utf8_lossy(&folded.stdout).into_owned();
    assert!(folded.trim_end().ends_with("handle_softirqs;net_rx_action;nft_do_chain 50"), "{folded}");
}

#[test]
fn idle_cpus_make_no_drawing() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = write(directory.path(), "idle.json", &document(true));
    let svg = directory.path().join("idle.svg");
    let shown = support::linerate(&["flame", "--from", &file, "--svg", svg.to_str().expect("a name")]);
    assert_eq!(shown.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&shown.stdout).starts_with("All samples are idle"));
    assert!(String::from_utf8_lossy(&shown.stderr).starts_with("linerate: --svg: no file was written"));
    assert!(!svg.exists());
}

#[test]
fn equal_runs_differ_in_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = write(directory.path(), "run.json", &document(false));
    let output = support::linerate(&["flame", "--diff", &file, &file, "--json", "-"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let difference: Value = serde_json::from_slice(&output.stdout).expect("a document");
    conforms(&difference, "linerate.flame-diff/2");
    let difference = &difference["result"];
    assert_eq!(difference["difference"]["before_cpus"], difference["difference"]["after_cpus"]);
    for spot in difference["spots"].as_array().expect("spots") {
        assert_eq!(spot["before_cpus"], spot["after_cpus"]);
    }
}

#[test]
fn other_documents_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = write(directory.path(), "run.json", &document(false));
    let other = write(directory.path(), "other.json", &json!({"schema": "linerate.load/1"}));
    let errors = refused(&support::linerate(&["flame", "--diff", &file, &other]));
    assert!(errors.contains("its schema is linerate.load/1; linerate.flame/2 is required"), "{errors}");
    let nameless = write(directory.path(), "nameless.json", &json!([1]));
    assert!(refused(&support::linerate(&["flame", "--from", &nameless])).contains("it names no schema"));
    let mut half = document(false);
    half["result"]["profile"]["stacks"][0]["samples"] = "many".into();
    let half = write(directory.path(), "half.json", &half);
    assert!(refused(&support::linerate(&["flame", "--from", &half])).contains("invalid type"));
    let mut locks = document(false);
    locks["result"]["profile"] = Value::Null;
    let locks = write(directory.path(), "locks.json", &locks);
    let errors = refused(&support::linerate(&["flame", "--diff", &locks, &file]));
    assert!(errors.contains("it has no samples (a run with --locks)"), "{errors}");
    let mut foreign = document(false);
    foreign["result"]["profile"]["stacks"][0]["frames"] = json!([77]);
    let foreign = write(directory.path(), "foreign.json", &foreign);
    assert!(refused(&support::linerate(&["flame", "--from", &foreign])).contains("function 77"));
}
