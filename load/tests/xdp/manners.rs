//! Side effects of the XDP generator: other traffic, other XDP programs, refused targets, and
//! cleanup.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::time::Duration;

use linerate_host::Host;
use linerate_host::netlink::xdp_state;
use linerate_load::generator::GeneratorBuilder;
use linerate_load::{Generator as _, GeneratorError};

use crate::scene::Scene;
use crate::service::{assert_balanced, assert_nobody_listens, rate, skip, slot};

impl Scene {
    /// The id of the XDP program on the sender's interface.
    fn attached(&self) -> Option<u32> {
        let end = self.link().sender.clone();
        let look = move || xdp_state(&Host::live(), &end.interface, end.index).unwrap().attached;
        self.lab.senders()[0].run(look).unwrap().map(|attached| attached.id.unwrap_or(0))
    }

    fn why_not(&self, builder: GeneratorBuilder) -> String {
        match self.start(builder) {
            Err(GeneratorError::Xdp { why }) => why,
            Err(error) => panic!("another error: {error}"),
            Ok(_) => panic!("it works"),
        }
    }
}

#[test]
fn other_traffic_passes() {
    let Some(scene) = Scene::new("other_traffic_passes") else { return };
    let service = scene.echo(true);
    let Some(mut generator) = scene.generator(&service, 4) else { return };
    let at = scene.receiver(true);
    let (listener, other) =
        scene.lab.receiver().run(|| (TcpListener::bind(at).unwrap(), UdpSocket::bind(at).unwrap())).unwrap();
    let (to_listener, to_other) = (listener.local_addr().unwrap(), other.local_addr().unwrap());
    std::thread::scope(|scope| {
        let running = scope.spawn(|| generator.run(&slot(rate(5_000.0), 600)).unwrap());
        scope.spawn(move || std::io::copy(&mut &listener.accept().unwrap().0, &mut std::io::sink()));
        let (mut stream, socket) = scene.lab.senders()[0]
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
        let outcome = running.join().unwrap();
        assert_balanced(&outcome);
        assert_eq!((outcome.unsolicited, outcome.corrupt, outcome.late), (0, 0, 0), "{outcome:?}");
    });
}

#[test]
fn nobody_listening_is_told() {
    let Some(scene) = Scene::new("nobody_listening_is_told") else { return };
    for v4 in [true, false] {
        let mut target = scene.receiver(v4);
        target.set_port(9);
        let Some(mut generator) = scene.generator_of(scene.builder(target, 3)) else { return };
        let outcome = generator.run(&slot(rate(1_000.0), 200)).unwrap();
        assert_nobody_listens(&outcome);
    }
}

#[test]
fn one_after_the_other_and_nothing_is_left() {
    let Some(scene) = Scene::new("one_after_the_other_and_nothing_is_left") else { return };
    let service = scene.echo(true);
    for _ in 0..2 {
        let Some(mut generator) = scene.generator(&service, 4) else { return };
        assert!(scene.attached().is_some());
        let outcome = generator.run(&slot(rate(1_000.0), 100)).unwrap();
        assert_eq!((outcome.lost, outcome.late), (0, 0), "{outcome:?}");
        drop(generator);
        assert_eq!(scene.attached(), None);
    }
}

#[test]
fn a_program_that_is_there_is_left_alone() {
    let Some(scene) = Scene::new("a_program_that_is_there_is_left_alone") else { return };
    let service = scene.echo(true);
    let Some(first) = scene.generator(&service, 4) else { return };
    let id = scene.attached().unwrap();
    let why = scene.why_not(scene.builder(service.address, 4));
    assert!(why.contains(&format!("(id {id})")) && why.contains("left alone"), "{why}");
    assert_eq!(scene.attached(), Some(id));
    drop(first);
    assert!(scene.generator(&service, 4).is_some());
}

#[test]
fn what_does_not_work_says_why() {
    let Some(scene) = Scene::new("what_does_not_work_says_why") else { return };
    let service = scene.echo(true);
    if scene.generator(&service, 4).is_none() {
        return;
    }
    let here = scene.link().sender.ipv4[0];
    let why = scene.why_not(scene.builder((here, 7).into(), 4));
    assert!(why.contains("an address of this host"), "{why}");
    let why = scene.why_not(scene.builder("10.9.8.7:7".parse().unwrap(), 4));
    assert!(why.contains("no route to 10.9.8.7"), "{why}");
    let both = vec![service.address, scene.receiver(false)].into_iter().map(|mut target| {
        target.set_port(7);
        target
    });
    let why = scene.why_not(scene.builder(service.address, 4).targets(both.collect()));
    assert!(why.contains("both IPv4 and IPv6"), "{why}");
    let why = scene.why_not(scene.builder(service.address, 4_000).threads(1_000));
    assert!(why.contains("each needs one of its own"), "{why}");
    // If no backend is required, the generator falls back to sockets.
    let target = (here, service.address.port()).into();
    let builder = scene.builder(target, 4);
    let description = scene.lab.senders()[0].run(move || builder.start().unwrap().describe()).unwrap();
    assert_eq!(description.backend, "socket");
    assert!(description.fallbacks[0].contains("an address of this host"), "{description:?}");
}

/// Not a test: the process that the test below kills.
#[test]
fn held_until_killed() {
    if std::env::var_os("LINERATE_TEST_HOLD").is_none() {
        return;
    }
    let Some(scene) = Scene::new("held_until_killed") else { return };
    let service = scene.echo(true);
    let Some(mut generator) = scene.generator(&service, 4) else { return };
    generator.run(&slot(rate(1_000.0), 50)).unwrap();
    println!("\nholding");
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn nothing_outlives_a_process_that_is_killed() {
    let test = "nothing_outlives_a_process_that_is_killed";
    let Some(scene) = Scene::new(test) else { return };
    let service = scene.echo(true);
    if scene.generator(&service, 4).is_none() {
        return;
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "manners::held_until_killed", "--nocapture"])
        .env("LINERATE_TEST_HOLD", "1")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let held = lines.any(|line| line.starts_with("holding"));
    let during = ids();
    child.kill().unwrap();
    child.wait().unwrap();
    if !held {
        let mut why = String::new();
        child.stderr.take().unwrap().read_to_string(&mut why).unwrap();
        return skip(test, why);
    }
    // The kernel detaches a program when its link's descriptor closes, and frees it after a grace
    // period. Other tests may have loaded such programs meanwhile.
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while !ids().is_disjoint(&during.difference(&own()).copied().collect()) {
        assert!(std::time::Instant::now() < deadline, "programs are left");
        std::thread::sleep(Duration::from_millis(20));
    }
}

type Ids = std::collections::BTreeSet<u32>;

/// The ids of all loaded programs that have the names of the generator's programs.
fn ids() -> Ids {
    let ours = |name: Option<&str>| matches!(name, Some("send" | "receive" | "sent" | "not_redirected"));
    let programs = aya::programs::loaded_programs().filter_map(Result::ok);
    programs.filter(|program| ours(program.name_as_str())).map(|program| program.id()).collect()
}

/// The ids of the programs that this process holds.
fn own() -> Ids {
    let mut ids = Ids::new();
    for entry in std::fs::read_dir("/proc/self/fdinfo").unwrap().filter_map(Result::ok) {
        let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
        ids.extend(text.lines().filter_map(|line| line.strip_prefix("prog_id:")?.trim().parse::<u32>().ok()));
    }
    ids
}
