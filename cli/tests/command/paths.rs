//! `linerate lab paths`.

use std::fs;
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;

use crate::support::{
    TestDirectory, can_make_labs, checked_document, document_of, errors_of, is_root, linerate, machine,
    program, signal, texts, within,
};

#[test]
fn paths_are_compared_with_host_and_only_tap_has_a_relay() {
    machine();
    if !is_root() || !can_make_labs() {
        return;
    }
    let directory = TestDirectory::new();
    let page = &directory.file("paths.html");
    let output =
        linerate(&["lab", "paths", "--paths", "tap,ipvlan", "--samples", "4", "--json", "-", "--html", page]);
    let document = checked_document(&output, 0, "linerate.paths/1");
    let paths = document["result"]["paths"].as_array().expect("paths");
    assert_eq!(texts(&document["result"]["paths"], "name"), ["host", "ipvlan", "tap"]);
    for path in paths.iter().filter(|path| path["skipped_because"].is_null()) {
        let cost = &path["cost"];
        let figure = |key: &str| cost[key].as_f64().unwrap_or_else(|| panic!("{key} of {path}"));
        let parts: f64 = cost["parts"]
            .as_array()
            .expect("parts")
            .iter()
            .filter_map(|part| part["ns_per_transaction"].as_f64())
            .sum();
        assert!((parts / figure("host_ns_per_transaction") - 1.0).abs() < 1e-6, "{cost}");
        assert!(figure("machine_ns_per_transaction") >= parts, "{cost}");
        assert!(figure("answered_ratio") > 0.5, "{path}");
        let has_relay =
            cost["parts"].as_array().expect("parts").iter().any(|part| part["context"] == "relay");
        assert_eq!(has_relay, path["name"] == "tap", "{cost}");
        assert!(path["recipe"].as_array().is_some_and(|lines| lines.len() >= 4), "{path}");
    }
    let reason = paths[1]["skipped_because"].as_str().unwrap_or_default();
    assert!(reason.is_empty() || reason.contains("ip link add"), "{reason}");
    assert!(fs::read_to_string(page).expect("the page").contains("<svg"));
}

/// The relay process of a path ends with the killed command. `lab clean` removes the rest.
#[test]
fn killed_lab_paths_leaves_no_relay_process() {
    if !is_root() || !can_make_labs() {
        return;
    }
    let (mut child, relay) = start_tap_path();
    child.kill().expect("killed");
    child.wait().expect("its status");
    within(20, "the relay ends", || !fs::exists(format!("/proc/{relay}")).unwrap_or(true));
    assert!(linerate(&["lab", "clean"]).status.success());
}

#[test]
fn interrupted_lab_paths_reports_the_paths_until_then() {
    if !is_root() || !can_make_labs() {
        return;
    }
    let (child, _) = start_tap_path();
    signal(child.id(), Signal::INT);
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(2), "{}", errors_of(&output));
    let document = document_of(&output);
    assert_eq!(document["warnings"][0]["kind"], "interrupted");
    let [host, tap] = &document["result"]["paths"].as_array().expect("paths")[..] else {
        panic!("{document}")
    };
    assert!(host["transactions_per_second"]["median"].as_f64() > Some(0.0), "{host}");
    assert_eq!(tap["skipped_because"], "interrupted");
}

/// A comparison that has measured `host` and now has the path `tap`, and the relay process.
fn start_tap_path() -> (Child, u32) {
    let child = Command::new(program())
        .args(["lab", "paths", "--paths", "tap", "--samples", "4", "--json", "-"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the command starts");
    let mut relay = None;
    within(20, "the relay runs", || {
        relay = relays_of(child.id()).first().copied();
        relay.is_some()
    });
    (child, relay.expect("a process"))
}

/// `linerate lab relay tap` processes that this process started.
fn relays_of(pid: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_relay = |relay: &u32| {
        let read = |file: &str| fs::read_to_string(format!("/proc/{relay}/{file}")).unwrap_or_default();
        read("cmdline").contains("relay\0tap") && read("status").contains(&format!("PPid:\t{pid}\n"))
    };
    pids.filter(is_relay).collect()
}
