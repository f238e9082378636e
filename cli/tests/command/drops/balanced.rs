//! Runs in which nothing is lost.

use std::io::{IoSlice, Write as _};
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use linerate_lab::LabChild;
use serde_json::Value;

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};

use super::scene::{DropsTestLab, PORT, target};
use crate::schema::conforms;
use crate::support::{
    self, await_line, document_of, errors_of, program, read_document, run_on, start_on, text_of, within,
};
use crate::sys::open_tap_with_pages;

#[test]
fn drops_accounts_for_every_transaction_of_a_load() {
    support::machine();
    let Some(scene) = DropsTestLab::up(1) else { return };
    let transactions = if std::env::var_os("LINERATE_TEST_LONG").is_some() { 1_000_000 } else { 100_000 };
    let _server = serve(&scene);
    let rate = load(&scene, 0.3)["answered_per_second"].as_f64().expect("a rate");
    let file = scene.path("load.json");
    let drops = scene.start_drops(&["--port", &PORT.to_string(), "--load", &file]);
    // Time for 10 % more transactions than wanted. If the machine becomes slower, a second run
    // follows.
    let mut document = load(&scene, 1.1 * f64::from(transactions) / rate);
    if answered(&document) < transactions.into() {
        // Only the last document counts, so this run alone has to be long enough.
        drop(drops.end());
        let share = answered(&document) as f64 / f64::from(transactions);
        let drops = scene.start_drops(&["--port", &PORT.to_string(), "--load", &file]);
        document = load(&scene, 2.0 * f64::from(transactions) / rate / share.max(0.1));
        return assert_accounted(&drops.end(), &document, transactions);
    }
    assert_accounted(&drops.end(), &document, transactions);
}

/// Traffic flows when counting starts and when it ends.
#[test]
fn healthy_servers_lose_nothing() {
    let Some(scene) = DropsTestLab::up(1) else { return };
    let rounds = if std::env::var_os("LINERATE_TEST_LONG").is_some() { 50 } else { 4 };
    for number in 0..rounds {
        let first = reuseport(&scene);
        let second = match number % 3 {
            // In turn: two threads on one socket, two sockets in a group, and one thread.
            0 => Some(first.try_clone().expect("a descriptor")),
            1 => Some(reuseport(&scene)),
            _ => None,
        };
        let (client, answered) = (scene.client(), AtomicU64::new(0));
        let (is_sending, is_over) = (AtomicBool::new(true), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let end = TrafficStopGuard { is_sending: &is_sending, is_over: &is_over };
            for server in [Some(first), second].into_iter().flatten() {
                let is_over = &is_over;
                scope.spawn(move || echo(&server, is_over));
            }
            let client_thread = scope.spawn(|| send_requests(&client, &is_sending, &answered));
            let drops = scene.start_drops(&["--port", &PORT.to_string()]);
            let goal = answered.load(Ordering::Relaxed) + 3_000;
            within(20, "the server answers", || answered.load(Ordering::Relaxed) >= goal);
            let output = drops.end();
            is_sending.store(false, Ordering::Relaxed);
            client_thread.join().expect("the client thread");
            drop(end);
            assert_eq!(output.status, Some(0), "{number}: {}{:#}", output.errors, output.document);
        });
    }
}

/// Without `--load` or a command, `drops` may sample packets if counting all of them takes too much
/// CPU time.
#[test]
fn sampled_packets_balance_at_high_rates() {
    let Some(scene) = DropsTestLab::up(1) else { return };
    let server = reuseport(&scene);
    let is_over = AtomicBool::new(false);
    let mut document = std::thread::scope(|scope| {
        let end = TrafficStopGuard { is_sending: &is_over, is_over: &is_over };
        scope.spawn(|| echo(&server, &is_over));
        let load = ["load", &target().to_string(), "--window", "64", "--duration", "6", "--quiet"];
        let mut load = start_on(scene.sender(), program(), &load);
        let drops = ["drops", "--port", &PORT.to_string(), "--duration", "3", "--json", "-"];
        let drops = run_on(scene.receiver(), program(), &drops);
        load.kill().expect("killed");
        drop(end);
        document_of(&drops)
    });
    conforms(&document, "linerate.drops/2");
    let document = document["result"].take();
    if document["sampled"].is_null() {
        // At a low rate all packets are counted.
        assert!(document["overhead"]["cpu_share"].as_f64() < Some(0.06), "{document:#}");
    } else {
        assert!(document["seconds"].as_f64() < document["sampled"]["of_seconds"].as_f64(), "{document:#}");
    }
    let stages = document["requests"]["stages"].as_array().expect("stages");
    let socket = stages.iter().find(|stage| stage["stage"] == "socket").expect("a socket");
    assert!(socket["packets_in"].as_u64() > Some(100), "{document:#}");
    assert_eq!(document["balanced"], true, "{document:#}");
}

