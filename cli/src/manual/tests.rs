use std::io::Write as _;
use std::process::{Command, Stdio};

use super::*;

#[test]
fn every_entry_is_of_a_command() {
    let tree = build_tree(&crate::tree());
    let places = subcommands(&tree);
    let known: Vec<&str> = places.iter().map(|place| place.words.as_str()).collect();
    for entry in entries::all() {
        assert!(known.contains(&entry.words()), "no command '{}'", entry.words());
        for named in entry.see {
            assert!(known.contains(named), "'{}' names '{named}', which is no command", entry.words());
        }
    }
}

#[test]
fn examples_are_command_lines_that_it_takes() {
    for entry in entries::all() {
        for (example, _) in entry.examples {
            let words = shlex::split(example).expect("words");
            if let Err(error) = crate::tree().try_get_matches_from(words) {
                panic!("{example}: {error}");
            }
        }
    }
}

#[test]
fn a_page_has_all_that_help_has() {
    let tree = build_tree(&crate::tree());
    for place in subcommands(&tree) {
        let page = page::text(&place, &subcommands(&tree));
        let page = page.replace("\\-", "-").replace("\\fB", "").replace("\\fR", "");
        for argument in place.command.get_arguments().filter(|argument| !argument.is_hide_set()) {
            if let Some(long) = argument.get_long() {
                assert!(page.contains(&format!("--{long}")), "{}: no --{long}", place.command_line());
            }
        }
        assert!(page.contains(".SH \"SEE ALSO\"") || page.contains(".SH SEE ALSO"), "{page}");
    }
}

#[test]
fn groff_has_nothing_against_the_pages() {
    for page in pages(&crate::tree()) {
        let started = Command::new("groff")
            .args(["-man", "-Tutf8", "-ww", "-rCHECKSTYLE=3", "-P-cbou"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let Ok(mut groff) = started else {
            let skip = "SKIP groff_has_nothing_against_the_pages: groff is not installed\n";
            let _ = std::io::stderr().write_all(skip.as_bytes());
            return;
        };
        let source = page.text.clone();
        let mut input = groff.stdin.take().expect("piped");
        let writer = std::thread::spawn(move || input.write_all(source.as_bytes()));
        let output = groff.wait_with_output().expect("it ends");
        writer.join().expect("no panic").expect("it reads all");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{}: {said}", page.file);
        assert!(String::from_utf8_lossy(&output.stdout).contains("SEE ALSO"), "{}", page.file);
    }
}

#[test]
fn exit_statuses_are_told_of_every_command_that_runs() {
    let text = exit_status(&crate::tree());
    for command in ["linerate lab", "linerate lab exec", "linerate tune undo", "linerate calc"] {
        assert!(text.contains(&format!("| `{command}` | ")), "{text}");
    }
    assert!(!text.contains("| `linerate serve` |") && !text.contains("guard"), "{text}");
}

#[test]
fn the_table_of_exit_statuses_in_docs_is_generated_from_the_commands() {
    let found = include_str!("../../../docs/exit-status.md");
    assert!(
        found == exit_status(&crate::tree()),
        "run `cargo run -- man --exit-status >docs/exit-status.md` and commit it"
    );
}
