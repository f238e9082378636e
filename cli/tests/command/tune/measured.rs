//! `tune apply` measures changes on the running service: it undoes harmful changes, and does not
//! measure an idle service.

use std::fs::File;
use std::io::Read as _;
use std::net::UdpSocket;
use std::os::fd::AsFd as _;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::Signal;
use rustix::thread::LinkNameSpaceType;
use serde_json::{Value, json};

use super::scene::TuneTestLab;
use crate::ladder::generators::SshTestGenerators;
use crate::schema::conforms;
use crate::support::{TestChild, document_of, errors_of, lines_of, machine, program, signal, skip};

/// How the clients of the server send.
#[derive(Clone, Copy, PartialEq)]
enum ClientLoad {
    Idle,
    Paced,
    /// Bursts that fit into a receive buffer of default size, however late the server reads.
    Bursts,
}

const BURST: usize = 64;
const PAUSE: Duration = Duration::from_millis(20);

/// An echo server in a lab, under load until it is dropped.
struct LoadedServer {
    children: Vec<TestChild>,
    stop: Arc<AtomicBool>,
    bursts: Option<JoinHandle<()>>,
}

impl LoadedServer {
    fn start(scene: &TuneTestLab, load: ClientLoad) -> Self {
        let mut server = scene.on_host(program());
        server.args(["serve", "echo", "--any", "--bind", "198.18.0.1:7777"]);
        let mut running_server = Self { children: vec![quiet(server)], stop: Arc::default(), bursts: None };
        scene.shell("until ss -Hlun sport = 7777 | grep -q 7777; do sleep 0.05; done");
        match load {
            ClientLoad::Idle => return running_server,
            ClientLoad::Paced => {
                let mut load = scene.on("sender0", program());
                let pace = ["load", "198.18.0.1:7777", "--rate", "5k", "--duration", "120"];
                load.args(pace).args(["--backend", "socket"]);
                running_server.children.push(quiet(load));
            }
            ClientLoad::Bursts => running_server.bursts = Some(running_server.send_bursts(scene)),
        }
        // The second line that starts with `Udp:` has the values.
        scene.shell(
            "until awk '/^Udp:/ { n = $2 } END { exit !(n > 100) }' /proc/net/snmp; do sleep 0.05; done",
        );
        running_server
    }

    fn send_bursts(&self, scene: &TuneTestLab) -> JoinHandle<()> {
        // The shell is in the sender's network namespace once it has printed something.
        let mut shell = scene
            .on("sender0", "sh")
            .args(["-c", "echo; cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let mut byte = [0];
        shell.stdout.as_mut().expect("a pipe").read_exact(&mut byte).expect("a line");
        let namespace = File::open(format!("/proc/{}/ns/net", shell.id())).expect("a namespace");
        drop(shell.stdin.take());
        shell.wait().expect("it ends");
        let stop = Arc::clone(&self.stop);
        std::thread::spawn(move || {
            let kind = Some(LinkNameSpaceType::Network);
            rustix::thread::move_into_link_name_space(namespace.as_fd(), kind).expect("root");
            let client = UdpSocket::bind("198.18.0.100:0").expect("a socket");
            client.connect("198.18.0.1:7777").expect("a route");
            while !stop.load(Ordering::Relaxed) {
                for _ in 0..BURST {
                    let _ = client.send(&[0; 100]);
                }
                std::thread::sleep(PAUSE);
            }
        })
    }
}

fn quiet(mut command: Command) -> TestChild {
    TestChild(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the command starts"))
}

impl Drop for LoadedServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(bursts) = self.bursts.take() {
            let _ = bursts.join();
        }
    }
}

/// A plan that sets the receive buffers of all sockets of the server to `bytes`.
fn buffer_plan(scene: &TuneTestLab, bytes: &str) -> Option<Value> {
    let arguments =
        ["boost", "plan", "--port", "7777", "--receive-buffer", "64000000", "--no-steer", "--no-pin"];
    let output = scene.on_host(program()).args(arguments).args(["--no-datagrams", "--json", "-"]).output();
    let boost = document_of(&output.expect("the command starts"));
    let changes = boost["result"]["plan"]["changes"].as_array()?;
    let mut plan = scene.plan_of(&[]);
    let changes = changes.iter().filter(|change| change["setting"]["socket"]["knob"] == "receive_buffer");
    let new_changes = changes.map(|change| {
        let mut change = change.clone();
        change["to"] = bytes.into();
        change
    });
    plan["changes"] = new_changes.collect::<Vec<_>>().into();
    Some(plan)
}

/// A saved plan that changes XPS of one queue.
fn xps_plan(scene: &TuneTestLab) -> String {
    let queue = json!({ "queue_cpus": { "interface": "eth0", "direction": "transmit", "queue": 3 } });
    scene.save("plan.json", scene.plan_of(&[(queue, "0", "1")]))
}

fn xps(scene: &TuneTestLab) -> String {
    scene.shell("cat /sys/class/net/eth0/queues/tx-3/xps_cpus")
}

/// The result of `tune apply --json -`, and standard error. Skips the test if the kernel cannot measure.
fn measured_result(output: &Output) -> Option<(Value, String)> {
    let err = errors_of(output);
    if err.contains("CAP_BPF") || err.contains("Linux 6.3") {
        skip(err.trim());
        return None;
    }
    let mut document = document_of(output);
    conforms(&document, "linerate.tune-apply/2");
    Some((document["result"].take(), err))
}

#[test]
fn keep_if_better_undoes_a_receive_buffer_that_loses_requests() {
    machine();
    let Some(scene) = TuneTestLab::up() else { return };
    let _server = LoadedServer::start(&scene, ClientLoad::Bursts);
    let plan = buffer_plan(&scene, "4096").expect("changes of receive buffers");
    assert!(!plan["changes"].as_array().expect("changes").is_empty(), "{plan}");
    let file = scene.save("plan.json", &plan);
    let output = scene.run("apply", &["--plan", &file, "--yes", "--keep-if-better", "--json", "-"]);
    let Some((result, err)) = measured_result(&output) else { return };
    assert_eq!(output.status.code(), Some(1), "{result}{err}");
    assert!(result["measurement"]["verdict"] == "worse" && result["undone"] == true, "{result}");
    assert!(err.contains("Tune 1 undone because it did harm"), "{err}");
    assert_eq!(scene.expect(0, "status", &[]).0, "No tune is in effect.\n");
}

#[test]
fn measure_alternate_undoes_and_reapplies_changes_unless_it_is_interrupted() {
    let Some(scene) = TuneTestLab::up() else { return };
    let _server = LoadedServer::start(&scene, ClientLoad::Paced);
    let file = xps_plan(&scene);
    let output = scene.run("apply", &["--plan", &file, "--yes", "--measure=alternate", "--json", "-"]);
    let Some((result, _)) = measured_result(&output) else { return };
    let windows = result["measurement"]["windows"].as_array().expect("windows");
    let states: Vec<&Value> = windows.iter().map(|window| &window["changed"]).collect();
    assert_eq!(states, [false, true, false], "{result}");
    assert_eq!(result["tune"], 2, "{result}");
    assert_eq!(xps(&scene), "1");
    let (out, _) = scene.expect_any("history", &[]);
    assert!(out.contains("to measure the"), "{out}");
    scene.expect(0, "undo", &[]);
    assert_eq!(xps(&scene), "0");

    // A measurement that is interrupted after its undo reports the undo.
    let mut apply = scene.tune("apply", &["--plan", &file, "--yes", "--measure=alternate", "--json", "-"]);
    let mut apply = apply.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut lines = lines_of(&mut apply.stderr);
    assert!(lines.any(|line| line.contains("without the changes")), "it is measured");
    signal(apply.id(), Signal::INT);
    lines.for_each(drop);
    let output = apply.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(2));
    let Some((result, _)) = measured_result(&output) else { return };
    assert_eq!(result["undone"], true, "{result}");
    assert_eq!(xps(&scene), "0");
}

