//! `linerate lab --server`: the steps on a server program, and servers that cannot be measured.

use std::fs;

use serde_json::Value;

use crate::support::{linerate, machine, program, skip};

fn is_root_with_nsd(test: &str) -> bool {
    let has_nsd = std::path::Path::new("/usr/sbin/nsd").exists();
    let why = match (rustix::process::geteuid().is_root(), has_nsd) {
        (true, true) => return true,
        (false, _) => "boost requires root",
        (true, false) => "nsd is not installed",
    };
    skip(test, why);
    false
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
    if !is_root_with_nsd("lab_measures_restarts_and_boosts_nsd") {
        return;
    }
    let _machine = machine();
    let steps = "irq-affinity-rps,reuseport,steer-by-cpu,batch-syscalls";
    let output = linerate(&[
        "lab", "--server", "nsd", "--time", "12", "--quick", "--quiet", "--json", "-", "--steps", steps,
    ]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let document: Value = serde_json::from_str(&text).expect("JSON");
    let report = &document["result"];
    assert_eq!(report["config"]["server"]["name"], "nsd");
    let step = |id: &str| {
        let steps = report["steps"].as_array().expect("steps");
        steps
            .iter()
            .find(|step| step["id"] == id)
            .unwrap_or_else(|| panic!("{id} is missing: {text}"))
            .clone()
    };
    for id in ["baseline", "irq-affinity-rps", "reuseport", "steer-by-cpu"] {
        assert!(step(id)["transactions_per_second"]["median"].as_f64() > Some(100.0), "{id}: {text}");
    }
    assert_eq!(step("reuseport")["changes"][0]["setting"], "server workers");
    assert!(step("steer-by-cpu")["changes"].to_string().contains("chosen by CPU, with boost"));
    let reason = step("batch-syscalls")["skipped_because"].to_string();
    assert!(reason.contains("not possible from outside"), "{reason}");
    assert_eq!(processes_with("linerate-server-"), 0, "the server and its workers are gone");
}

#[test]
fn no_reply_servers_have_a_rate_and_no_latency() {
    let test = "no_reply_servers_have_a_rate_and_no_latency";
    let has_rsyslog = std::path::Path::new("/usr/sbin/rsyslogd").exists();
    match (rustix::process::geteuid().is_root(), has_rsyslog) {
        (true, true) => {}
        (false, _) => return skip(test, "boost requires root"),
        (true, false) => return skip(test, "rsyslog is not installed"),
    }
    let _machine = machine();
    let output = linerate(&[
        "lab",
        "--server",
        "rsyslog",
        "--time",
        "4",
        "--quick",
        "--quiet",
        "--json",
        "-",
        "--steps",
        "steer-by-cpu",
    ]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let document: Value = serde_json::from_str(&text).expect("JSON");
    let steps = document["result"]["steps"].as_array().expect("steps");
    for step in steps {
        if step["id"] == "steer-by-cpu" {
            assert!(step["skipped_because"].to_string().contains("one socket"), "{step}");
            continue;
        }
        assert!(step["transactions_per_second"]["median"].as_f64() > Some(1_000.0), "{step}");
        assert!(step["latency_ns"].is_null(), "{step}");
    }
}

#[test]
fn server_on_another_port_is_reported_with_its_ports() {
    if !is_root_with_nsd("server_on_another_port_is_reported_with_its_ports") {
        return;
    }
    let wrong_port_server =
        format!("sh -c 'exec {} serve echo --bind {{address}}:5999' {{port}}", program().display());
    let workload = ["--workload", "echo", "--no-reply", "--quick", "--quiet"];
    let output = linerate(&[&["lab", "--server", &wrong_port_server][..], &workload].concat());
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("did not bind UDP port 5300") && error.lines().count() == 1, "{error}");
    assert!(error.contains("5999"), "{error}");
}

#[test]
fn unmeasurable_servers_are_reported_in_one_line() {
    if !is_root_with_nsd("unmeasurable_servers_are_reported_in_one_line") {
        return;
    }
    let _machine = machine();
    let directory = tempfile::tempdir().expect("a directory");
    let queries = directory.path().join("queries");
    fs::write(&queries, "www.example A\nonly-a-name\n").expect("written");
    let bad_queries = format!("dns:{}", queries.display());
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
        ("nsd", "ntp", "nsd answered none of"),
        ("nsd", "dns:/nonexistent", "/nonexistent: cannot be read"),
        ("nsd", &bad_queries, "queries, line 2: "),
        ("nsd", "dnsx", "workload 'dnsx': give dns:FILE"),
    ] {
        let output = linerate(&["lab", "--quick", "--quiet", "--server", server, "--workload", workload]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{server}: {error}");
        assert!(error.contains(expected) && error.lines().count() == 1, "{server}, {workload}: {error}");
    }
    assert_eq!(processes_with("sleep 471.5"), 0, "a background process ends with the lab");
}
