//! `serve sink` counts as many packets as an nftables counter in front of it.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use linerate_lab::Lab;
use rustix::process::Signal;
use serde_json::Value;

use crate::schema::conforms;
use crate::support::{
    self, TestDirectory, await_line, document_of, is_installed, program, read_document, run_on, start_lab,
    start_on, text_of,
};

const PAYLOAD: u64 = 18;

#[test]
fn sink_and_nftables_count_the_same_packets() {
    let Some(lab) = start_lab(Lab::builder().queues(1)) else { return };
    if !is_installed("nft") {
        return;
    }
    let nft = |arguments: &[&str]| run_on(lab.receiver(), "nft", arguments);
    nft(&["add table ip t; add counter ip t c; add chain ip t i { type filter hook input priority 0; };
           add rule ip t i udp dport 5300 counter name c"]);

    let address = format!("{}:5300", lab.links()[0].receiver.ipv4[0]);
    let directory = TestDirectory::new();
    let json = &directory.file("sink.json");
    let serve = ["serve", "sink", "--bind", &address, "--workers", "1", "--json", json, "--json-stream", "-"];
    let mut sink = start_on(lab.receiver(), program(), &serve);
    await_line(&mut sink.stderr, |line| line.ends_with("end with Ctrl-C").then_some(()));

    let payload = PAYLOAD.to_string();
    let load = ["load", &address, "--rate", "1k", "--duration", "1", "--no-reply", "--quiet"];
    let more = ["--payload", &payload, "--backend", "socket", "--json", "-"];
    let load = document_of(&run_on(&lab.senders()[0], program(), &[&load[..], &more].concat()));

    // Reads up to the first second without packets after the load.
    let mut stream = BufReader::new(sink.stdout.take().expect("a pipe")).lines();
    let mut seconds: Vec<Value> = Vec::new();
    let start: Value = serde_json::from_str(&stream.next().expect("a line").expect("text")).expect("JSON");
    conforms(&start, "linerate.sink-stream/1");
    for line in stream.by_ref() {
        seconds.push(serde_json::from_str(&line.expect("text")).expect("a line of JSON"));
        let rate = |second: &Value| second["packets_per_second"].as_f64();
        if seconds.iter().any(|second| rate(second) > Some(0.0)) && seconds.last().and_then(rate) == Some(0.0)
        {
            break;
        }
    }
    sink.signal(Signal::INT).expect("it runs");
    assert!(sink.wait().expect("it ends").success());
    let summary = &read_document(json)["result"];

    let counters = document_of(&nft(&["-j", "list", "counters"]));
    let counter =
        counters["nftables"].as_array().expect("a list").iter().find_map(|entry| entry.get("counter"));
    let counter_packets = &counter.expect("a counter")["packets"];
    let sent = load["result"]["sent"].as_u64().expect("a count");
    assert!(sent > 0, "{load}");
    assert_eq!(
        (counter_packets.as_u64(), summary["total"]["received"].as_u64()),
        (Some(sent), Some(sent)),
        "{summary}"
    );
    assert_eq!(summary["total"]["answered"], 0);
    let busiest = seconds.iter().max_by_key(|second| second["packets_per_second"].as_f64().map(f64::to_bits));
    let bits = |key: &str| busiest.expect("a second")[key].as_f64().expect("a rate");
    // A payload of 18 bytes makes the shortest frame, 84 bytes with preamble and gap.
    let ratio = bits("wire_bits_per_second") / bits("payload_bits_per_second");
    assert!((ratio - 84.0 / PAYLOAD as f64).abs() < 1e-6, "{ratio}");
}

#[test]
fn a_reader_that_ends_does_not_cost_the_json_document() {
    let directory = TestDirectory::new();
    let json = directory.file("sink.json");
    let mut sink = Command::new(program())
        .args(["serve", "sink", "--bind", "127.0.0.1:0", "--duration", "60", "--json"])
        .arg(&json)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the command starts");
    drop(sink.stdout.take());
    assert!(sink.wait().expect("it ends").success());
    let summary = read_document(json);
    assert!(summary["result"]["elapsed_seconds"].as_f64() < Some(60.0), "{summary}");
}

#[test]
fn a_stream_on_standard_output_is_nothing_but_json() {
    let sink = ["serve", "sink", "--bind", "127.0.0.1:0", "--duration", "0.1", "--json-stream", "-"];
    let output = support::linerate(&sink);
    let text = text_of(&output);
    assert_eq!(text.lines().count(), 2, "{text}");
    for line in text.lines() {
        serde_json::from_str::<Value>(line).expect(line);
    }
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(messages.contains("received 0 datagrams in "), "{messages}");
}
