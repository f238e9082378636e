//! `--compare`: two results of `load` as a gate. The server burns CPU time for each request.

use std::net::UdpSocket;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;

use crate::schema::conforms;
use crate::support::{assert_refused, document_of, errors_of, linerate, machine};

/// An echo server that burns CPU time for each request.
struct BurningServer {
    address: String,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl BurningServer {
    fn start(rounds: u64) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        socket.set_read_timeout(Some(Duration::from_millis(50))).expect("a timeout");
        let address = socket.local_addr().expect("an address").to_string();
        let stop = Arc::new(AtomicBool::new(false));
        let stop_flag = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut request = [0; 2048];
            while !stop_flag.load(Ordering::Relaxed) {
                let Ok((length, from)) = socket.recv_from(&mut request) else { continue };
                let digest = (0..rounds).fold(1_u64, |sum, round| {
                    std::hint::black_box(sum.rotate_left(7).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ round)
                });
                std::hint::black_box(digest);
                let _ = socket.send_to(&request[..length], from);
            }
        });
        Self { address, stop, thread: Some(thread) }
    }

    fn measure(&self, file: &Path, more: &[&str]) {
        self.load(&["--window", "4", "--duration", "2"], file, more);
    }

    fn load(&self, mode: &[&str], file: &Path, more: &[&str]) {
        let file = file.to_str().expect("a name");
        let run = [self.address.as_str(), "--flows", "1", "--backend", "socket", "--quiet", "--json", file];
        let output = linerate(&[&["load"][..], mode, &run, more].concat());
        assert!(output.status.success(), "{}", errors_of(&output));
    }
}

impl Drop for BurningServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

const SHORT: &[&str] = &["--interval", "0.1"];

/// Rounds that take about 100 us in a test build.
const ROUNDS: u64 = 5_000;

#[test]
fn compare_exits_1_only_for_a_slower_server() {
    let _machine = machine();
    let directory = tempfile::tempdir().expect("a directory");
    let [old, slow] = ["old.json", "slow.json"].map(|name| directory.path().join(name));
    BurningServer::start(ROUNDS).measure(&old, SHORT);
    BurningServer::start(8 * ROUNDS).measure(&slow, SHORT);
    let [old, slow] = [&old, &slow].map(|path| path.to_str().expect("a name"));
    let compare = |files: [&str; 2], more: &[&str]| {
        linerate(&[&["load", "--compare", files[0], files[1]][..], more].concat())
    };
    let worse = compare([old, slow], &["--json", "-"]);
    assert_eq!(worse.status.code(), Some(1), "{}", errors_of(&worse));
    let document = document_of(&worse);
    conforms(&document, "linerate.comparison/1");
    let figure = &document["result"]["figures"][0];
    assert_eq!((&figure["key"], &figure["verdict"]), (&"answered_per_second".into(), &"worse".into()));
    let ratio = figure["ratio"]["median"].as_f64().expect("a ratio");
    assert!(ratio < 0.9, "{document}");
    let text = String::from_utf8_lossy(&compare([old, slow], &[]).stdout).into_owned();
    assert!(text.starts_with("The new run is worse: answered_per_second is ×0."), "{text}");
    for files in [[old, old], [slow, old]] {
        let output = compare(files, &[]);
        assert_eq!(output.status.code(), Some(0), "{files:?} {}", errors_of(&output));
    }
}

#[test]
fn ramps_are_compared_at_the_rates_they_share() {
    let _machine = machine();
    let directory = tempfile::tempdir().expect("a directory");
    let [old, slow] = ["old.json", "slow.json"].map(|name| directory.path().join(name));
    BurningServer::start(ROUNDS).load(&["--ramp", "200-400:200", "--duration", "1"], &old, &[]);
    // The median latency of this server is far longer at any rate.
    BurningServer::start(20 * ROUNDS).load(&["--ramp", "200-600:200", "--duration", "1"], &slow, &[]);
    let [old, slow] = [&old, &slow].map(|path| path.to_str().expect("a name"));
    let output = linerate(&["load", "--compare", old, slow, "--json", "-"]);
    assert_eq!(output.status.code(), Some(1), "{}", errors_of(&output));
    let document = document_of(&output);
    conforms(&document, "linerate.comparison/1");
    let figures = document["result"]["figures"].as_array().expect("figures");
    let keys: Vec<&str> = figures.iter().filter_map(|figure| figure["key"].as_str()).collect();
    let of_rate = |rate| ["answered_per_second", "latency_p50_ns"].map(|key| format!("at {rate}/s: {key}"));
    assert_eq!(keys, [of_rate(200), of_rate(400)].concat());
    let warning = document["warnings"][0]["detail"].as_str().expect("a warning");
    let missing = of_rate(600).join(", ");
    assert!(warning.contains("slow.json has figures") && warning.ends_with(&missing), "{warning}");
    let same = linerate(&["load", "--compare", old, old]);
    assert_eq!(same.status.code(), Some(0), "{}", errors_of(&same));
}

#[test]
fn a_run_without_replies_is_worse() {
    let _machine = machine();
    let directory = tempfile::tempdir().expect("a directory");
    let [old, silent] = ["old.json", "silent.json"].map(|name| directory.path().join(name));
    BurningServer::start(1).load(&["--rate", "500", "--duration", "1"], &old, SHORT);
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let address = socket.local_addr().expect("an address").to_string();
    let file = silent.to_str().expect("a name");
    let run = ["load", &address, "--rate", "500", "--duration", "1", "--flows", "1", "--backend", "socket"];
    let output = linerate(&[&run[..], &["--quiet", "--json", file], SHORT].concat());
    assert_eq!(output.status.code(), Some(1), "nothing was answered: {}", errors_of(&output));
    let output = linerate(&["load", "--compare", old.to_str().expect("a name"), file]);
    assert_eq!(output.status.code(), Some(1), "{}", errors_of(&output));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.starts_with("The new run is worse: answered_per_second is 0."), "{text}");
    assert!(text.contains("latency_p50_ns"), "{text}");
}

#[test]
fn compare_refuses_incomparable_results() {
    let _machine = machine();
    let directory = tempfile::tempdir().expect("a directory");
    let names = ["run.json", "payload.json", "short.json", "other.json"];
    let [run, payload, short, other] = names.map(|name| directory.path().join(name));
    let server = BurningServer::start(1);
    server.measure(&run, SHORT);
    server.measure(&payload, &["--interval", "0.1", "--payload", "200"]);
    server.measure(&short, &["--interval", "2"]);
    std::fs::write(&other, r#"{"schema": "linerate.cost/2"}"#).expect("written");
    for (file, words) in [
        (payload, "the payload in bytes is 100 in"),
        (short, "answered_per_second: 1 samples have no interval"),
        (other, "its schema is linerate.cost/2"),
        (directory.path().join("missing.json"), "cannot read"),
    ] {
        let files = [&run, &file].map(|path| path.to_str().expect("a name"));
        assert_refused(&linerate(&["load", "--compare", files[0], files[1]]), words);
    }
}

#[test]
fn ladders_are_compared_by_step_and_other_payloads_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let write_document = |name: &str, change: &dyn Fn(&mut Value)| {
        let mut document: Value =
            serde_json::from_str(include_str!("../../src/render/result_fixtures.json")).expect("JSON");
        change(&mut document);
        let path = directory.path().join(name).to_str().expect("a name").to_owned();
        std::fs::write(&path, document.to_string()).expect("written");
        path
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
    assert_eq!(same.status.code(), Some(0), "{}", errors_of(&same));
    let document = document_of(&same);
    conforms(&document, "linerate.comparison/1");
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
