//! Side effects of the XDP generator: other traffic, other XDP programs, refused targets, and
//! cleanup.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use linerate_host::Host;
use linerate_host::netlink::xdp_state;
use linerate_load::generator::GeneratorOptions;
use linerate_load::workload::raw;
use linerate_load::{GeneratorError, LoadWorkload};
use linerate_testkit::skip;

use crate::scene::Scene;
use crate::service::{assert_balanced, rate, slot};

impl Scene {
    /// The id of the XDP program on the sender's interface.
    fn xdp_program_id(&self) -> Option<u32> {
        let end = self.link().sender.clone();
        let read_state = move || xdp_state(&Host::live(), &end.interface, end.index).unwrap().attached;
        self.lab().senders()[0].run(read_state).unwrap().map(|attached| attached.id.unwrap_or(0))
    }

    fn start_error(&self, options: GeneratorOptions) -> String {
        match self.start(options) {
            Err(GeneratorError::Xdp { why }) => why,
            Err(error) => panic!("another error: {error}"),
            Ok(_) => panic!("the generator started"),
        }
    }
}

#[test]
fn tcp_and_other_udp_traffic_pass_during_a_slot() {
    let Some(scene) = Scene::new("tcp_and_other_udp_traffic_pass_during_a_slot") else { return };
    let service = scene.echo(true);
    let Some(mut generator) = scene.generator(&service, 4) else { return };
    let at = scene.receiver(true);
    let (listener, other) = scene
        .lab()
        .receiver()
        .run(|| (TcpListener::bind(at).unwrap(), UdpSocket::bind(at).unwrap()))
        .unwrap();
    let (to_listener, to_other) = (listener.local_addr().unwrap(), other.local_addr().unwrap());
    std::thread::scope(|scope| {
        let slot_thread = scope.spawn(|| generator.run(&slot(rate(5_000.0), 600)).unwrap());
        scope.spawn(move || std::io::copy(&mut &listener.accept().unwrap().0, &mut std::io::sink()));
        let (mut stream, socket) = scene.lab().senders()[0]
            .run(|| (TcpStream::connect(to_listener).unwrap(), UdpSocket::bind("0.0.0.0:0").unwrap()))
            .unwrap();
        stream.write_all(&vec![7; 1 << 20]).unwrap();
        drop(stream);
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        for _ in 0..20 {
            socket.send_to(b"hello", to_other).unwrap();
            let mut buffer = [0; 16];
            let (length, from) = other.recv_from(&mut buffer).unwrap();
            other.send_to(&buffer[..length], from).unwrap();
            assert_eq!(socket.recv(&mut buffer).unwrap(), 5);
        }
        let outcome = slot_thread.join().unwrap();
        assert_balanced(&outcome);
        assert_eq!((outcome.unsolicited, outcome.corrupt, outcome.late), (0, 0, 0), "{outcome:?}");
    });
}

#[test]
fn consecutive_generators_detach_their_xdp_program() {
    let Some(scene) = Scene::new("consecutive_generators_detach_their_xdp_program") else { return };
    let service = scene.echo(true);
    for _ in 0..2 {
        let Some(mut generator) = scene.generator(&service, 4) else { return };
        assert!(scene.xdp_program_id().is_some());
        let outcome = generator.run(&slot(rate(1_000.0), 100)).unwrap();
        assert_eq!((outcome.lost, outcome.late), (0, 0), "{outcome:?}");
        drop(generator);
        assert_eq!(scene.xdp_program_id(), None);
    }
}

#[test]
fn an_attached_xdp_program_is_not_replaced() {
    let Some(scene) = Scene::new("an_attached_xdp_program_is_not_replaced") else { return };
    let service = scene.echo(true);
    let Some(first) = scene.generator(&service, 4) else { return };
    let id = scene.xdp_program_id().unwrap();
    let why = scene.start_error(scene.options(service.address, 4));
    assert!(why.contains(&format!("(id {id})")) && why.contains("left alone"), "{why}");
    assert_eq!(scene.xdp_program_id(), Some(id));
    drop(first);
    assert!(scene.generator(&service, 4).is_some());
}

