//! A server reports requests that it does not answer or answers only in part: every second, at the
//! end, and in its document.

use std::io::{BufRead as _, BufReader, Lines, Read as _};
use std::net::UdpSocket;
use std::process::ChildStderr;
use std::time::{Duration, Instant};

use linerate_lab::Lab;
use rustix::process::Signal;
use serde_json::Value;

use super::ServeProcess;
use crate::support::{self, TestDirectory, await_line, errors_of, program, run_on, start_lab, start_on};

const ZONE: &str = "$TTL 60\n@ IN SOA ns hostmaster 1 2 3 4 5\n@ IN NS ns\nns IN A 192.0.2.1\n";
/// A query for the address of `ns.example.test`.
const QUERY: &[u8] = b"\x12\x34\0\0\0\x01\0\0\0\0\0\0\x02ns\x07example\x04test\0\0\x01\0\x01";

/// Runs a server on the receiver and `ask` on the other host. Returns the server's result and its
/// standard error.
fn run_server(lab: &Lab, arguments: &[&str], ask: impl FnOnce(UdpSocket) + Send) -> (Value, String) {
    let link = &lab.links()[0];
    let address = format!("{}:5300", link.receiver.ipv4[0]);
    let serve = ["serve", arguments[0], "--bind", &address, "--workers", "1", "--json", "-"];
    let mut child = start_on(lab.receiver(), program(), &[&serve[..], &arguments[1..]].concat());
    let mut lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
    let mut errors = until(&mut lines, "end with Ctrl-C");
    let run_client = move || {
        let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
        socket.connect(&*address).expect("connected");
        ask(socket);
    };
    lab.senders()[0].run(run_client).expect("a host");
    errors += &until(&mut lines, "in the last second: ");
    child.signal(Signal::INT).expect("it runs");
    let mut document = String::new();
    child.stdout.take().expect("a pipe").read_to_string(&mut document).expect("text");
    errors.extend(lines.map(|line| line.expect("text") + "\n"));
    assert!(child.wait().expect("it ends").success(), "{errors}");
    let document: Value = serde_json::from_str(&document).expect("a document");
    (document["result"].clone(), errors)
}

/// Standard error up to a line with `part`.
fn until(lines: &mut Lines<BufReader<ChildStderr>>, part: &str) -> String {
    let mut text = String::new();
    while !text.lines().last().is_some_and(|line| line.contains(part)) {
        let line = lines.next().unwrap_or_else(|| panic!("no '{part}': {text}")).expect("text");
        text += &format!("{line}\n");
    }
    text
}

/// A directory with a zone file, which all users may read, and the value for `--zone`.
fn zone() -> (TestDirectory, String) {
    let directory = TestDirectory::new();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(directory.path(), open).expect("the owner's right");
    let zone = format!("example.test={}", directory.write("zone", ZONE));
    (directory, zone)
}

fn lab() -> Option<Lab> {
    start_lab(Lab::builder().queues(1))
}

#[test]
fn dns_reports_requests_above_the_rate_limit() {
    let Some(lab) = lab() else { return };
    let (_directory, zone) = zone();
    const QUERIES: u64 = 1_000;
    let arguments = ["dns", "--zone", &zone, "--no-tcp", "--rate-limit", "10", "--surplus", "0"];
    let (document, errors) = run_server(&lab, &arguments, |socket| {
        let mut reply = [0; 512];
        socket.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
        for _ in 0..QUERIES {
            // Waits up to 20 ms for each reply, so that no buffer overflows.
            socket.send(QUERY).expect("sent");
            let began = Instant::now();
            while socket.recv(&mut reply).is_err() && began.elapsed() < Duration::from_millis(2) {}
        }
    });
    let count = |key: &str| document["refusals"][key].as_u64().unwrap_or_else(|| panic!("{document}"));
    let (limited, truncated) = (count("rate_limited"), count("rate_truncated"));
    assert!(limited > 0 && truncated > 0, "{document}");
    assert_eq!(document["total"]["dropped"], limited, "{document}");
    assert!(errors.contains("--rate-limit 0"), "advice to measure without a limit: {errors}");
    assert!(errors.contains("above --rate-limit"), "{errors}");
}

// As after a forged ICMP message "fragmentation needed" (RFC 9715).
#[test]
fn dns_replies_are_not_fragmented_for_a_low_path_mtu() {
    let Some(lab) = lab() else { return };
    let (directory, zone) = zone();
    directory.write("zone", format!("{ZONE}ns IN TXT {0} {0} {0}\n", "x".repeat(250)));
    let (receiver, sender) = (&lab.links()[0].receiver, &lab.links()[0].sender);
    let route = format!("route replace {} dev {} mtu 600", sender.ipv4[0], receiver.interface);
    let output = run_on(lab.receiver(), "ip", &route.split(' ').collect::<Vec<_>>());
    assert!(output.status.success(), "{}", errors_of(&output));
    // A second reply would be above the limit, which the server reports.
    let arguments = ["dns", "--zone", &zone, "--no-tcp", "--rate-limit", "1", "--slip", "0"];
    run_server(&lab, &arguments, |socket| {
        let query =
            [&QUERY[..10], b"\0\x01", &QUERY[12..30], b"\x10\0\x01\0\0\x29\x04\xd0\0\0\0\0\0\0"].concat();
        let mut reply = [0; 1232];
        for _ in 0..20 {
            socket.send(&query).expect("sent");
        }
        assert!(socket.recv(&mut reply).expect("a reply") > 750);
        let counters = std::fs::read_to_string("/proc/thread-self/net/snmp").expect("counters");
        let ip: Vec<&str> = counters.lines().filter_map(|line| line.strip_prefix("Ip: ")).collect();
        let reassembled = ip[0].split(' ').position(|name| name == "ReasmReqds").expect("a counter");
        assert_eq!(ip[1].split(' ').nth(reassembled), Some("0"), "fragments: {counters}");
    });
}

