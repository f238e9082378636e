//! `serve sink` counts as many packets as an nftables counter in front of it.

use std::io::{BufRead, BufReader, Read as _};
use std::process::{Command, Stdio};

use linerate_lab::{Lab, LabHost};
use rustix::process::Signal;
use serde_json::Value;

use crate::schema::conforms;
use crate::support;

const PAYLOAD: u64 = 18;

/// Runs a command on a lab host to its end. Returns standard output.
fn output_of(host: &LabHost, mut command: Command) -> String {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = host.spawn(command).expect("it starts");
    let mut text = String::new();
    child.stdout.take().expect("a pipe").read_to_string(&mut text).expect("text");
    child.wait().expect("it ends");
    text
}

#[test]
fn sink_and_nftables_count_the_same_packets() {
    let test = "sink_and_nftables_count_the_same_packets";
    let lab = match Lab::builder().queues(1).start() {
        Ok(lab) => lab,
        Err(why) => return support::skip(test, &why.to_string()),
    };
    if !super::is_installed(test, "nft") {
        return;
    }
    let nft = |arguments: &[&str]| {
        let mut command = Command::new("nft");
        command.args(arguments);
        output_of(lab.receiver(), command)
    };
    nft(&["add table ip t; add counter ip t c; add chain ip t i { type filter hook input priority 0; };
           add rule ip t i udp dport 5300 counter name c"]);

    let address = format!("{}:5300", lab.links()[0].receiver.ipv4[0]);
    let directory = tempfile::tempdir().expect("a directory");
    let json = directory.path().join("sink.json");
    let json = json.to_str().expect("a name");
    let mut sink = Command::new(support::program());
    sink.args(["serve", "sink", "--bind", &address, "--workers", "1", "--json", json, "--json-stream", "-"]);
    sink.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut sink = lab.receiver().spawn(sink).expect("it starts");
    let mut messages = BufReader::new(sink.stderr.take().expect("a pipe")).lines();
    assert!(messages.any(|line| line.expect("text").ends_with("end with Ctrl-C")));

    let mut load = Command::new(support::program());
    let payload = PAYLOAD.to_string();
    load.args(["load", &address, "--rate", "10k", "--duration", "1", "--no-reply", "--quiet"]);
    load.args(["--payload", &payload, "--backend", "socket", "--json", "-"]);
    let load: Value = serde_json::from_str(&output_of(&lab.senders()[0], load)).expect("a document");

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
    let summary: Value = serde_json::from_slice(&std::fs::read(json).expect("written")).expect("a document");
    let summary = &summary["result"];

    let counters: Value = serde_json::from_str(&nft(&["-j", "list", "counters"])).expect("JSON");
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
fn a_stream_on_standard_output_is_nothing_but_json() {
    let sink = ["serve", "sink", "--bind", "127.0.0.1:0", "--duration", "0.1", "--json-stream", "-"];
    let output = support::linerate(&sink);
    let text = String::from_utf8(output.stdout).expect("text");
    assert_eq!(text.lines().count(), 2, "{text}");
    for line in text.lines() {
        serde_json::from_str::<Value>(line).expect(line);
    }
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(messages.contains("received 0 datagrams in "), "{messages}");
}
