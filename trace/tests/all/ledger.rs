//! Packet accounting in a lab, with packets that are really sent and really lost.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::Command;
use std::time::Duration;

use linerate_host::Host;
use linerate_lab::{Lab, LabHost};
use linerate_testkit::skip;
use linerate_trace::drops::packet_counts::PortSubject;
use linerate_trace::drops::{
    DropsWatch, GeneratorSaid, LossExactness, PacketAccounting, PacketEvidence, PathStep,
};

/// Time limit of every wait.
const PATIENCE: Duration = Duration::from_secs(20);

fn lab(test: &str) -> Option<Lab> {
    Lab::builder().start().map_err(|why| skip(test, why)).ok()
}

/// Counts on the lab's receiver while `work` runs. `None`, after printing SKIP, if that is not
/// permitted.
fn count_packets<T>(
    test: &str,
    lab: &Lab,
    ports: &[u16],
    work: impl FnOnce() -> T,
) -> Option<(PacketEvidence, T)> {
    let host = Host::live_with_sys(lab.receiver().sys_path().expect("a sysfs"));
    let subject = PortSubject { ports: ports.to_vec(), ..PortSubject::default() };
    let result = lab.receiver().run(|| DropsWatch::start(&host, &subject, &[])).expect("a thread");
    let mut watch = result.map_err(|why| skip(test, why)).ok()?;
    let output = work();
    let evidence = lab.receiver().run(|| watch.total(&host)).expect("a thread").expect("read");
    Some((evidence, output))
}

fn address(lab: &Lab) -> Ipv4Addr {
    lab.links()[0].receiver.ipv4[0]
}

fn bind_socket(host: &LabHost, address: Ipv4Addr, port: u16) -> UdpSocket {
    let socket = host.run(|| UdpSocket::bind((address, port))).expect("a thread").expect("bound");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    socket
}

fn client(lab: &Lab) -> UdpSocket {
    bind_socket(&lab.senders()[0], Ipv4Addr::UNSPECIFIED, 0)
}

/// Answers this many requests, and reads at most `room` bytes of each.
fn answer(socket: &UdpSocket, requests: u64, room: usize) {
    let mut buffer = vec![0; room];
    for _ in 0..requests {
        let (length, from) = socket.recv_from(&mut buffer).expect("a request");
        socket.send_to(&buffer[..length], from).expect("answered");
    }
}

fn send(client: &UdpSocket, to: SocketAddr, requests: u64) {
    for _ in 0..requests {
        client.send_to(&[7; 20], to).expect("sent");
    }
}

fn losses(ledger: &PacketAccounting) -> Vec<(PathStep, String, u64, LossExactness)> {
    let all = ledger.requests.losses().chain(ledger.replies.losses());
    all.map(|(step, loss)| (step, loss.name.clone(), loss.packets, loss.exactness)).collect()
}

#[test]
fn each_loss_is_named_and_the_accounting_balances() {
    let _machine = crate::machine();
    let test = "each_loss_is_named_and_the_accounting_balances";
    let Some(lab) = lab(test) else { return };
    let rules = "add table ip t; add chain ip t c { type filter hook input priority 0; }; \
                 add rule ip t c udp dport 4004 drop";
    let mut nft = Command::new("nft");
    nft.arg(rules);
    match lab.receiver().spawn(nft).map(|mut child| child.wait()) {
        Ok(Ok(status)) if status.success() => {}
        other => return skip(test, format!("nft made no rule: {other:?}")),
    }
    let to = |port: u16| SocketAddr::from((address(&lab), port));
    let (reader, sleeper) =
        (bind_socket(lab.receiver(), address(&lab), 4001), bind_socket(lab.receiver(), address(&lab), 4002));
    rustix::net::sockopt::set_socket_recv_buffer_size(&sleeper, 4096).expect("a short buffer");
    let client = client(&lab);
    let run = count_packets(test, &lab, &[4001, 4002, 4003, 4004], || {
        let ask_and_answer = || {
            send(&client, to(4001), 1);
            answer(&reader, 1, 8);
            client.recv(&mut [0; 64]).expect("a reply");
        };
        // One request at a time, and no thread that reads meanwhile: a read between the arrival of
        // a datagram and its tracepoint has an unknown length.
        for _ in 0..100 {
            ask_and_answer();
        }
        send(&client, to(4002), 70);
        send(&client, to(4003), 50);
        send(&client, to(4004), 30);
        // An answer shows that all datagrams sent before it have arrived.
        ask_and_answer();
    });
    let Some((mut evidence, ())) = run else { return };
    evidence.generator =
        Some(GeneratorSaid { sent: 251, answered: 101, lost: 150, ..GeneratorSaid::default() });
    let ledger = PacketAccounting::make(&evidence);
    assert!(ledger.is_balanced(), "{ledger:#?}");
    let waiting = ledger.requests.entry(PathStep::Application).map_or(0, |entry| entry.waiting);
    let full = 70 - u64::try_from(waiting).expect("no datagram waited before");
    assert!((1..70).contains(&full), "{ledger:#?}");
    let mut named_losses = losses(&ledger);
    named_losses.sort();
    let exact = |step, name: &str, packets| (step, name.to_owned(), packets, LossExactness::Exact);
    let expected = [
        exact(PathStep::Filter, "netfilter-rule", 30),
        exact(PathStep::Socket, "no-socket", 50),
        exact(PathStep::Socket, "receive-buffer", full),
        exact(PathStep::Application, "truncated", 101),
    ];
    assert_eq!(named_losses, expected, "{ledger:#?}");
}
