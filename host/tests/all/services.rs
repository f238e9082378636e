//! Services of a real host, and findings about their sockets and threads.
//!
//! The servers are separate processes: this program, with the kind of server in [`SERVER`].

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{SocketAddr, UdpSocket};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use linerate_engine::{Echo, Server, SocketMode, SteeringProgram, WorkerPinning};
use linerate_host::stage::socket::SteeringState;
use linerate_host::{Diagnosis, Host, HostView, PacketPath, Scope, Severity};
use linerate_lab::{Lab, LabChild};
use linerate_testkit::skip;

use super::lab;

/// The kind of server that this program becomes, and its address: `shared 198.18.0.1:4000`.
const SERVER: &str = "LINERATE_TEST_SERVER";

/// Time limit of every wait.
const DEADLINE: Duration = Duration::from_secs(20);

/// Not a test: the server of the other tests. It ends with its standard input.
#[test]
fn server_of_the_other_tests() {
    let Ok(argument) = std::env::var(SERVER) else { return };
    let (kind, address) = argument.split_once(' ').expect("a kind and an address");
    let address: SocketAddr = address.parse().expect("an address");
    if kind == "deaf" {
        let _socket = UdpSocket::bind(address).expect("bound");
        return serve_until_end_of_input();
    }
    let (sockets, pinning) = match kind {
        "shared" => (SocketMode::Shared, WorkerPinning::None),
        "reuseport" => (SocketMode::Reuseport, WorkerPinning::None),
        "program" => (SocketMode::SteeredByCpu(SteeringProgram::Ebpf), WorkerPinning::Cpus(vec![0, 1])),
        _ => (SocketMode::SteeredByCpu(SteeringProgram::Cbpf), WorkerPinning::Cpus(vec![0, 1])),
    };
    let server =
        Server::builder().bind(address).workers(2).sockets(sockets).pinning(pinning).cpus(vec![0, 1]);
    let _running = server.start(|_| Echo).expect("started");
    serve_until_end_of_input();
}

fn serve_until_end_of_input() {
    println!("\nready");
    let _ = std::io::stdin().read(&mut [0]);
}

fn start(lab: &Lab, kind: &str, address: SocketAddr) -> LabChild {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command
        .args(["--exact", "services::server_of_the_other_tests", "--nocapture", "--test-threads", "1"])
        .env(SERVER, format!("{kind} {address}"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = lab.receiver().spawn(command).expect("started");
    let output = child.stdout.take().expect("piped");
    let ready = BufReader::new(output).lines().map_while(Result::ok).any(|line| line == "ready");
    assert!(ready, "the {kind} server did not start");
    child
}

/// Reads the receiver until `threads` threads or more are seen at the sockets of the port.
fn read(lab: &Lab, port: u16, threads: usize) -> PacketPath {
    let scope = Scope { port: Some(port), ..Scope::default() };
    let host = Host::live_with_sys(lab.receiver().sys_path().expect("a sysfs"));
    let deadline = Instant::now() + DEADLINE;
    loop {
        let path = lab.receiver().run(|| PacketPath::observe(&host, &scope)).expect("read");
        let active_threads = path
            .thread
            .serving
            .value()
            .map_or(0, |serving| serving.iter().filter(|thread| thread.was_seen()).count());
        if active_threads >= threads {
            return path;
        }
        assert!(
            Instant::now() < deadline,
            "{active_threads} of {threads} threads: {:?} {:?}",
            path.socket,
            path.thread
        );
    }
}

/// Findings of these two stages, with their severity under load if it is above a note.
fn findings(view: &HostView<'_>) -> Vec<(&'static str, Severity)> {
    let findings = Diagnosis::of(view).findings.into_iter();
    let own = |id: &str| id.starts_with("socket.") || id.starts_with("thread.");
    findings
        .filter(|finding| {
            own(finding.id) && finding.id != "thread.audit" && finding.severity_under_load > Severity::Note
        })
        .map(|finding| (finding.id, finding.severity_under_load))
        .collect()
}

#[test]
fn findings_are_limited_to_the_server_of_the_port() {
    let test = "findings_are_limited_to_the_server_of_the_port";
    let Some(lab) = lab(test) else { return };
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return skip(test, "one CPU");
    }
    let address = |port: u16| SocketAddr::from((lab.links()[0].receiver.ipv4[0], port));
    let kinds = [("shared", 4001), ("reuseport", 4002), ("steered", 4003)];
    let _servers: Vec<LabChild> =
        kinds.iter().map(|(kind, port)| start(&lab, kind, address(*port))).collect();

    let shared = read(&lab, 4001, 2);
    if shared.socket.services()[0].sockets[0].known_options().is_none() {
        return skip(test, "the options of another process's socket may not be read");
    }
    let expected = [("socket.shared-by-threads", Severity::High), ("thread.unpinned", Severity::Low)];
    assert_eq!(findings(&HostView::once(&shared)), expected);

    let reuseport = read(&lab, 4002, 2);
    let service = &reuseport.socket.services()[0];
    assert_eq!(service.sockets.len(), 2);
    let reuseport_steering = service.steering.value().copied().flatten();
    let mut expected = vec![("thread.unpinned", Severity::Medium)];
    match service.steering.why() {
        Some(why) => skip(test, why),
        None => expected.insert(0, ("socket.not-steered", Severity::Medium)),
    }
    assert_eq!(
        (reuseport_steering, findings(&HostView::once(&reuseport))),
        (reuseport_steering.and(Some(SteeringState::Hash)), expected)
    );
    assert!(service.sockets.iter().all(|socket| socket.known_options().is_some_and(|set| set.reuseport)));

    let steered = read(&lab, 4003, 2);
    assert_eq!(findings(&HostView::once(&steered)), []);
    assert_eq!(
        steered.socket.services()[0].steering.value().copied().flatten(),
        reuseport_steering.and(Some(SteeringState::Cpu))
    );

    if reuseport_steering.is_some() {
        let _server = start(&lab, "program", address(4005));
        let program = read(&lab, 4005, 2);
        assert_eq!(findings(&HostView::once(&program)), []);
        let steering = program.socket.services()[0].steering.value().copied().flatten();
        assert_eq!(steering, Some(SteeringState::Program));
    }
}

#[test]
fn socket_drops_between_two_readings_are_findings() {
    let test = "socket_drops_between_two_readings_are_findings";
    let Some(lab) = lab(test) else { return };
    let address = SocketAddr::from((lab.links()[0].receiver.ipv4[0], 4004));
    let _server = start(&lab, "deaf", address);
    let before = read(&lab, 4004, 0);
    let client = lab.senders()[0].run(|| UdpSocket::bind("0.0.0.0:0")).expect("run").expect("bound");
    let deadline = Instant::now() + DEADLINE;
    let now = loop {
        for _ in 0..1000 {
            client.send_to(&[0; 100], address).expect("sent");
        }
        let now = read(&lab, 4004, 0);
        if HostView::twice(&before, &now).seconds().is_some() {
            break now;
        }
        assert!(Instant::now() < deadline, "no time between the readings");
    };
    let found = findings(&HostView::twice(&before, &now));
    assert!(found.contains(&("socket.receive-drops", Severity::High)), "{found:?}");
    assert!(found.contains(&("socket.buffer-small", Severity::Medium)), "{found:?}");
}
