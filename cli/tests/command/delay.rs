//! `linerate delay` on a server on loopback.

use std::fs;
use std::net::UdpSocket;
use std::process::{Command, Stdio};

use linerate_testkit::reflector::Reflector;

use crate::support::{
    TestChild, TestDirectory, assert_refused, await_line, checked_document, errors_of, is_root, linerate,
    program, read_document, text_of,
};

/// Calls `run` with the port of a server that answers requests on loopback meanwhile.
fn with_server(run: impl FnOnce(&str)) {
    let server = Reflector::builder().start().expect("an echo server");
    let mut load = Command::new(program());
    load.args([
        "load",
        &server.address().to_string(),
        "--backend",
        "socket",
        "--flows",
        "1",
        "--window",
        "1",
    ]);
    load.args(["--duration", "600", "--interval", "0.1", "--quiet", "--json-stream", "-"]);
    let mut load = TestChild(load.stdout(Stdio::piped()).spawn().expect("the load starts"));
    await_line(&mut load.stdout, |line| line.contains("\"interval\"").then_some(()));
    run(&server.address().port().to_string());
}

#[test]
fn delay_refuses_ports_without_a_socket_and_long_windows() {
    let closed_socket = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    let port = closed_socket.expect("an address").port().to_string();
    assert_refused(&linerate(&["delay", "--port", &port]), "no UDP socket on port");
    if is_root() {
        with_server(|port| {
            let output = linerate(&["delay", "--port", port, "--trace", "3600s", "--out", "-"]);
            assert_refused(&output, "the longest window that fits");
        });
    }
}

#[test]
fn delay_measures_a_server_on_loopback() {
    if !is_root() {
        return;
    }
    let directory = TestDirectory::new();
    let (page, timeline) = (directory.file("delay.html"), directory.file("trace.json"));
    with_server(|port| {
        let output = linerate(&["delay", "--port", port, "--duration", "1", "--json", "-", "--html", &page]);
        let document = checked_document(&output, 0, "linerate.delay/1");
        let result = &document["result"];
        assert!(result["requests"].as_u64() > Some(100), "{result}");
        let times = ["p50", "p99", "max"].map(|name| result["end_to_end_ns"][name].as_u64().expect("a time"));
        assert!(times.is_sorted() && times[0] > 0, "{times:?}");
        assert!(result["reasons"].as_array().is_some_and(|reasons| !reasons.is_empty()), "{result}");
        assert!(fs::read_to_string(&page).expect("a page").contains("read to reply"));
        let output = linerate(&["delay", "--port", port, "--trace", "5ms", "--out", &timeline]);
        assert!(output.status.success(), "{}", errors_of(&output));
        let trace = read_document(&timeline);
        let arrows =
            trace["traceEvents"].as_array().expect("events").iter().filter(|event| event["ph"] == "f");
        assert!(arrows.count() > 10);
        let output = linerate(&["delay", "--port", port, "--watch", "--duration", "0.3"]);
        let text = text_of(&output);
        assert!(output.status.success() && text.contains("Stages, us"), "{text}");
    });
}
