//! `linerate drops` reports errors in one line.

use std::fs;

use crate::support::{linerate, skip};

/// `linerate drops` has to fail with status 2 and one line that contains `words`.
fn refused(arguments: &[&str], words: &str) {
    let output = linerate(&[&["drops"], arguments].concat());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), errors.lines().count()), (Some(2), 1), "{arguments:?}: {errors}");
    assert!(errors.contains(words), "{arguments:?}: {errors}");
}

#[test]
fn arguments_that_make_no_sense() {
    refused(&["--port", "70000"], "70000");
    refused(&["--peer", "nobody"], "nobody");
    refused(&["--duration", "0"], "--duration");
    refused(&["--duration", "1", "--", "true"], "--duration");
    refused(&["--json", "-", "--html", "-"], "share standard output");
    refused(&["--json", "/nonexistent/x.json"], "no directory /nonexistent");
}

#[test]
fn what_only_root_may_do_or_is_not_there() {
    if !rustix::process::geteuid().is_root() {
        let output = linerate(&["drops", "--duration", "0.1"]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), errors.lines().count()), (Some(2), 1), "{errors}");
        assert!(errors.contains("CAP_BPF"), "{errors}");
        return skip("what_only_root_may_do_or_is_not_there", "takes root");
    }
    refused(&["--interface", "nonesuch0", "--duration", "0.1"], "nonesuch0");
    refused(&["--", "/nonexistent/command"], "/nonexistent/command");
    refused(&["--load", "/nonexistent/x.json", "--duration", "0.1"], "/nonexistent");
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("load.json");
    let name = path.to_str().expect("a name");
    for (held, words) in [
        ("", "no linerate.load/2 document"),
        ("{}", "it names no schema"),
        (r#"{"schema": "linerate.ladder/1"}"#, "its schema is linerate.ladder/1"),
    ] {
        let write = format!("printf '%s' '{held}' > {name}");
        refused(&["--load", name, "--", "sh", "-c", &write], words);
    }
    fs::write(&path, "{}").expect("written");
    refused(&["--load", name, "--", "true"], "older");
}

#[test]
fn the_failure_of_a_command_is_told() {
    if !rustix::process::geteuid().is_root() {
        return skip("the_failure_of_a_command_is_told", "takes root");
    }
    refused(&["--port", "4054", "--", "sh", "-c", "exit 7"], "exit status: 7");
}
