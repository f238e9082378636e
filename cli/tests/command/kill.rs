//! `linerate lab clean` removes everything that a run leaves when it is killed, at any moment.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{await_line, can_make_labs, document_of, errors_of, machine, program, signal, within};

/// Links in the test's network namespace, and the network namespaces of all linerate and nft
/// processes.
fn traces() -> (BTreeSet<String>, BTreeSet<String>) {
    let is_ours = |process: &Path| {
        let command = fs::read_to_string(process.join("comm")).unwrap_or_default();
        ["linerate", "nft"].contains(&command.trim())
    };
    let links = fs::read_dir("/sys/class/net")
        .map(|entries| {
            entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
        })
        .unwrap_or_default();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let namespaces = processes
        .filter(|entry| is_ours(&entry.path()))
        .filter_map(|entry| fs::read_link(entry.path().join("ns/net")).ok())
        .map(|link| link.to_string_lossy().into_owned())
        .collect();
    (links, namespaces)
}

/// `linerate lab` with these arguments and its own registry of labs.
fn lab(runtime: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.arg("lab").args(arguments).env("XDG_RUNTIME_DIR", runtime);
    command
}

fn start(runtime: &Path) -> Child {
    let mut run = lab(runtime, &["--steps", "reuseport", "--time", "20"]);
    run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the command starts")
}

fn lab_list(runtime: &Path) -> Vec<Value> {
    let list = document_of(&lab(runtime, &["list", "--json", "-"]).output().expect("the command starts"));
    list["result"]["labs"].as_array().cloned().expect("a list")
}

#[test]
fn lab_clean_removes_all_traces_of_a_killed_run() {
    machine();
    if !can_make_labs() {
        return;
    }
    let runtime = tempfile::tempdir().expect("a directory");
    let runtime = runtime.path();
    let before = traces();
    // Kills runs at several moments before the lab is up, and runs whose lab is up.
    for round in 0_u32..8 {
        let mut child = start(runtime);
        let pid = child.id();
        if round % 2 == 0 {
            std::thread::sleep(Duration::from_millis(u64::from(round) * 9));
        } else {
            within(20, "the lab is up", || {
                lab_list(runtime)
                    .iter()
                    .any(|lab| lab["process"]["pid"] == pid && lab["hosts"] != Value::Array(vec![]))
            });
        }
        child.kill().expect("killed");
        child.wait().expect("reaped");
        let clean = lab(runtime, &["clean"]).output().expect("the command starts");
        assert!(clean.status.success(), "{}", errors_of(&clean));
        within(20, "links and namespaces are as before", || {
            let now = traces();
            now.0 == before.0 && now.1.is_subset(&before.1)
        });
        assert!(lab_list(runtime).iter().all(|lab| lab["process"]["pid"] != pid));
    }
}

#[test]
fn interrupted_run_reports_and_removes_its_lab() {
    machine();
    if !can_make_labs() {
        return;
    }
    let runtime = tempfile::tempdir().expect("a directory");
    let steps = ["--quick", "--steps", "reuseport,steer-by-cpu", "--time", "30", "--json", "-"];
    let mut run = lab(runtime.path(), &steps);
    let mut child = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command starts");
    // linerate prints this line when the baseline is done.
    await_line(&mut child.stderr, |line| line.starts_with("baseline").then_some(()));
    let pid = child.id();
    signal(pid, Signal::INT);
    let output = child.wait_with_output().expect("ended");
    assert_eq!(output.status.code(), Some(2));
    let report = document_of(&output);
    assert_eq!(report["result"]["steps"][0]["id"], "baseline");
    let warnings = report["warnings"].as_array().expect("a list");
    assert!(warnings.iter().any(|warning| warning["kind"] == "interrupted"), "{warnings:?}");
    // For root, `lab list` includes the labs of other tests.
    assert!(lab_list(runtime.path()).iter().all(|lab| lab["process"]["pid"] != pid));
}