#[test]
fn broadcasts_that_no_socket_wants_are_not_lost() {
    let Some(scene) = DropsTestLab::up(1) else { return };
    let client = scene.client();
    client.set_broadcast(true).expect("set");
    let before = scene.counter("Udp", "IgnoredMulti");
    let drops = scene.start_drops(&[]);
    for _ in 0..20 {
        client.send_to(&[7; 100], "198.18.0.255:4099").expect("sent");
    }
    within(20, "all are ignored", || scene.counter("Udp", "IgnoredMulti") - before == 20);
    let output = drops.end();
    assert_eq!(output.status, Some(0), "{:#}", output.document);
    assert!(output.document["notes"].to_string().contains("20 broadcasts"), "{:#}", output.document);
}

#[test]
fn watch_prints_a_line_for_a_last_interval_below_a_second() {
    let Some(scene) = DropsTestLab::up(1) else { return };
    let drops = ["drops", "--port", &PORT.to_string(), "--watch", "--duration", "0.2"];
    let output = run_on(scene.receiver(), program(), &drops);
    let text = text_of(&output);
    let line = text.lines().nth(1).unwrap_or_default();
    let counted = line.split_whitespace().nth(1).and_then(|seconds| seconds.parse::<f64>().ok());
    // Less than the duration if packets of other tests make it count in windows.
    let is_counted = counted.is_some_and(|seconds| seconds > 0.0 && seconds < 5.0);
    assert!(text.starts_with("time ") && is_counted, "{text}");
}

/// Ends the traffic, even if a check fails.
struct TrafficStopGuard<'f> {
    is_sending: &'f AtomicBool,
    is_over: &'f AtomicBool,
}

impl Drop for TrafficStopGuard<'_> {
    fn drop(&mut self) {
        self.is_sending.store(false, Ordering::Relaxed);
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// A socket of a reuseport group on the port.
fn reuseport(scene: &DropsTestLab) -> UdpSocket {
    let open = || {
        // A program that another test starts must not inherit it: the group would keep a socket that
        // nobody reads.
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None).expect("a socket");
        sockopt::set_socket_reuseport(&socket, true).expect("a group");
        bind(&socket, &target()).expect("bound");
        UdpSocket::from(socket)
    };
    let socket = scene.receiver().run(open).expect("the host runs");
    socket.set_read_timeout(Some(std::time::Duration::from_millis(50))).expect("a timeout");
    socket
}

/// Echoes datagrams until `is_over` is set.
fn echo(server: &UdpSocket, is_over: &AtomicBool) {
    let mut buffer = [0; 1500];
    while !is_over.load(Ordering::Relaxed) {
        if let Ok((length, from)) = server.recv_from(&mut buffer) {
            server.send_to(&buffer[..length], from).expect("answered");
        }
    }
}

