//! Without a terminal: one snapshot, recordings, and error messages.

use super::lab;
use crate::schema::conforms;
use crate::support::{assert_refused, document_of, linerate, program, run_on};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn once_prints_the_host_as_text_and_as_json() {
    const NAME: &str = "once_prints_the_host_as_text_and_as_json";
    let Some(lab) = lab(NAME) else { return };
    let output = run_on(lab.receiver(), program(), &["top", "--once", "--interval", "0.2"]);
    let screen = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for stage in ["QUEUES", "IRQ / CPU", "SOCKETS", "THREADS", "OUT", "eth0", "rates over"] {
        assert!(screen.contains(stage), "no {stage} in\n{screen}");
    }
    assert!(!screen.contains('\u{1b}'), "no colour in a pipe");

    let output = run_on(lab.receiver(), program(), &["top", "--once", "--json", "--interval", "0.2"]);
    let document = document_of(&output);
    conforms(&document, "linerate.top/2");
    let document = &document["result"];
    assert!(document["interval_seconds"].as_f64().is_some_and(|seconds| seconds >= 0.2), "{document:#}");
    assert!(document["cpus"].as_array().is_some_and(|cpus| !cpus.is_empty()));
    assert_eq!(document["interfaces"][0]["interface"], "eth0");
}

#[test]
fn recordings_append_and_replay_prints_the_recorded_text() {
    let directory = tempfile::tempdir().expect("a directory");
    let tree = directory.path().join("host");
    linerate_testkit::fixture::fixture("small-vm").expect("a fixture").write(&tree).expect("written");
    let tree = tree.to_str().expect("a name");
    let file = directory.path().join("top.jsonl");
    let file = file.to_str().expect("a name");
    let first = linerate(&["top", "--root", tree, "--once", "--record", file]);
    assert!(first.status.success(), "{}", text(&first.stderr));
    let second = linerate(&["top", "--root", tree, "--once", "--record", file]);
    assert!(second.status.success(), "{}", text(&second.stderr));
    assert_eq!(std::fs::read_to_string(file).expect("a file").lines().count(), 2, "one snapshot per run");
    let replay = linerate(&["top", "--replay", file, "--once"]);
    assert_eq!(text(&replay.stdout), text(&first.stdout));
    assert!(text(&first.stdout).contains("FINDINGS"), "{}", text(&first.stdout));
}

#[test]
fn invalid_recordings_are_reported() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("x.jsonl");
    std::fs::write(&file, "{}").expect("written");
    let name = file.to_str().expect("a name");
    assert_refused(&linerate(&["top", "--replay", name, "--once"]), "x.jsonl: line 1: no snapshot");
    let output = linerate(&["top", "--root", "/nonexistent", "--once", "--record", name]);
    assert_refused(&output, "it ends in the middle of a line");
}
