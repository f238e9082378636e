//! `linerate lab clean` removes everything that a run leaves when it is killed, at any moment.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{labs_can_be_made, machine, program, skip};
use serde_json::Value;

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

fn await_condition(description: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < deadline, "{description} within 20 s");
        std::thread::yield_now();
    }
}

fn start(runtime: &Path) -> Child {
    Command::new(program())
        .args(["lab", "--steps", "reuseport", "--time", "20"])
        .env("XDG_RUNTIME_DIR", runtime)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the command starts")
}

fn lab_list(runtime: &Path) -> Vec<Value> {
    let output = Command::new(program())
        .args(["lab", "list", "--json", "-"])
        .env("XDG_RUNTIME_DIR", runtime)
        .output()
        .expect("the command starts");
    let document: Value = serde_json::from_slice(&output.stdout).expect("a JSON document");
    document["result"]["labs"].as_array().cloned().expect("a list")
}

#[test]
fn lab_clean_removes_all_traces_of_a_killed_run() {
    let _machine = machine();
    if let Err(why) = labs_can_be_made() {
        return skip("lab_clean_removes_all_traces_of_a_killed_run", &why);
    }
    let runtime = tempfile::tempdir().expect("a directory");
    let runtime = runtime.path();
    let before = traces();
    // Kills runs at several moments before the lab is up, and runs whose lab is up.
    for round in 0_u32..8 {
        let mut child = start(runtime);
        let pid = child.id();
        if round % 2 == 0 {
            let moment = Instant::now() + Duration::from_millis(u64::from(round) * 9);
            await_condition("the moment comes", || Instant::now() >= moment);
        } else {
            await_condition("the lab is up", || {
                lab_list(runtime)
                    .iter()
                    .any(|lab| lab["process"]["pid"] == pid && lab["hosts"] != Value::Array(vec![]))
            });
        }
        child.kill().expect("killed");
        child.wait().expect("reaped");
        let clean = Command::new(program())
            .args(["lab", "clean"])
            .env("XDG_RUNTIME_DIR", runtime)
            .output()
            .expect("the command starts");
        assert!(clean.status.success(), "{}", String::from_utf8_lossy(&clean.stderr));
        await_condition("links and namespaces are as before", || {
            let now = traces();
            now.0 == before.0 && now.1.is_subset(&before.1)
        });
        assert!(lab_list(runtime).iter().all(|lab| lab["process"]["pid"] != pid));
    }
}

#[test]
fn interrupted_run_reports_and_removes_its_lab() {
    let _machine = machine();
    if let Err(why) = labs_can_be_made() {
        return skip("interrupted_run_reports_and_removes_its_lab", &why);
    }
    let runtime = tempfile::tempdir().expect("a directory");
    let mut child = Command::new(program())
        .args(["lab", "--quick", "--steps", "reuseport,steer-by-cpu", "--time", "30", "--json", "-"])
        .env("XDG_RUNTIME_DIR", runtime.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    // The first line on standard error says that the baseline is done.
    let mut errors = std::io::BufReader::new(child.stderr.take().expect("piped"));
    let mut line = String::new();
    std::io::BufRead::read_line(&mut errors, &mut line).expect("a line");
    assert!(line.starts_with("baseline"), "{line}");
    let pid = child.id();
    let status = Command::new("kill").args(["-INT", &pid.to_string()]).status().expect("kill starts");
    assert!(status.success());
    let output = child.wait_with_output().expect("ended");
    assert_eq!(output.status.code(), Some(2));
    let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
    assert_eq!(report["result"]["steps"][0]["id"], "baseline");
    let warnings = report["warnings"].as_array().expect("a list");
    assert!(warnings.iter().any(|warning| warning["kind"] == "interrupted"), "{warnings:?}");
    // For root, `lab list` includes the labs of other tests.
    assert!(lab_list(runtime.path()).iter().all(|lab| lab["process"]["pid"] != pid));
}