/// Sends 16 datagrams of two sizes at a time and waits for their replies.
fn send_requests(client: &UdpSocket, is_sending: &AtomicBool, answered: &AtomicU64) {
    let mut number = 0_usize;
    while is_sending.load(Ordering::Relaxed) {
        for _ in 0..16 {
            number += 1;
            client
                .send_to(&[7; 1200][..if number.is_multiple_of(3) { 1200 } else { 90 }], target())
                .expect("sent");
        }
        for _ in 0..16 {
            client.recv(&mut [0; 1500]).expect("a reply");
            answered.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Drivers that receive into pages leave the headers there while GRO is off.
#[test]
fn packets_with_headers_in_pages_are_counted_at_the_socket() {
    const SENT: u16 = 20;
    let Some(scene) = DropsTestLab::up(1) else { return };
    let Some(mut tap) = open_tap_with_pages(scene.receiver()) else { return };
    let mac = scene.shell(
        "ethtool -K tap0 gro off && ip address add 198.18.9.1/24 dev tap0 && ip link set tap0 up && \
         ip neigh add 198.18.9.2 lladdr 02:00:00:00:00:02 dev tap0 && cat /sys/class/net/tap0/address",
    );
    let mac: Vec<u8> = mac.split(':').map(|byte| u8::from_str_radix(byte, 16).expect("hex")).collect();
    let server = scene.socket(scene.receiver(), &format!("198.18.9.1:{PORT}"));
    let output = scene.run_during(|| {
        for id in 0..SENT {
            let (ethernet, packet) = datagram(&mac, id);
            let frame = [IoSlice::new(&ethernet), IoSlice::new(&packet)];
            let length = tap.write_vectored(&frame).expect("it is received");
            assert_eq!(length, ethernet.len() + packet.len());
            server.recv(&mut [0; 100]).expect("it is delivered");
        }
    });
    assert_eq!(output.unaccounted(), [], "{:#}", output.document);
    let stages = output.document["requests"]["stages"].as_array().expect("stages");
    let socket = stages.iter().find(|stage| stage["stage"] == "socket").expect("a stage");
    assert_eq!((&socket["packets_in"], &socket["packets_out"]), (&SENT.into(), &SENT.into()));
    let notes = output.document["notes"].to_string();
    assert!(notes.contains(&format!("the ports of {SENT} packets could not be read")), "{notes}");
}

/// An Ethernet header, and an IPv4 packet with a datagram for the port without a checksum.
fn datagram(mac: &[u8], id: u16) -> ([u8; 14], Vec<u8>) {
    let mut ethernet = [0; 14];
    ethernet[..6].copy_from_slice(mac);
    ethernet[6..].copy_from_slice(&[2, 0, 0, 0, 0, 2, 8, 0]);
    let mut packet = vec![0x45, 0, 0, 32];
    packet.extend(id.to_be_bytes());
    packet.extend([0, 0, 64, 17, 0, 0, 198, 18, 9, 2, 198, 18, 9, 1]);
    let words = packet.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum: u32 = words.sum();
    let checksum = !(sum % 0xffff) as u16;
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    for word in [4_000, PORT, 12, 0] {
        packet.extend(word.to_be_bytes());
    }
    packet.extend([7; 4]);
    (ethernet, packet)
}

fn assert_accounted(output: &super::scene::DropsOutput, load: &Value, transactions: u32) {
    assert!(answered(load) >= transactions.into(), "{load:#}");
    let first = &output.document["requests"]["stages"][0];
    assert_eq!((&first["stage"], &first["packets_in"]), (&"generator".into(), &load["sent"]));
    assert!(
        output.losses("requests").iter().chain(&output.losses("replies")).all(|(_, packets)| *packets == 0)
    );
    assert_eq!(output.unaccounted(), [], "{:#}", output.document);
    assert_eq!(output.status, Some(0), "{}", output.errors);
}

fn answered(load: &Value) -> u64 {
    load["answered"].as_u64().expect("a count")
}

/// Starts `linerate serve echo` on the receiver and waits until it serves.
fn serve(scene: &DropsTestLab) -> LabChild {
    let serve = ["serve", "echo", "--bind", &target().to_string()];
    let mut child = start_on(scene.receiver(), program(), &serve);
    await_line(&mut child.stderr, |line| line.starts_with("serving echo on ").then_some(()));
    child
}

/// The result of a closed-loop load, which waits for replies.
fn load(scene: &DropsTestLab, seconds: f64) -> Value {
    let file = scene.path("load.json");
    let (server, seconds) = (target().to_string(), format!("{seconds:.2}"));
    let load = ["load", &server, "--window", "4", "--backend", "socket", "--quiet"];
    let files = ["--duration", &seconds, "--json", &file];
    let output = run_on(scene.sender(), program(), &[&load[..], &files].concat());
    assert!(output.status.success(), "{}", errors_of(&output));
    read_document(file)["result"].take()
}
