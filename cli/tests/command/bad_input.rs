//! Invalid input produces one clear line on standard error and exit status 2.

use crate::support;
use std::net::UdpSocket;
use std::process::Command;

/// Runs the commands of a file under `tests/bad_input`. Below each command is the line that it has
/// to print on standard error, in which `[..]` stands for any text.
fn assert_refusals(cases: &str) {
    let directory = tempfile::tempdir().expect("a directory");
    let mut wrong = String::new();
    for case in cases.split("\n\n") {
        let (command, expected) = case.trim_end().split_once('\n').expect("a command and its error");
        let words = shlex::split(command).expect("words");
        assert_eq!(&words[..2], ["$", "linerate"], "{case}");
        let mut process = Command::new(support::program());
        let output = process.args(&words[2..]).current_dir(&directory).output().expect("the command starts");
        let errors = String::from_utf8_lossy(&output.stderr);
        let is_refused = output.status.code() == Some(2) && output.stdout.is_empty();
        if !is_refused || !has_shape(&errors, &format!("{expected}\n")) {
            wrong.push_str(&format!("{command}\n{output:?}\n"));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

fn has_shape(text: &str, shape: &str) -> bool {
    let Some((before, after)) = shape.split_once("[..]") else { return text == shape };
    text.len() >= before.len() + after.len() && text.starts_with(before) && text.ends_with(after)
}

#[test]
fn invalid_arguments_print_one_line_and_exit_2() {
    assert_refusals(include_str!("../bad_input/commands.txt"));
}

#[test]
fn invalid_lab_arguments_print_one_line_and_exit_2() {
    support::machine();
    if support::can_make_labs() {
        assert_refusals(include_str!("../bad_input/lab.txt"));
    }
}

#[test]
fn commands_without_privileges_name_what_they_require() {
    let commands: [(&[&str], &[&str]); 4] = [
        (&["boost", "apply", "--port", "53", "--yes"], &["CAP_BPF"]),
        (&["cost", "--duration", "0.1"], &["CAP_BPF", "CAP_PERFMON"]),
        (&["drops", "--duration", "0.1"], &["CAP_BPF"]),
        (&["tune", "apply", "--yes"], &["requires root"]),
    ];
    for (arguments, requirements) in commands {
        let output = support::run_as_nobody(arguments);
        requirements.iter().for_each(|words| support::assert_refused(&output, words));
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
    if support::is_root() {
        support::assert_refused(&support::linerate(&["tune", "apply"]), "--yes");
    }
}

#[test]
fn serve_names_the_address_that_is_in_use() {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let address = socket.local_addr().expect("an address").to_string();
    let output = support::linerate(&["serve", "echo", "--bind", &address]);
    support::assert_refused(&output, &address);
    support::assert_refused(&output, "in use");
}

/// All commands that `-h` lists, each as a list of words. The first one, `linerate` itself, has no
/// words.
fn commands() -> Vec<Vec<String>> {
    let mut found = vec![Vec::new()];
    let mut next = 0;
    while next < found.len() {
        let words: Vec<String> = found[next].clone();
        let mut arguments: Vec<&str> = words.iter().map(String::as_str).collect();
        arguments.push("-h");
        let help = String::from_utf8(support::linerate(&arguments).stdout).expect("text");
        let lines =
            help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
        // Lines with more indentation continue the line above.
        let names = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
        let names = names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help");
        found.extend(names.map(|name| words.iter().cloned().chain([name.to_owned()]).collect()));
        next += 1;
    }
    found
}

#[test]
fn every_command_refuses_unknown_options() {
    let commands = commands();
    assert!(commands.len() > 25, "{commands:?}");
    for words in commands {
        let mut arguments: Vec<&str> = words.iter().map(String::as_str).collect();
        arguments.push("--no-such-option");
        let output = support::linerate(&arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {errors}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
        assert!(errors.starts_with("linerate: ") && errors.lines().count() == 1, "{arguments:?}: {errors}");
    }
}

#[test]
fn a_missing_command_prints_the_list_of_commands() {
    for (arguments, command) in [(&[][..], "doctor"), (&["serve"], "echo"), (&["lab", "relay"], "tap")] {
        let output = support::linerate(arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{arguments:?}");
        let mut lines = errors.lines().skip_while(|line| *line != "Commands:");
        assert!(lines.any(|line| line.trim_start().starts_with(command)), "{arguments:?}: {errors}");
    }
}

#[test]
fn help_and_version_succeed_and_version_names_the_package_version() {
    for arguments in [["--help"], ["--version"]] {
        let output = support::linerate(&arguments);
        assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0), "{arguments:?}");
    }
    let version = String::from_utf8(support::linerate(&["--version"]).stdout).expect("text");
    let version = version.trim().strip_prefix("linerate ").expect("the program's name");
    assert!(version.starts_with(env!("CARGO_PKG_VERSION")), "{version}");
    if let Some((_, commit)) = version.split_once(" (") {
        let (hash, date) = commit.strip_suffix(')').and_then(|commit| commit.split_once(' ')).expect(version);
        assert!(hash.len() >= 7 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()), "{version}");
        assert!(date.len() == 10 && date.bytes().filter(|byte| *byte == b'-').count() == 2, "{version}");
    }
}

#[test]
fn completions_offer_commands_options_and_values() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = support::linerate(&["completions", shell]);
        assert!(output.status.success() && !output.stdout.is_empty(), "{shell}");
    }
    // A command line without `linerate`, and a word that completion must offer for its last word.
    let mut lines = vec![
        ("", "doctor"),
        ("tune ", "persist"),
        ("load --max", "--max-loss"),
        ("doctor --explain ", "rss.hash-without-ports"),
        ("lab --steps ", "steer-by-cpu"),
        ("tune plan --for ", "low-latency"),
        ("lab --server ", "unbound"),
    ];
    let lab = format!("complete{}", std::process::id());
    let up = support::can_make_labs() && support::linerate(&["lab", "up", &lab]).status.success();
    if up {
        lines.extend([("lab exec --lab ", lab.as_str()), ("lab down ", &lab)]);
    }
    for (line, expected) in lines {
        let script = "source <(linerate completions bash); COMP_LINE=\"linerate $1\"; COMP_TYPE=9
            IFS=' ' read -ra COMP_WORDS <<<\"$COMP_LINE\"; [[ $COMP_LINE == *' ' ]] && COMP_WORDS+=('')
            COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _clap_complete_linerate; printf '%s\\n' \"${COMPREPLY[@]}\"";
        let mut directory = support::program();
        directory.pop();
        let path = format!("{}:{}", directory.display(), std::env::var("PATH").expect("PATH"));
        let output =
            std::process::Command::new("bash").args(["-c", script, "bash", line]).env("PATH", path).output();
        let Ok(output) = output else { return support::skip("bash is not installed") };
        let (words, errors) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(words.lines().any(|word| word.trim() == expected), "{line}: {words}{errors}");
    }
    if up {
        assert!(support::linerate(&["lab", "down", &lab]).status.success());
    }
}