#[test]
fn changes_that_are_undone_during_their_measurement_have_no_verdict() {
    let Some(scene) = TuneTestLab::up() else { return };
    let _server = LoadedServer::start(&scene, ClientLoad::Paced);
    let file = xps_plan(&scene);
    for option in ["--measure", "--keep-if-better"] {
        let until = ["--until-confirmed", "2s", option, "--json", "-"];
        let output = scene.run("apply", &[&["--plan", &file, "--yes"][..], &until].concat());
        let Some((result, err)) = measured_result(&output) else { return };
        assert_eq!(output.status.code(), Some(1), "{result}{err}");
        assert!(result["undone"] == true && result["measurement"]["unknown"].is_string(), "{result}");
        assert_eq!(xps(&scene), "0");
    }
}

#[test]
fn an_idle_service_is_measured_only_under_generated_load() {
    let Some(scene) = TuneTestLab::up() else { return };
    let _server = LoadedServer::start(&scene, ClientLoad::Idle);
    let file = xps_plan(&scene);
    for option in ["--measure", "--keep-if-better"] {
        let (_, err) = scene.apply(2, &file, &[option]);
        assert!(err.contains("nothing was changed: the service cannot be measured"), "{err}");
    }
    assert_eq!(xps(&scene), "0");
    let (out, _) = scene.apply(0, &file, &[]);
    assert!(out.contains("Not measured: "), "{out}");
    let (_, err) = scene.apply(2, &file, &["--keep-if-better", "--measure=never"]);
    assert!(err.contains("--keep-if-better requires a measurement"), "{err}");
    scene.expect(0, "undo", &[]);

    let Some(generators) = SshTestGenerators::up(&scene) else { return };
    let generators_arguments = generators.arguments();
    let mut arguments = vec!["--plan", file.as_str(), "--yes", "--json", "-", "--target", "198.18.0.1:7777"];
    arguments.extend(generators_arguments.iter().map(String::as_str));
    let unreachable =
        ["--from", "ssh://root@198.18.0.100:2299", "--target", "198.18.0.1:7777", "--rate", "4k"];
    let (_, err) = scene.apply(2, &file, &unreachable);
    assert!(err.contains("--from: ") && err.contains("2299"), "{err}");
    assert_eq!(xps(&scene), "0");
    let output = scene.run("apply", &[&arguments[..], &["--rate", "4k"]].concat());
    let Some((result, err)) = measured_result(&output) else { return };
    let measurement = &result["measurement"];
    assert_eq!(measurement["generated_per_second"], 4_000.0, "{measurement}{err}");
    for offered in measurement["offered_per_second"].as_array().expect("two rates") {
        assert!((2_000.0..6_000.0).contains(&offered.as_f64().expect("a rate")), "{measurement}");
    }
    let figures = measurement["figures"].as_array().expect("figures");
    assert!(figures.iter().any(|figure| figure["key"] == "reply_p99_ns"), "{measurement}");
    assert!(generators.processes().is_empty(), "the load ends with the measurement");
}
