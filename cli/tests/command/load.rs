//! `linerate load` against services of known behaviour.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::UdpSocket;
use std::process::{Command, Output, Stdio};

use linerate_lab::Lab;
use linerate_testkit::reflector::{Reflector, ReflectorBuilder, RunningReflector};
use serde_json::Value;

use crate::schema::conforms;
use crate::support::{
    TestDirectory, assert_refused, checked_document, count, document_of, errors_of, linerate, machine,
    program, read_document, run_on, start_root_lab, text_of,
};
use crate::turns::share_machine;

fn service(builder: ReflectorBuilder) -> (RunningReflector, String) {
    let running = builder.start().expect("a service on loopback");
    let address = running.address().to_string();
    (running, address)
}

fn load(arguments: &[&str]) -> Output {
    linerate(&[&["load"], arguments].concat())
}

/// The page must fetch nothing and run no scripts.
fn assert_self_contained(page: &str) {
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("</html>"));
    for reference in ["http:", "https:", "src=", "<script", "url(", "@import"] {
        assert!(!page.contains(reference), "{reference}");
    }
}

#[test]
fn search_finds_the_capacity_of_a_rate_limited_server() {
    machine();
    let capacity = 5_000.0;
    let (_service, address) = service(Reflector::builder().token_bucket(capacity, 100));
    let directory = TestDirectory::new();
    let html = &directory.file("search.html");
    let stream = &directory.file("search.jsonl");
    let search = ["--search", "--searches", "1", "--slot", "0.4", "--resolution", "2%", "--time", "10"];
    let files = ["--min-rate", "50k", "--json", "-", "--html", html];
    let more = ["--json-stream", stream, "--overload", "2"];
    let output = load(&[&[address.as_str()][..], &search, &files, &more].concat());
    // --min-rate requires ten times the capacity of the service.
    let report = checked_document(&output, 1, "linerate.load-search/2");
    let report = &report["result"];
    let rate = report["transactions_per_second"]["median"].as_f64().expect("a rate");
    // The lower bound is loose for busy machines.
    assert!(rate < capacity * 1.04 && rate > capacity * 0.8, "{rate} of {capacity}: {report}");
    assert!(report["missed"][0].as_str().is_some_and(|missed| missed.contains("--min-rate 50.0 k/s")));
    let goodput = report["overload"][0]["goodput_ratio"].clone();
    assert!(goodput.as_f64().is_none_or(|share| share > 0.7), "{goodput}");
    let page = fs::read_to_string(html).expect("a page");
    assert_self_contained(&page);
    assert!(page.contains("Capacity: ") && page.contains("<svg"));
    let lines = fs::read_to_string(stream).expect("a stream");
    let probes = lines.lines().filter(|line| line.contains(r#""event":"probe""#)).count();
    let slots: usize = [&report["neighbourhood"], &report["searches"][0]]
        .map(|search| search["slots"].as_array().map_or(0, Vec::len))
        .iter()
        .sum();
    assert!(probes > 5 && probes == slots, "{probes} {slots}");
}

#[test]
fn search_with_sockets_over_veth_is_a_lower_bound() {
    let Some(lab) = start_root_lab(Lab::builder()) else { return };
    machine();
    let echo = || Reflector::builder().address(([198, 18, 0, 1], 7777)).token_bucket(5_000.0, 100).start();
    let _service = lab.receiver().run(echo).expect("the host runs").expect("a service");
    for (backend, is_bound) in [("socket", true), ("xdp", false)] {
        let search =
            ["load", "198.18.0.1:7777", "--search", "--searches", "1", "--slot", "0.2", "--time", "3"];
        let more = ["--quiet", "--resolution", "5%", "--backend", backend, "--json", "-"];
        let output = run_on(&lab.senders()[0], program(), &[&search[..], &more].concat());
        assert!(output.status.success(), "{}", errors_of(&output));
        let result = &document_of(&output)["result"];
        let reasons = result["bound_because"].as_array().expect("reasons");
        let has_veth_reason = reasons.iter().any(|reason| reason["reason"] == "server-delivers-replies");
        assert_eq!(has_veth_reason, is_bound, "{backend}: {result}");
        // On a busy machine the generator itself may be late, with either backend.
        assert!(reasons.is_empty() || result["generator_bound"] == true, "{backend}: {result}");
    }
}

#[test]
fn json_stream_ends_with_a_document_whose_intervals_add_up() {
    let (service, address) = service(Reflector::builder());
    let arguments =
        [&address, "--rate", "2k", "--duration", "1", "--interval", "0.25", "--json-stream", "-", "--live"];
    let output = load(&arguments);
    assert!(output.status.success(), "{}", errors_of(&output));
    let lines: Vec<Value> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).expect("one object per line"))
        .collect();
    let (start, end) = (&lines[0], lines.last().expect("an end"));
    assert_eq!((&start["event"], &end["event"]), (&"start".into(), &"end".into()));
    conforms(start, "linerate.load-stream/2");
    let mut document = end.clone();
    document.as_object_mut().expect("an object").remove("event");
    conforms(&document, "linerate.load/2");
    let end = &end["result"];
    let intervals: Vec<&Value> = lines.iter().filter(|line| line["event"] == "interval").collect();
    assert_eq!(intervals.len(), 4, "{lines:?}");
    // Requests that leave late are missing from the streamed interval, but the final document has
    // them.
    let final_intervals = end["intervals"].as_array().expect("intervals");
    let sum = |key: &str| final_intervals.iter().map(|interval| count(interval, key)).sum::<u64>();
    assert_eq!(sum("sent"), count(end, "sent"));
    assert_eq!(sum("answered"), count(end, "answered"));
    let live_lines = errors_of(&output).lines().count();
    assert_eq!(live_lines, 5, "a header and one line per interval");
    assert_eq!(service.stop().received, count(end, "sent"));
}

