//! `linerate lab --server`: the steps on a server program, and servers that cannot be measured.

use std::fs;

use serde_json::Value;

use crate::support::{
    TestDirectory, assert_refused, document_of, errors_of, is_installed, is_root, linerate, machine, program,
    step,
};

const NSD: &str = "nsd";

/// `linerate lab --quick --server`, with its document on standard output.
fn measure(server: &str, time: &str, steps: &str) -> Value {
    let server = ["lab", "--server", server, "--time", time, "--steps", steps];
    let output = linerate(&[&server[..], &["--quick", "--quiet", "--json", "-"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", errors_of(&output));
    document_of(&output)["result"].take()
}

/// Number of processes whose command line contains this text.
fn processes_with(text: &str) -> usize {
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    entries
        .filter(|entry| {
            fs::read(entry.path().join("cmdline"))
                .is_ok_and(|line| String::from_utf8_lossy(&line).replace('\0', " ").contains(text))
        })
        .count()
}

#[test]
fn lab_measures_restarts_and_boosts_nsd() {
    if !is_root() || !is_installed(NSD) {
        return;
    }
    machine();
    let report = measure("nsd", "12", "irq-affinity-rps,reuseport,steer-by-cpu,batch-syscalls");
    assert_eq!(report["config"]["server"]["name"], "nsd");
    let step = |id: &str| step(&report, id);
    for id in ["baseline", "irq-affinity-rps", "reuseport", "steer-by-cpu"] {
        assert!(step(id)["transactions_per_second"]["median"].as_f64() > Some(100.0), "{id}: {report}");
    }
    assert_eq!(step("reuseport")["changes"][0]["setting"], "server workers");
    assert!(step("steer-by-cpu")["changes"].to_string().contains("chosen by CPU, with boost"));
    let reason = step("batch-syscalls")["skipped_because"].to_string();
    assert!(reason.contains("not possible from outside"), "{reason}");
    assert_eq!(processes_with("linerate-server-"), 0, "the server and its workers are gone");
}

#[test]
fn no_reply_servers_have_a_rate_and_no_latency() {
    if !is_root() || !is_installed("rsyslogd") {
        return;
    }
    machine();
    let report = measure("rsyslog", "4", "steer-by-cpu");
    for step in report["steps"].as_array().expect("steps") {
        if step["id"] == "steer-by-cpu" {
            assert!(step["skipped_because"].to_string().contains("one socket"), "{step}");
            continue;
        }
        assert!(step["transactions_per_second"]["median"].as_f64() > Some(1_000.0), "{step}");
        assert!(step["latency_ns"].is_null(), "{step}");
    }
}

#[test]
fn unmeasurable_servers_are_reported_in_one_line() {
    if !is_root() {
        return;
    }
    let directory = TestDirectory::new();
    let bad_queries = format!("dns:{}", directory.write("queries", "www.example A\nonly-a-name\n"));
    let other_port =
        format!("sh -c 'exec {} serve echo --bind {{address}}:5999' {{port}}", program().display());
    let background = "sh -c 'sleep 471.5 & exit 0' {port}";
    for (server, workload, expected) in [
        ("nds", "echo", "unknown server 'nds'"),
        (
            "/nonexistent/server {port}",
            "echo",
            "server cannot be started: cannot start \"/nonexistent/server\" in lab host receiver: No such file",
        ),
        (
            "sh -c 'echo no such zone >&2; exit 3' {port}",
            "echo",
            "ended with exit status: 3; its last output: no such zone",
        ),
        (
            "sh -c 'test -t 0 || { echo stdin is no terminal >&2; exit 1; }' {port}",
            "echo",
            "ended with exit status: 1; its last output: stdin is no terminal",
        ),
        (background, "echo", "if it went to the background, use its option to stay in the foreground"),
        (&other_port, "echo", "did not bind UDP port 5300 within 20 s; it has bound 5999"),
        ("nsd", "ntp", "nsd answered none of"),
        ("nsd", "dns:/nonexistent", "/nonexistent: cannot be read"),
        ("nsd", &bad_queries, "queries, line 2: "),
        ("nsd", "dnsx", "workload 'dnsx': give dns:FILE"),
    ] {
        if server == NSD && !is_installed(NSD) {
            break;
        }
        let output = linerate(&["lab", "--quick", "--quiet", "--server", server, "--workload", workload]);
        assert_refused(&output, expected);
    }
    assert_eq!(processes_with("sleep 471.5"), 0, "a background process ends with the lab");
}
