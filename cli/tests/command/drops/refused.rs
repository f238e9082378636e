//! `linerate drops` reports errors in one line.

use std::fs;

use crate::support::{linerate, skip};

/// `linerate drops` has to fail with status 2 and one line that contains `words`.
fn assert_refused(arguments: &[&str], words: &str) {
    let output = linerate(&[&["drops"], arguments].concat());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), errors.lines().count()), (Some(2), 1), "{arguments:?}: {errors}");
    assert!(errors.contains(words), "{arguments:?}: {errors}");
}

#[test]
fn drops_refuses_invalid_arguments() {
    assert_refused(&["--port", "70000"], "70000");
    assert_refused(&["--peer", "nobody"], "nobody");
    assert_refused(&["--duration", "0"], "--duration");
    assert_refused(&["--duration", "1", "--", "true"], "--duration");
    assert_refused(&["--json", "-", "--html", "-"], "share standard output");
    assert_refused(&["--json", "/nonexistent/x.json"], "no directory /nonexistent");
}

#[test]
fn drops_reports_missing_privileges_and_invalid_load_documents() {
    if !rustix::process::geteuid().is_root() {
        let output = linerate(&["drops", "--duration", "0.1"]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), errors.lines().count()), (Some(2), 1), "{errors}");
        assert!(errors.contains("CAP_BPF"), "{errors}");
        return skip("drops_reports_missing_privileges_and_invalid_load_documents", "requires root");
    }
    assert_refused(&["--interface", "nonesuch0", "--duration", "0.1"], "nonesuch0");
    assert_refused(&["--", "/nonexistent/command"], "/nonexistent/command");
    assert_refused(&["--load", "/nonexistent/x.json", "--duration", "0.1"], "/nonexistent");
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("load.json");
    let name = path.to_str().expect("a name");
    for (content, words) in [
        ("", "no linerate.load/2 document"),
        ("{}", "it names no schema"),
        (r#"{"schema": "linerate.ladder/1"}"#, "its schema is linerate.ladder/1"),
    ] {
        let write = format!("printf '%s' '{content}' > {name}");
        assert_refused(&["--load", name, "--", "sh", "-c", &write], words);
    }
    fs::write(&path, "{}").expect("written");
    assert_refused(&["--load", name, "--", "true"], "older");
}

#[test]
fn drops_reports_the_exit_status_of_a_failed_command() {
    if !rustix::process::geteuid().is_root() {
        return skip("drops_reports_the_exit_status_of_a_failed_command", "requires root");
    }
    assert_refused(&["--port", "4054", "--", "sh", "-c", "exit 7"], "exit status: 7");
}
