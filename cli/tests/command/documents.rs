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

fn assert_has_keys(value: &Value, keys: &[&str]) {
    for key in keys {
        assert!(value.get(key).is_some(), "no '{key}' in {value}");
    }
}

#[test]
fn load_and_serve_documents_agree_on_counts() {
    let mut server = Command::new(support::program())
        .args(["serve", "echo", "--bind", "127.0.0.1:0", "--json", "-"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    let mut errors = BufReader::new(server.stderr.take().expect("piped")).lines();
    let ready = errors.by_ref().map_while(Result::ok).find(|line| line.starts_with("serving echo on "));
    let ready = ready.expect("a line when it is ready");
    let address = ready.split_whitespace().nth(3).expect("an address");

    let load = support::linerate(&["load", address, "--duration", "0.3", "--rate", "5k", "--json", "-"]);
    assert!(load.status.success(), "{}", String::from_utf8_lossy(&load.stderr));
    let load = document(&load);
    conforms(&load, "linerate.load/2");
    let load = &load["result"];
    assert_has_keys(load, &["sent", "answered", "lost", "duplicate", "reordered", "corrupt", "unsolicited"]);
    assert_has_keys(load, &["offered_per_second", "answered_per_second", "latency_ns", "generator_bound"]);
    assert_has_keys(&load["latency_ns"], &["p50", "p99", "p999"]);
    let count = |key: &str| load[key].as_u64().expect("a count");
    assert_eq!(count("sent"), count("answered") + count("lost"));

    let kill_status =
        Command::new("kill").args(["-INT", &server.id().to_string()]).status().expect("kill starts");
    assert!(kill_status.success());
    let server = server.wait_with_output().expect("ended");
    assert!(server.status.success());
    let serve = document(&server);
    conforms(&serve, "linerate.serve/2");
    let serve = &serve["result"];
    // The path over loopback loses nothing. Lost requests were lost before the server read them.
    assert!(serve["total"]["answered"].as_u64() >= Some(count("answered")), "{serve} {load}");
    assert!(serve["total"]["received"].as_u64() <= Some(count("sent")), "{serve} {load}");
}

#[test]
fn lab_reports_each_step_as_measured_or_skipped() {
    let _machine = support::machine();
    if let Err(why) = support::labs_can_be_made() {
        return support::skip("lab_reports_each_step_as_measured_or_skipped", &why);
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
    assert_has_keys(report, &["config", "testbed", "published"]);
    let steps = report["steps"].as_array().expect("steps");
    let ids: Vec<&str> = steps.iter().filter_map(|step| step["id"].as_str()).collect();
    assert_eq!(ids, ["baseline", "reuseport", "audit-off", "ip-id-skip"]);
    for step in steps {
        if step["applied"] == false {
            assert!(step["skipped_because"].as_str().is_some_and(|why| !why.is_empty()), "{step}");
            continue;
        }
        assert_has_keys(&step["transactions_per_second"], &["median", "low", "high", "samples"]);
        assert_has_keys(&step["latency_ns"], &["p50", "p99", "p999"]);
        assert_has_keys(&step["goodput_at_overload"], &["2", "5"]);
        assert_has_keys(step, &["loss_ratio", "cycles_per_transaction", "instructions_per_transaction"]);
        assert_has_keys(step, &["wire_bits_per_second", "line_rate_ratio", "warnings"]);
        assert!(step["transactions_per_second"]["median"].as_f64() > Some(0.0), "{step}");
        for figure in ["cycles_per_transaction", "instructions_per_transaction"] {
            let has_warning = step["warnings"].as_array().expect("warnings").iter().any(|warning| {
                warning["kind"] == "unknown"
                    && warning["detail"]
                        .as_str()
                        .is_some_and(|detail| detail.starts_with(figure.split('_').next().expect("a word")))
            });
            assert_eq!(step[figure].is_null(), has_warning, "{figure} of {step}");
        }
    }
    assert_eq!(steps[3]["versus_previous"]["id"], "reuseport");
    let verdict = steps[3]["versus_previous"]["verdict"].as_str().expect("a verdict");
    assert!(["better", "worse", "no-difference-shown"].contains(&verdict), "{verdict}");
    let page = std::fs::read_to_string(html).expect("the page was written");
    assert!(page.contains("<svg") && page.contains("ip-id-skip"));
}

#[test]
fn lab_up_and_down_match_their_schemas_and_list_has_the_lab() {
    let _machine = support::machine();
    if let Err(why) = support::labs_can_be_made() {
        return support::skip("lab_up_and_down_match_their_schemas_and_list_has_the_lab", &why);
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
    let list = document(&lab(&["list", "--json", "-"]));
    let labs = list["result"]["labs"].as_array().expect("labs");
    assert!(labs.iter().any(|lab| lab["name"] == name.as_str()), "{list}");
    let run = lab(&["exec", "--lab", &name, "sender1", "--", "cat", "/sys/class/net/eth0/operstate"]);
    assert_eq!(String::from_utf8_lossy(&run.stdout), "up\n");
    let down = document(&lab(&["down", &name, "--json", "-"]));
    conforms(&down, "linerate.clean/2");
    assert_eq!(down["result"]["labs"][0]["gone"], true);
}

#[test]
fn list_of_steps_matches_its_schema() {
    let list = document(&support::linerate(&["lab", "--list", "--json", "-"]));
    conforms(&list, "linerate.steps/2");
    assert_eq!(list["result"]["steps"][0]["id"], "baseline");
}

#[test]
fn calc_json_matches_its_schema() {
    let output =
        support::linerate(&["calc", "--payload", "100", "--link", "10G", "--tps", "270k", "--json", "-"]);
    conforms(&document(&output), "linerate.calc/2");
}

#[test]
fn calc_prints_packet_rates_of_10g_links() {
    let text = |arguments: &[&str]| {
        let output = support::linerate(arguments);
        assert!(output.status.success());
        String::from_utf8(output.stdout).expect("text")
    };
    assert!(text(&["calc", "--payload", "100", "--link", "10G"]).contains("7,530,120"));
    assert!(text(&["calc", "--frame", "64", "--link", "10G"]).contains("14,880,952"));
}