#[test]
fn merge_adds_up_runs_that_start_together() {
    // Both runs would otherwise start at different times: a thread of the test waits for no turn.
    share_machine();
    let (service, address) = service(Reflector::builder());
    let directory = TestDirectory::new();
    let [a, b, html] = &["a.json", "b.json", "both.html"].map(|name| directory.file(name));
    let run = |file: &str| {
        load(&[&address, "--rate", "1k", "--duration", "0.8", "--start-at", "+0.5s", "--json", file])
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| run(a));
        assert!(run(b).status.success());
        assert!(other.join().expect("it ran").status.success());
    });
    let output = load(&["merge", a, b, "--json", "-", "--html", html]);
    let document = checked_document(&output, 0, "linerate.load/2");
    let runs = [read_document(a), read_document(b)];
    let merged = &document["result"];
    assert!(runs[0]["result"]["clock"]["uncertain_seconds"].is_number(), "{}", runs[0]);
    for key in ["/sent", "/answered", "/lost", "/duplicate", "/corrupt", "/latency_ns/count"] {
        let number = |result: &Value| result.pointer(key).and_then(Value::as_u64).expect(key);
        assert_eq!(number(merged), runs.iter().map(|run| number(&run["result"])).sum::<u64>(), "{key}");
    }
    assert_eq!(count(merged, "sent"), service.stop().received);
    assert_eq!(merged["merged"].as_array().map(Vec::len), Some(2));
    // The machine determines how far apart two processes start. linerate has to report it.
    let overlap = merged["overlap_ratio"].as_f64().expect("a share");
    let has_warning = document["warnings"].to_string().contains("overlap by");
    assert_eq!(overlap < 0.9, has_warning, "{document}");
    assert_self_contained(&fs::read_to_string(html).expect("a page"));

    assert!(merged["merged"].as_array().expect("runs").iter().all(|run| run["clock"].is_null()), "one host");
    // Makes one result look as if it came from another host, whose clock is not synchronized.
    let [_, mut other] = runs;
    other["host"]["name"] = "other".into();
    other["result"]["clock"] = serde_json::json!({"ahead_seconds": 0.0, "uncertain_seconds": 16.0});
    directory.write("b.json", other);
    let text = text_of(&load(&["merge", a, b]));
    assert!(text.contains("may differ by") && text.contains("was the limit"), "{text}");
    let strict = load(&["merge", a, b, "--max-clock-offset", "15s"]);
    assert_refused(&strict, "its clock may be off by 16.000 s");
    assert_refused(&load(&["merge", a, a]), "would be counted twice");
}