#[test]
fn echo_answers_other_datagrams_only_with_any() {
    let Some(lab) = lab() else { return };
    let send_datagrams = |socket: UdpSocket| {
        socket.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
        socket.send(b"hello").expect("sent");
        // A datagram that --any does not answer either, so that the server has something to report.
        socket.send(b"lnr\x01").expect("sent");
        let mut reply = [0; 16];
        let length = socket.recv(&mut reply).expect("an answer");
        assert_eq!(&reply[..length], b"hello");
    };
    let (document, _) = run_server(&lab, &["echo", "--any"], send_datagrams);
    assert_eq!(
        (&document["total"]["answered"], &document["refusals"]["not_request"]),
        (&1.into(), &1.into())
    );
    let (document, errors) =
        run_server(&lab, &["echo"], |socket| assert_eq!(socket.send(b"hello").expect("sent"), 5));
    assert_eq!(
        (&document["total"]["answered"], &document["refusals"]["not_request"]),
        (&0.into(), &1.into())
    );
    assert!(errors.contains("--any"), "{errors}");
}

#[test]
fn load_recognizes_echo_replies_with_both_backends() {
    let Some(lab) = lab() else { return };
    let link = &lab.links()[0];
    let address = format!("{}:5300", link.receiver.ipv4[0]);
    let mut server = start_on(lab.receiver(), program(), &["serve", "echo", "--bind", &address]);
    await_line(&mut server.stderr, |line| line.ends_with("end with Ctrl-C").then_some(()));
    for backend in ["socket", "xdp"] {
        let load = ["load", &address, "--rate", "2k", "--duration", "0.3", "--backend", backend];
        let output = run_on(&lab.senders()[0], program(), &[&load[..], &["--json", "-"]].concat());
        let Ok(document) = serde_json::from_slice::<Value>(&output.stdout) else {
            assert!(backend == "xdp", "{}", errors_of(&output));
            support::skip(errors_of(&output));
            continue;
        };
        let document = &document["result"];
        assert_eq!((&document["corrupt"], &document["unsolicited"]), (&0.into(), &0.into()), "{document}");
        assert!(document["answered"].as_u64() > Some(0), "{document}");
    }
    server.signal(Signal::INT).expect("it runs");
    assert!(server.wait().expect("it ends").success());
}

#[test]
fn low_port_without_privilege_names_cap_net_bind_service() {
    if !support::is_root() {
        return;
    }
    let (_directory, zone) = zone();
    let commands: [&[&str]; 5] = [
        &["serve", "echo", "--bind", "127.0.0.1:53", "--duration", "0.1"],
        &["serve", "dns", "--bind", "127.0.0.1:53", "--zone", &zone, "--duration", "0.1"],
        &["serve", "dns", "--bind", "127.0.0.1:53", "--zone", &zone, "--no-tcp", "--duration", "0.1"],
        &["serve", "ntp", "--bind", "127.0.0.1:123", "--duration", "0.1"],
        &["export", "--listen", "127.0.0.1:80"],
    ];
    for arguments in commands {
        let output = support::run_as_nobody(arguments);
        if output.status.success() {
            return support::skip("low ports are allowed here");
        }
        let errors = errors_of(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {errors}");
        assert!(errors.contains("127.0.0.1:") && errors.contains("CAP_NET_BIND_SERVICE"), "{errors}");
    }
}

#[test]
fn sighup_reloads_zones_and_reports_invalid_ones() {
    let (directory, zone) = zone();
    let write = |more: &str| directory.write("zone", format!("{ZONE}{more}"));
    let mut server = ServeProcess::start("dns", &["--zone", &zone, "--no-tcp"]);
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
    assert!(answer(&server, &socket).windows(4).any(|bytes| bytes == [192, 0, 2, 1]));
    write("ns IN A 192.0.2.2\n");
    assert_eq!(server.hang_up(), "zones read again: 4 records");
    assert!(answer(&server, &socket).windows(4).any(|bytes| bytes == [192, 0, 2, 2]));
    write("ns IN A 192.0.2.x\n");
    let errors = server.hang_up();
    assert!(
        errors.contains("zone:5: ns IN A 192.0.2.x: ")
            && errors.contains("the server keeps the zones that it has"),
        "{errors}"
    );
    assert!(answer(&server, &socket).windows(4).any(|bytes| bytes == [192, 0, 2, 2]));
}

fn answer(server: &ServeProcess, socket: &UdpSocket) -> Vec<u8> {
    socket.send_to(QUERY, server.address()).expect("sent");
    let mut answer = [0; 512];
    let length = socket.recv(&mut answer).expect("an answer");
    answer[..length].to_vec()
}