#[test]
fn failed_xdp_start_names_the_reason_or_falls_back_to_sockets() {
    let Some(scene) = Scene::new("failed_xdp_start_names_the_reason_or_falls_back_to_sockets") else {
        return;
    };
    let service = scene.echo(true);
    if scene.generator(&service, 4).is_none() {
        return;
    }
    let options = || scene.options(service.address, 4);
    let sender_address = scene.link().sender.ipv4[0];
    let why = scene.start_error(scene.options((sender_address, 7).into(), 4));
    assert!(why.contains("an address of this host"), "{why}");
    let why = scene.start_error(scene.options("10.9.8.7:7".parse().unwrap(), 4));
    assert!(why.contains("no route to 10.9.8.7"), "{why}");
    if scene.has_ipv6() {
        let mixed_targets = [true, false].map(|v4| SocketAddr::new(scene.receiver(v4).ip(), 7));
        let why = scene.start_error(GeneratorOptions { targets: mixed_targets.to_vec(), ..options() });
        assert!(why.contains("both IPv4 and IPv6"), "{why}");
    }
    let why = scene.start_error(GeneratorOptions { threads: 1_000, ..scene.options(service.address, 4_000) });
    assert!(why.contains("each needs one of its own"), "{why}");
    let why = scene.start_error(scene.options("[fe80::1%1]:7".parse().unwrap(), 4));
    assert!(why.contains("a link-local address"), "{why}");
    let many = raw::from_hex(&"000001\n".repeat((1 << 18) + 1), "requests", "0:2".parse().ok()).unwrap();
    let workload = LoadWorkload::Exchange(Arc::new(many));
    let why = scene.start_error(GeneratorOptions { workload, ..options() });
    assert!(why.contains("262145 prepared requests"), "{why}");
    // If no backend is required, the generator falls back to sockets.
    let target = (sender_address, service.address.port()).into();
    let options = scene.options(target, 4);
    let description = scene.lab().senders()[0].run(move || options.start().unwrap().describe()).unwrap();
    assert_eq!(description.backend, "socket");
    assert!(description.fallbacks[0].contains("an address of this host"), "{description:?}");
}

/// Not a test: the process that the test below kills.
#[test]
#[ignore = "runs until it is killed"]
fn child_process_keeps_a_generator_until_killed() {
    let Some(scene) = Scene::new("child_process_keeps_a_generator_until_killed") else { return };
    let service = scene.echo(true);
    let Some(mut generator) = scene.generator(&service, 4) else { return };
    generator.run(&slot(rate(1_000.0), 50)).unwrap();
    println!("\nholding");
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn xdp_programs_are_unloaded_after_the_process_is_killed() {
    let test = "xdp_programs_are_unloaded_after_the_process_is_killed";
    let Some(scene) = Scene::new(test) else { return };
    let service = scene.echo(true);
    if scene.generator(&service, 4).is_none() {
        return;
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "manners::child_process_keeps_a_generator_until_killed"])
        .args(["--ignored", "--nocapture"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let generator_started = lines.any(|line| line.starts_with("holding"));
    let ids_before_kill = generator_program_ids();
    child.kill().unwrap();
    child.wait().unwrap();
    if !generator_started {
        let mut why = String::new();
        child.stderr.take().unwrap().read_to_string(&mut why).unwrap();
        return skip(test, why);
    }
    // The kernel detaches a program when its link's descriptor closes, and frees it after a grace
    // period. Other tests may have loaded such programs meanwhile.
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while !generator_program_ids()
        .is_disjoint(&ids_before_kill.difference(&own_program_ids()).copied().collect())
    {
        assert!(std::time::Instant::now() < deadline, "some programs are still loaded");
        std::thread::sleep(Duration::from_millis(20));
    }
}

type Ids = std::collections::BTreeSet<u32>;

fn generator_program_ids() -> Ids {
    let ours = |name: Option<&str>| matches!(name, Some("send" | "receive" | "sent" | "not_redirected"));
    let programs = aya::programs::loaded_programs().filter_map(Result::ok);
    programs.filter(|program| ours(program.name_as_str())).map(|program| program.id()).collect()
}

fn own_program_ids() -> Ids {
    let mut ids = Ids::new();
    for entry in std::fs::read_dir("/proc/self/fdinfo").unwrap().filter_map(Result::ok) {
        let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
        ids.extend(text.lines().filter_map(|line| line.strip_prefix("prog_id:")?.trim().parse::<u32>().ok()));
    }
    ids
}
