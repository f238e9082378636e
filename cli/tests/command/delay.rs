//! `linerate delay` on a server on loopback.

use std::fs;
use std::net::UdpSocket;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::schema;
use crate::support::{assert_refused, document_of, errors_of, is_root, linerate};

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("bound");
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    socket
}

/// Calls `run` with the port of a server that answers requests on loopback meanwhile.
fn with_server<T>(run: impl FnOnce(&str) -> T) -> T {
    let (server, client, stop) = (socket(), socket(), AtomicBool::new(false));
    let address = server.local_addr().expect("an address");
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut buffer = [0; 64];
            while let Ok((1.., from)) = server.recv_from(&mut buffer) {
                server.send_to(&buffer[..8], from).expect("sent");
            }
        });
        scope.spawn(|| {
            let mut buffer = [0; 64];
            for number in 0_u64.. {
                if stop.load(Ordering::Relaxed) {
                    client.send_to(&[], address).expect("sent");
                    return;
                }
                client.send_to(&number.to_le_bytes(), address).expect("sent");
                client.recv(&mut buffer).expect("a reply");
            }
        });
        // Ends the client even if an assertion fails.
        let result = panic::catch_unwind(AssertUnwindSafe(|| run(&address.port().to_string())));
        stop.store(true, Ordering::Relaxed);
        result.unwrap_or_else(|cause| panic::resume_unwind(cause))
    })
}

#[test]
fn delay_refuses_ports_without_a_socket_and_long_windows() {
    let port = socket().local_addr().expect("an address").port().to_string();
    assert_refused(&linerate(&["delay", "--port", &port]), "no UDP socket on port");
    if is_root("delay_refuses_ports_without_a_socket_and_long_windows") {
        with_server(|port| {
            let output = linerate(&["delay", "--port", port, "--trace", "3600s", "--out", "-"]);
            assert_refused(&output, "the longest window that fits");
        });
    }
}

#[test]
fn delay_measures_a_server_on_loopback() {
    if !is_root("delay_measures_a_server_on_loopback") {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).to_str().expect("a name").to_owned();
    let (page, timeline) = (path("delay.html"), path("trace.json"));
    with_server(|port| {
        let output = linerate(&["delay", "--port", port, "--duration", "1", "--json", "-", "--html", &page]);
        assert!(output.status.success(), "{}", errors_of(&output));
        let document = document_of(&output);
        schema::conforms(&document, "linerate.delay/1");
        let result = &document["result"];
        assert!(result["requests"].as_u64() > Some(100), "{result}");
        let times = ["p50", "p99", "max"].map(|name| result["end_to_end_ns"][name].as_u64().expect("a time"));
        assert!(times.is_sorted() && times[0] > 0, "{times:?}");
        assert!(result["reasons"].as_array().is_some_and(|reasons| !reasons.is_empty()), "{result}");
        assert!(fs::read_to_string(&page).expect("a page").contains("read to reply"));
        let output = linerate(&["delay", "--port", port, "--trace", "5ms", "--out", &timeline]);
        assert!(output.status.success(), "{}", errors_of(&output));
        let trace: Value = serde_json::from_slice(&fs::read(&timeline).expect("a file")).expect("JSON");
        let arrows =
            trace["traceEvents"].as_array().expect("events").iter().filter(|event| event["ph"] == "f");
        assert!(arrows.count() > 10);
        let output = linerate(&["delay", "--port", port, "--watch", "--duration", "0.3"]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && text.contains("Stages, us"), "{text}");
    });
}
