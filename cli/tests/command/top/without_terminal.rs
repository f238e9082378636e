//! Without a terminal: one snapshot, recordings, and error messages.

use std::path::Path;

use super::lab;
use crate::support::{
    TestDirectory, assert_refused, checked_document, errors_of, linerate, program, run_on, text_of,
};

#[test]
fn once_prints_the_host_as_text_and_as_json() {
    let Some(lab) = lab() else { return };
    let output = run_on(lab.receiver(), program(), &["top", "--once", "--interval", "0.2"]);
    let screen = text_of(&output);
    assert!(output.status.success(), "{}", errors_of(&output));
    for stage in ["QUEUES", "IRQ / CPU", "SOCKETS", "THREADS", "OUT", "eth0", "rates over"] {
        assert!(screen.contains(stage), "no {stage} in\n{screen}");
    }
    assert!(!screen.contains('\u{1b}'), "no colour in a pipe");

    let output = run_on(lab.receiver(), program(), &["top", "--once", "--json", "--interval", "0.2"]);
    let document = checked_document(&output, 0, "linerate.top/2");
    let document = &document["result"];
    assert!(document["interval_seconds"].as_f64().is_some_and(|seconds| seconds >= 0.2), "{document:#}");
    assert!(document["cpus"].as_array().is_some_and(|cpus| !cpus.is_empty()));
    assert_eq!(document["interfaces"][0]["interface"], "eth0");
}

#[test]
fn recordings_append_and_replay_prints_the_recorded_text() {
    let directory = TestDirectory::new();
    let tree = &directory.file("host");
    linerate_testkit::fixture::fixture("small-vm")
        .expect("a fixture")
        .write(Path::new(tree))
        .expect("written");
    let file = &directory.file("top.jsonl");
    let first = linerate(&["top", "--root", tree, "--once", "--record", file]);
    assert!(first.status.success(), "{}", errors_of(&first));
    let second = linerate(&["top", "--root", tree, "--once", "--record", file]);
    assert!(second.status.success(), "{}", errors_of(&second));
    assert_eq!(std::fs::read_to_string(file).expect("a file").lines().count(), 2, "one snapshot per run");
    let replay = linerate(&["top", "--replay", file, "--once"]);
    assert_eq!(text_of(&replay), text_of(&first));
    assert!(text_of(&first).contains("FINDINGS"), "{}", text_of(&first));
}

#[test]
fn invalid_recordings_are_reported() {
    let directory = TestDirectory::new();
    let name = &directory.write("x.jsonl", "{}");
    assert_refused(&linerate(&["top", "--replay", name, "--once"]), "x.jsonl: line 1: no snapshot");
    let output = linerate(&["top", "--root", "/nonexistent", "--once", "--record", name]);
    assert_refused(&output, "it ends in the middle of a line");
}