#[test]
fn a_failed_run_exits_with_1_without_a_reader() {
    let silent = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let address = silent.local_addr().expect("an address").to_string();
    let mut load = Command::new(program())
        .args(["load", &address, "--rate", "1k", "--duration", "0.2", "--backend", "socket"])
        .args(["--json-stream", "-"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the command starts");
    let mut stream = BufReader::new(load.stdout.take().expect("a pipe"));
    stream.read_line(&mut String::new()).expect("the start");
    drop(stream);
    assert_eq!(load.wait().expect("it ends").code(), Some(1));
}

#[test]
fn missed_max_loss_exits_with_status_1() {
    let (_service, address) = service(Reflector::builder().drop_every(10));
    let run = |most: &str| {
        load(&[&address, "--rate", "1k", "--duration", "0.3", "--max-loss", most, "--json", "-"])
    };
    let (strict, lenient) = (run("5%"), run("60%"));
    assert_eq!((strict.status.code(), lenient.status.code()), (Some(1), Some(0)));
    let missed = document_of(&strict)["result"]["missed"].to_string();
    assert!(missed.contains("over --max-loss 5"), "{missed}");
    assert_eq!(document_of(&lenient)["result"]["missed"], Value::Array(Vec::new()));
}

#[test]
fn overload_with_a_given_capacity_matches_its_schema() {
    let (_service, address) = service(Reflector::builder());
    let output = load(&[&address, "--capacity", "1k", "--overload", "2", "--duration", "0.3", "--json", "-"]);
    let report = checked_document(&output, 0, "linerate.load-overload/2");
    assert_eq!(report["result"]["overload"].as_array().map(Vec::len), Some(1), "{report}");
    let refusal = load(&[&address, "--capacity", "1k", "--overload", "2", "--min-rate", "1M"]);
    assert_eq!(refusal.status.code(), Some(2));
}

#[test]
fn ramp_accounts_for_the_requests_of_each_rate_and_a_missed_threshold_exits_with_1() {
    let (service, address) = service(Reflector::builder());
    let ramp = ["--ramp", "500-1500/3", "--duration", "0.3", "--min-rate", "1M", "--json", "-"];
    let output = load(&[&[address.as_str()][..], &ramp].concat());
    let document = checked_document(&output, 1, "linerate.load-ramp/2");
    let ramp = &document["result"];
    assert!(ramp["missed"][0].as_str().expect("a miss").contains("--min-rate"), "{ramp}");
    let steps = ramp["steps"].as_array().expect("steps");
    let rates: Vec<Option<f64>> = steps.iter().map(|step| step["requested_per_second"].as_f64()).collect();
    assert_eq!(rates, [Some(500.0), Some(1_000.0), Some(1_500.0)]);
    let sent: u64 = steps.iter().map(|step| count(step, "sent")).sum();
    assert_eq!(sent, service.stop().received);
}

#[test]
fn merged_runs_without_replies_succeed() {
    let (_service, address) = service(Reflector::builder());
    let directory = TestDirectory::new();
    let paths = ["a.json", "b.json"].map(|name| directory.file(name));
    for path in &paths {
        let output = load(&[&address, "--rate", "1k", "--no-reply", "--duration", "0.1", "--json", path]);
        assert!(output.status.success());
    }
    let output = load(&["merge", &paths[0], &paths[1]]);
    assert_eq!(output.status.code(), Some(0));
    let text = text_of(&output);
    assert!(text.contains("Generators") && text.contains("b.json"), "{text}");
}

#[test]
fn merge_refuses_invalid_documents() {
    let directory = TestDirectory::new();
    for (content, words) in [
        ("", "no linerate.load/2 document"),
        ("{}", "it names no schema; linerate.load/2 is required"),
        (r#"{"schema": "linerate.load/1"}"#, "its schema is linerate.load/1; linerate.load/2"),
        (r#"{"schema": "linerate.load/2"}"#, "missing field"),
    ] {
        let name = directory.write("x.json", content);
        let output = load(&["merge", &name, &name]);
        assert_refused(&output, "x.json: ");
        assert_refused(&output, words);
    }
}

#[test]
fn load_without_a_rate_requests_10_000_per_second() {
    machine();
    let (_service, address) = service(Reflector::builder());
    let output = load(&[&address, "--duration", "0.2", "--payload", "18", "--json", "-"]);
    let document = checked_document(&output, 0, "linerate.load/2");
    let document = &document["result"];
    assert_eq!(document["requested_per_second"], 10_000.0);
    assert_eq!((&document["generator"]["payload_bytes"], &document["corrupt"]), (&18.into(), &0.into()));
    assert!(count(document, "answered") > 0);
}
