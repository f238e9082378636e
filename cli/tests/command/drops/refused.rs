//! `linerate drops` reports errors in one line.

use crate::support::{self, TestDirectory, is_root, linerate};

/// `linerate drops` has to fail with status 2 and one line that contains `words`.
fn assert_refused(arguments: &[&str], words: &str) {
    support::assert_refused(&linerate(&[&["drops"], arguments].concat()), words);
}

#[test]
fn drops_refuses_invalid_load_documents_and_failed_commands() {
    if !is_root() {
        return;
    }
    assert_refused(&["--interface", "nonesuch0", "--duration", "0.1"], "nonesuch0");
    assert_refused(&["--", "/nonexistent/command"], "/nonexistent/command");
    assert_refused(&["--load", "/nonexistent/x.json", "--duration", "0.1"], "/nonexistent");
    let directory = TestDirectory::new();
    let name = &directory.file("load.json");
    for (content, words) in [
        ("", "no linerate.load/2 document"),
        ("{}", "it names no schema"),
        (r#"{"schema": "linerate.ladder/1"}"#, "its schema is linerate.ladder/1"),
    ] {
        let write = format!("printf '%s' '{content}' > {name}");
        assert_refused(&["--load", name, "--", "sh", "-c", &write], words);
    }
    directory.write("load.json", "{}");
    assert_refused(&["--load", name, "--", "true"], "older");
    assert_refused(&["--port", "4054", "--", "sh", "-c", "exit 7"], "exit status: 7");
}
