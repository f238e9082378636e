//! The JSON documents match their schemas, and their figures agree with each other.

use crate::schema::conforms;
use crate::support;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use serde_json::Value;

fn document(output: &std::process::Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)))
}

fn has(value: &Value, keys: &[&str]) {
    for key in keys {
        assert!(value.get(key).is_some(), "no '{key}' in {value}");
    }
}

#[test]
fn a_load_and_the_server_it_loads_agree() {
    let mut server = Command::new(support::program())
        .args(["serve", "echo", "--bind", "127.0.0.1:0", "--json", "-"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let mut errors = BufReader::new(server.stderr.take().expect("piped")).lines();
    let ready = errors.by_ref().map_while(Result::ok).find(|line| line.starts_with("serving echo on "));
    let ready = ready.expect("it says when it is ready");
    let address = ready.split_whitespace().nth(3).expect("it says where");

    let load = support::linerate(&["load", address, "--duration", "0.3", "--rate", "5k", "--json", "-"]);
    assert!(load.status.success(), "{}", String::from_utf8_lossy(&load.stderr));
    let load = document(&load);
    conforms(&load, "linerate.load/2");
    let load = &load["result"];
    has(load, &["sent", "answered", "lost", "duplicate", "reordered", "corrupt", "unsolicited"]);
    has(load, &["offered_per_second", "answered_per_second", "latency_ns", "generator_bound"]);
    has(&load["latency_ns"], &["p50", "p99", "p999"]);
    let count = |key: &str| load[key].as_u64().expect("a count");
    assert_eq!(count("sent"), count("answered") + count("lost"));

    let ended = Command::new("kill").args(["-INT", &server.id().to_string()]).status().expect("kill starts");
    assert!(ended.success());
    let server = server.wait_with_output().expect("ended");
    assert!(server.status.success());
    let served = document(&server);
    conforms(&served, "linerate.serve/2");
    let served = &served["result"];
    // The path over loopback loses nothing. Lost requests were lost before the server read them.
    assert!(served["total"]["answered"].as_u64() >= Some(count("answered")), "{served} {load}");
    assert!(served["total"]["received"].as_u64() <= Some(count("sent")), "{served} {load}");
}

#[test]
fn a_run_reports_every_step_measured_or_skipped() {
    let _machine = support::machine();
    if let Err(why) = support::labs_can_be_made() {
        return support::skip("a_run_reports_every_step_measured_or_skipped", &why);
    }
    let directory = tempfile::tempdir().expect("a directory");
    let html = directory.path().join("ladder.html");
    let html = html.to_str().expect("a name");
    let steps = "reuseport,audit-off,ip-id-skip";
    let arguments =
        ["lab", "--quick", "--time", "6", "--quiet", "--steps", steps, "--json", "-", "--html", html];
    let output = support::linerate(&arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report = document(&output);
    conforms(&report, "linerate.ladder/2");
    let report = &report["result"];
    has(report, &["config", "testbed", "published"]);
    let steps = report["steps"].as_array().expect("steps");
    let ids: Vec<&str> = steps.iter().filter_map(|step| step["id"].as_str()).collect();
    assert_eq!(ids, ["baseline", "reuseport", "audit-off", "ip-id-skip"]);
    for step in steps {
        if step["applied"] == false {
            assert!(step["skipped_because"].as_str().is_some_and(|why| !why.is_empty()), "{step}");
            continue;
        }
        has(&step["transactions_per_second"], &["median", "low", "high", "samples"]);
        has(&step["latency_ns"], &["p50", "p99", "p999"]);
        has(&step["goodput_at_overload"], &["2", "5"]);
        has(step, &["loss_ratio", "cycles_per_transaction", "instructions_per_transaction"]);
        has(step, &["wire_bits_per_second", "line_rate_ratio", "warnings"]);
        assert!(step["transactions_per_second"]["median"].as_f64() > Some(0.0), "{step}");
        for unknown in ["cycles_per_transaction", "instructions_per_transaction"] {
            let warned = step["warnings"].as_array().expect("warnings").iter().any(|warning| {
                warning["kind"] == "unknown"
                    && warning["detail"]
                        .as_str()
                        .is_some_and(|detail| detail.starts_with(unknown.split('_').next().expect("a word")))
            });
            assert_eq!(step[unknown].is_null(), warned, "{unknown} of {step}");
        }
    }
    assert_eq!(steps[3]["versus_previous"]["id"], "reuseport");
    let verdict = steps[3]["versus_previous"]["verdict"].as_str().expect("a verdict");
    assert!(["better", "worse", "no-difference-shown"].contains(&verdict), "{verdict}");
    let page = std::fs::read_to_string(html).expect("the page was written");
    assert!(page.contains("<svg") && page.contains("ip-id-skip"));
}

#[test]
fn labs_are_listed_from_up_to_down() {
    let _machine = support::machine();
    if let Err(why) = support::labs_can_be_made() {
        return support::skip("labs_are_listed_from_up_to_down", &why);
    }
    let name = format!("documents-{}", std::process::id());
    let lab = |arguments: &[&str]| {
        let output = support::linerate(&[&["lab"], arguments].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output
    };
    let up = document(&lab(&["up", &name, "--senders", "2", "--json", "-"]));
    conforms(&up, "linerate.labs/2");
    assert_eq!(up["result"]["labs"][0]["hosts"].as_array().map(Vec::len), Some(3));
    let listed = document(&lab(&["list", "--json", "-"]));
    let labs = listed["result"]["labs"].as_array().expect("labs");
    assert!(labs.iter().any(|lab| lab["name"] == name.as_str()), "{listed}");
    let run = lab(&["exec", "--lab", &name, "sender1", "--", "cat", "/sys/class/net/eth0/operstate"]);
    assert_eq!(String::from_utf8_lossy(&run.stdout), "up\n");
    let down = document(&lab(&["down", &name, "--json", "-"]));
    conforms(&down, "linerate.clean/2");
    assert_eq!(down["result"]["labs"][0]["gone"], true);
}

#[test]
fn the_steps_are_listed_as_a_document_too() {
    let listed = document(&support::linerate(&["lab", "--list", "--json", "-"]));
    conforms(&listed, "linerate.steps/2");
    assert_eq!(listed["result"]["steps"][0]["id"], "baseline");
}

#[test]
fn arithmetic_is_a_document_too() {
    let output =
        support::linerate(&["calc", "--payload", "100", "--link", "10G", "--tps", "270k", "--json", "-"]);
    conforms(&document(&output), "linerate.calc/2");
}

#[test]
fn calc_prints_the_figures_of_the_field() {
    let text = |arguments: &[&str]| {
        let output = support::linerate(arguments);
        assert!(output.status.success());
        String::from_utf8(output.stdout).expect("text")
    };
    assert!(text(&["calc", "--payload", "100", "--link", "10G"]).contains("7,530,120"));
    assert!(text(&["calc", "--frame", "64", "--link", "10G"]).contains("14,880,952"));
}
