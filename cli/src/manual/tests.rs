use std::process::Command;

use super::*;

#[test]
fn manual_sections_and_examples_refer_to_existing_commands() {
    let tree = build_tree(&crate::tree());
    let commands = visible_commands(&tree);
    let command_lines: Vec<&str> = commands.iter().map(|command| command.line.as_str()).collect();
    for block in SECTIONS.split("\n\n") {
        let line = block.lines().next().and_then(|head| head.strip_prefix("# ")).expect("a heading");
        assert!(command_lines.contains(&line), "no command '{line}'");
        for related in related_commands(line) {
            assert!(command_lines.contains(&related.as_str()), "'{line}' refers to '{related}'");
        }
        for (example, explanation) in entries(line, "example: ") {
            assert!(explanation.ends_with('.'), "{example}");
            let words = shlex::split(example).expect("words");
            if let Err(error) = crate::tree().try_get_matches_from(words) {
                panic!("{example}: {error}");
            }
        }
    }
}

#[test]
fn man_pages_list_every_visible_option() {
    for command in visible_commands(&build_tree(&crate::tree())) {
        let page = command.page(&[]).replace("\\-", "-").replace("\\fB", "").replace("\\fR", "");
        for argument in command.command.get_arguments().filter(|argument| !argument.is_hide_set()) {
            if let Some(long) = argument.get_long() {
                assert!(page.contains(&format!("--{long}")), "{}: no --{long}", command.line);
            }
        }
        assert!(page.contains(".SH \"SEE ALSO\"") || page.contains(".SH SEE ALSO"), "{page}");
    }
}

#[test]
fn groff_formats_man_pages_without_warnings() {
    let directory = tempfile::tempdir().expect("a directory");
    for page in pages(&crate::tree()) {
        let source = directory.path().join(&page.file);
        std::fs::write(&source, &page.text).expect("written");
        let options = ["-man", "-Tutf8", "-ww", "-rCHECKSTYLE=3", "-P-cbou"];
        let Ok(output) = Command::new("groff").args(options).arg(source).output() else {
            let test = "groff_formats_man_pages_without_warnings";
            return linerate_testkit::skip(test, "groff is not installed");
        };
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && stderr.is_empty(), "{}: {stderr}", page.file);
        assert!(String::from_utf8_lossy(&output.stdout).contains("SEE ALSO"), "{}", page.file);
    }
}

#[test]
fn docs_list_the_exit_status_of_every_runnable_command() {
    let tree = build_tree(&crate::tree());
    let commands = visible_commands(&tree);
    let runs = |command: &&ManualCommand<'_>| {
        let required = command.command;
        !required.is_subcommand_required_set() && !required.is_arg_required_else_help_set()
    };
    let runs: Vec<&str> = commands.iter().filter(runs).map(|command| command.line.as_str()).collect();
    let is_described = |line: &&&str| exit_status(line).len() >= 2;
    assert_eq!(runs.iter().filter(is_described).count(), runs.len(), "{runs:?}");
    assert_eq!(EXIT_STATUS.lines().filter(|row| row.starts_with("| `linerate")).count(), runs.len());
}
