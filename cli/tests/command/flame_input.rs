//! Saved documents that `flame` reads, and its errors for documents that it cannot read.

use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::schema::conforms;
use crate::support::{
    TestDirectory, assert_refused, checked_document, document_of, errors_of, linerate, program, text_of,
};

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

#[test]
fn closed_output_pipes_change_neither_files_nor_exit_status() {
    let directory = TestDirectory::new();
    let run = |file: &str| {
        let folded = directory.file("folded");
        let mut command = Command::new(program());
        command.args(["flame", "--from", file, "--folded"]).arg(&folded);
        for set_output in [Command::stdout::<Stdio>, Command::stderr::<Stdio>] {
            let (reader, writer) = std::io::pipe().expect("a pipe");
            drop(reader);
            set_output(&mut command, writer.into());
        }
        (command.status().expect("it starts").code(), std::fs::read_to_string(folded).is_ok())
    };
    assert_eq!(run("missing.json"), (Some(2), false));
    let idle = directory.write("idle.json", document(true));
    assert_eq!(run(&idle), (Some(1), false));
    let busy = directory.write("busy.json", document(false));
    assert_eq!(run(&busy), (Some(0), true));
}

#[test]
fn saved_runs_are_printed_drawn_and_converted() {
    let directory = TestDirectory::new();
    let file = directory.write("run.json", document(false));
    let svg = directory.file("run.svg");
    let output = linerate(&["flame", "--from", &file, "--svg", &svg]);
    let text = text_of(&output);
    assert!(output.status.success(), "{}", errors_of(&output));
    assert!(text.contains("nft_do_chain [nf_tables]") && text.contains("50 %"), "{text}");
    let svg = std::fs::read_to_string(svg).expect("drawn");
    assert!(svg.contains("<svg") && svg.contains("nft_do_chain"), "{svg}");

    let saved = document_of(&linerate(&["flame", "--from", &file, "--irq-only", "--json", "-"]));
    assert_eq!(saved["result"]["profile"]["stacks"], document(false)["result"]["profile"]["stacks"]);
    conforms(&saved, "linerate.flame/2");
    assert_eq!(saved["result"]["irq_only"], true);
    let folded = linerate(&["flame", "--from", &file, "--folded", "-"]);
    let folded = text_of(&folded);
    assert!(folded.trim_end().ends_with("handle_softirqs;net_rx_action;nft_do_chain 50"), "{folded}");
}

#[test]
fn runs_with_only_idle_samples_write_no_svg() {
    let directory = TestDirectory::new();
    let file = directory.write("idle.json", document(true));
    let svg = directory.file("idle.svg");
    let output = linerate(&["flame", "--from", &file, "--svg", &svg]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("All samples are idle"));
    assert!(errors_of(&output).starts_with("linerate: --svg: no file was written"));
    assert!(std::fs::metadata(svg).is_err());
}

#[test]
fn diff_of_a_run_with_itself_shows_no_change() {
    let directory = TestDirectory::new();
    let file = directory.write("run.json", document(false));
    let output = linerate(&["flame", "--diff", &file, &file, "--json", "-"]);
    let difference = checked_document(&output, 0, "linerate.flame-diff/2");
    let difference = &difference["result"];
    assert_eq!(difference["difference"]["before_cpus"], difference["difference"]["after_cpus"]);
    for spot in difference["spots"].as_array().expect("spots") {
        assert_eq!(spot["before_cpus"], spot["after_cpus"]);
    }
}

#[test]
fn flame_refuses_other_and_invalid_documents() {
    let directory = TestDirectory::new();
    let file = directory.write("run.json", document(false));
    let other = directory.write("other.json", json!({"schema": "linerate.load/1"}));
    let output = linerate(&["flame", "--diff", &file, &other]);
    assert_refused(&output, "its schema is linerate.load/1; linerate.flame/2 is required");
    let nameless = directory.write("nameless.json", json!([1]));
    assert_refused(&linerate(&["flame", "--from", &nameless]), "it names no schema");
    let mut invalid = document(false);
    invalid["result"]["profile"]["stacks"][0]["samples"] = "many".into();
    let invalid = directory.write("half.json", &invalid);
    assert_refused(&linerate(&["flame", "--from", &invalid]), "invalid type");
    let mut locks = document(false);
    locks["result"]["profile"] = Value::Null;
    let locks = directory.write("locks.json", &locks);
    let output = linerate(&["flame", "--diff", &locks, &file]);
    assert_refused(&output, "it has no samples (a run with --locks)");
    let mut unknown_function = document(false);
    unknown_function["result"]["profile"]["stacks"][0]["frames"] = json!([77]);
    let unknown_function = directory.write("foreign.json", &unknown_function);
    assert_refused(&linerate(&["flame", "--from", &unknown_function]), "function 77");
}
