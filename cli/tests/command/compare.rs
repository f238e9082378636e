//! `--compare`: two results as a gate.

use linerate_testkit::reflector::Reflector;
use serde_json::{Value, json};

use crate::support::{
    TestDirectory, assert_refused, checked_document, document_of, errors_of, linerate, machine, text_of,
    texts,
};

/// A result of `load` on an echo server.
fn measured(mode: &[&str]) -> Value {
    machine();
    let server = Reflector::builder().start().expect("an echo server");
    let run =
        [&server.address().to_string(), "--flows", "1", "--backend", "socket", "--quiet", "--json", "-"];
    let output = linerate(&[&["load"], mode, &run].concat());
    assert!(output.status.success(), "{}", errors_of(&output));
    document_of(&output)
}

/// Multiplies a figure of all intervals of a run or of a ramp's step.
fn scale_intervals(outcome: &mut Value, figure: &str, factor: f64) {
    for interval in outcome["intervals"].as_array_mut().expect("intervals") {
        let value = interval.pointer_mut(figure).expect("the figure");
        *value = ((value.as_f64().expect("a number") * factor) as u64).into();
    }
}

#[test]
fn compare_exits_1_only_for_a_slower_server() {
    let directory = TestDirectory::new();
    let mut run = measured(&["--window", "4", "--duration", "2", "--interval", "0.1"]);
    let old = &directory.write("old.json", &run);
    scale_intervals(&mut run["result"], "/received", 0.125);
    let slow = &directory.write("slow.json", &run);
    run["result"]["intervals"].as_array_mut().expect("intervals").truncate(1);
    let short = &directory.write("short.json", &run);
    run["result"]["generator"]["payload_bytes"] = 200.into();
    let payload = &directory.write("payload.json", &run);
    let other = &directory.write("other.json", json!({"schema": "linerate.cost/2"}));

    let compare = |old: &str, new: &str| linerate(&["load", "--compare", old, new]);
    let worse = linerate(&["load", "--compare", old, slow, "--json", "-"]);
    let document = checked_document(&worse, 1, "linerate.comparison/1");
    let figure = &document["result"]["figures"][0];
    assert_eq!((&figure["key"], &figure["verdict"]), (&"answered_per_second".into(), &"worse".into()));
    let ratio = figure["ratio"]["median"].as_f64().expect("a ratio");
    assert!((0.12..0.13).contains(&ratio), "{document}");
    let text = String::from_utf8_lossy(&compare(old, slow).stdout).into_owned();
    assert!(text.starts_with("The new run is worse: answered_per_second is ×0."), "{text}");
    for (first, second) in [(old, old), (slow, old)] {
        let output = compare(first, second);
        assert_eq!(output.status.code(), Some(0), "{first} {second} {}", errors_of(&output));
    }
    for (file, words) in [
        (short.as_str(), "answered_per_second: 1 samples have no interval"),
        (payload, "the payload in bytes is 100 in "),
        (other, "its schema is linerate.cost/2"),
        ("missing.json", "cannot read"),
    ] {
        assert_refused(&compare(old, file), words);
    }
}

#[test]
fn ramps_are_compared_at_the_rates_they_share() {
    let directory = TestDirectory::new();
    let mut ramp = measured(&["--ramp", "200-400:200", "--duration", "1"]);
    for step in ramp["result"]["steps"].as_array_mut().expect("steps") {
        // A busy machine sends late.
        step["self_watch"]["bound_because"] = json!([]);
    }
    let old = &directory.write("old.json", &ramp);
    let steps = ramp["result"]["steps"].as_array_mut().expect("steps");
    steps.iter_mut().for_each(|step| scale_intervals(step, "/latency_ns/p50", 20.0));
    let mut higher_step = steps[1].clone();
    higher_step["requested_per_second"] = 600.into();
    steps.push(higher_step);
    let slow = &directory.write("slow.json", &ramp);
    let output = linerate(&["load", "--compare", old, slow, "--json", "-"]);
    let document = checked_document(&output, 1, "linerate.comparison/1");
    let keys = texts(&document["result"]["figures"], "key");
    let of_rate = |rate| ["answered_per_second", "latency_p50_ns"].map(|key| format!("at {rate}/s: {key}"));
    assert_eq!(keys, [of_rate(200), of_rate(400)].concat());
    let warning = document["warnings"][0]["detail"].as_str().expect("a warning");
    let missing = of_rate(600).join(", ");
    assert!(warning.contains("slow.json has figures") && warning.ends_with(&missing), "{warning}");

    // Nobody answers in the new run.
    for step in ramp["result"]["steps"].as_array_mut().expect("steps") {
        scale_intervals(step, "/received", 0.0);
        for interval in step["intervals"].as_array_mut().expect("intervals") {
            interval["latency_ns"]["p50"] = Value::Null;
        }
    }
    let silent = directory.write("silent.json", &ramp);
    let output = linerate(&["load", "--compare", old, &silent]);
    assert_eq!(output.status.code(), Some(1), "{}", errors_of(&output));
    let text = text_of(&output);
    assert!(text.starts_with("The new run is worse: at 200/s: answered_per_second is 0."), "{text}");
    assert!(text.contains("latency_p50_ns"), "{text}");
}

#[test]
fn ladders_are_compared_by_step_and_other_payloads_refused() {
    let directory = TestDirectory::new();
    let write_document = |name: &str, change: &dyn Fn(&mut Value)| {
        let mut document: Value =
            serde_json::from_str(include_str!("../../src/render/result_fixtures.json")).expect("JSON");
        change(&mut document);
        directory.write(name, document)
    };
    let old = write_document("old.json", &|_| ());
    let halve = |step: &mut Value| {
        for key in ["median", "low", "high"] {
            let value = &mut step["transactions_per_second"][key];
            *value = (value.as_f64().expect("a figure") * 0.5).into();
        }
    };
    let slower = write_document("slower.json", &|document| halve(&mut document["result"]["steps"][0]));
    let fewer_steps = write_document("fewer.json", &|document| {
        let steps = document["result"]["steps"].as_array_mut().expect("steps");
        steps.retain(|step| ["baseline", "pin-threads"].contains(&step["id"].as_str().expect("an id")));
        halve(&mut steps[1]);
    });
    let skipped = write_document("skipped.json", &|document| {
        let step = document["result"]["steps"].as_array_mut().expect("steps").last_mut().expect("a step");
        step["transactions_per_second"] = Value::Null;
        step["skipped_because"] = "no such sysctl".into();
    });
    let payload =
        write_document("payload.json", &|document| document["result"]["config"]["payload_bytes"] = 18.into());
    let compare = |new: &str| linerate(&["lab", "--compare", &old, new, "--json", "-"]);
    let same = compare(&old);
    checked_document(&same, 0, "linerate.comparison/1");
    assert_eq!(compare(&slower).status.code(), Some(1), "{}", errors_of(&compare(&slower)));
    let lost_step = compare(&skipped);
    assert_eq!(lost_step.status.code(), Some(1), "{}", errors_of(&lost_step));
    let warning = document_of(&lost_step)["warnings"][0]["detail"].as_str().expect("a warning").to_owned();
    assert!(
        warning.starts_with("step busy-poll was measured in") && warning.ends_with(": no such sysctl"),
        "{warning}"
    );
    assert_refused(&compare(&payload), "the payload in bytes is");
    let fewer = compare(&fewer_steps);
    assert_eq!(fewer.status.code(), Some(0), "{}", errors_of(&fewer));
    let warning = document_of(&fewer)["warnings"][0]["detail"].to_string();
    assert!(warning.contains("step pin-threads is not compared: the steps before it were"), "{warning}");
}
