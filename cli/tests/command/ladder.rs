//! `linerate ladder` between hosts of a lab, over real ssh: all settings are restored however the
//! run ends.

pub(crate) mod generators;

use std::process::{Child, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{checked_text, machine, output_text, program, read_document, signal, texts, within};
use crate::tune::scene::TuneTestLab;
use generators::SshTestGenerators;

/// A run whose figures do not matter ends its searches soon at a rate that always holds.
const LOW_RATE: [&str; 2] = ["--max-rate", "2k"];

const XPS: &str = "cat /sys/class/net/eth0/queues/tx-0/xps_cpus";

fn envelope(scene: &TuneTestLab) -> Value {
    read_document(scene.path("report.json"))
}

fn report(scene: &TuneTestLab) -> Value {
    envelope(scene)["result"].take()
}

/// A host with generators.
struct LadderTestHost {
    // Rust drops fields in this order, so that programs in the lab end before the lab.
    generators: SshTestGenerators,
    scene: TuneTestLab,
}

impl LadderTestHost {
    fn up() -> Option<Self> {
        let scene = TuneTestLab::up()?;
        Some(Self { generators: SshTestGenerators::up(&scene)?, scene })
    }

    /// Runs a ladder to its end and checks its exit status. Returns standard error.
    #[track_caller]
    fn expect(&self, status: i32, arguments: &[&str]) -> String {
        let output = self.generators.ladder(&self.scene, arguments).output().expect("started");
        checked_text(&output, status, format_args!("ladder {arguments:?}")).1
    }

    /// Starts a run of the step xps and returns once its setting is in effect.
    fn start_xps_step(&self) -> Child {
        let mut command = self.generators.ladder(&self.scene, &[&["--steps", "xps"][..], &LOW_RATE].concat());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the command starts");
        within(120, "the step is reached", || {
            assert!(child.try_wait().expect("a child").is_none(), "the run ends early: {:?}", child.stderr);
            self.scene.shell(XPS) != "0"
        });
        child
    }
}

#[test]
fn ladder_with_two_generators_restores_all_settings_however_it_ends() {
    let Some(host) = LadderTestHost::up() else { return };
    let (scene, generators) = (&host.scene, &host.generators);
    let before = scene.values();

    // The guard undoes the tune of a killed run.
    let mut child = host.start_xps_step();
    signal(child.id(), Signal::KILL);
    child.wait().expect("it ends");
    within(20, "the guard undoes the tune", || scene.expect(0, "history", &[]).0.contains("undone"));
    within(20, "the generators end", || generators.processes().is_empty());
    host.scene.assert_undone(&before);

    let err = host.expect(0, &[&["--steps", "xps,gro-off"][..], &LOW_RATE].concat());
    let report = report(scene);
    assert_eq!(texts(&report["steps"], "id"), ["baseline", "xps", "gro-off"]);
    for step in report["steps"].as_array().expect("steps") {
        assert_eq!(step["applied"], true, "{step}");
    }
    let testbed = &report["testbed"];
    assert_eq!(testbed["kind"], "host");
    assert_eq!(testbed["generator_hosts"].as_array().map(Vec::len), Some(2), "{testbed}");
    assert_eq!(report["settings"]["restored"], true);
    let setting = report["steps"][1]["changes"][0]["setting"].as_str().expect("a change");
    assert!(setting.starts_with("eth0 tx-"), "{setting}");
    assert_eq!(report["steps"][2]["changes"][0]["setting"], "eth0 generic-receive-offload");
    assert!(err.contains("eth0 generic-receive-offload: on -> off"), "{err}");
    assert!(generators.processes().is_empty());
    host.scene.assert_undone(&before);

    // A generator is killed, or the run is interrupted.
    for kind in ["generator-lost", "interrupted"] {
        let child = host.start_xps_step();
        if kind == "interrupted" {
            signal(child.id(), Signal::INT);
        } else {
            let generator = generators.processes().into_iter().max().expect("a generator runs");
            signal(generator.cast_unsigned(), Signal::KILL);
        }
        checked_text(&child.wait_with_output().expect("it ends"), 2, kind);
        let report = self::report(scene);
        let steps = &report["steps"];
        assert_eq!(texts(steps, "id"), ["baseline", "xps"], "{kind}");
        assert!(steps[0]["transactions_per_second"]["median"].as_f64().is_some_and(|rate| rate > 0.0));
        assert!(texts(&steps[1]["warnings"], "kind").contains(&kind), "{}", steps[1]);
        assert!(texts(&envelope(scene)["warnings"], "kind").contains(&"interrupted"));
        within(20, "the generators end", || generators.processes().is_empty());
        host.scene.assert_undone(&before);
    }

    scene.shell(
        "nft 'table inet wall { chain in { type filter hook input priority 0; udp dport 7777 drop; }; }'",
    );
    let err = host.expect(2, &["--steps", "gro-off"]);
    assert!(err.contains("no request sent to 198.18.0.1:7777 came in: "), "{err}");
    scene.shell("nft delete table inet wall");
    host.scene.assert_undone(&before);
}

#[test]
fn keep_better_keeps_a_better_step_as_a_tune() {
    machine();
    let Some(host) = LadderTestHost::up() else { return };
    let scene = &host.scene;
    // Two of the four transmit queues drop most packets. Once each CPU has its own queue, no CPU
    // uses these two.
    scene.shell(
        "tc qdisc replace dev eth0 root handle 1: mq && \
         for queue in 3 4; do tc qdisc add dev eth0 parent 1:$queue tbf rate 1mbit burst 2k limit 4k; done",
    );
    let before = scene.values();
    let err = host.expect(0, &["--steps", "xps", "--keep-better", "--max-rate", "20k"]);
    let report = report(scene);
    assert_eq!(report["steps"][1]["versus_previous"]["verdict"], "better", "{report}");
    let tune = report["settings"]["kept_tune"].as_u64().expect("a tune is kept");
    assert!(err.contains(&format!("tune {tune}")), "{err}");
    assert_ne!(scene.shell(XPS), "0");
    let (status, _) = scene.expect(0, "status", &[]);
    assert!(status.contains("what a ladder showed to be better") && status.contains("in effect"), "{status}");
    scene.expect(0, "undo", &[&tune.to_string()]);
    host.scene.assert_undone(&before);
}

#[test]
fn ladder_refuses_invalid_arguments_and_records_no_tune() {
    let Some(scene) = TuneTestLab::up() else { return };
    let assert_refused = |arguments: &[&str], words: &str| {
        let mut command = scene.on_host(program());
        command.args(["ladder", "--from", "ssh://203.0.113.1", "--yes", "--state-dir"]).arg(scene.state());
        let (out, err) = output_text(&command.args(arguments).output().expect("started"));
        assert!(err.contains(words) && err.lines().count() == 1, "{arguments:?}: {out}{err}");
    };
    assert_refused(&["--interface", "eth9"], "no interface 'eth9': there are ");
    assert_refused(&["--interface", "eth0"], "eth0 does not report its speed");
    let eth0 = ["--interface", "eth0", "--link", "10G"];
    assert_refused(
        &[&eth0[..], &["--listen", "198.18.0.9:7"]].concat(),
        "198.18.0.9 is not an address of eth0",
    );
    assert_refused(&[&eth0[..], &["--ssh", "'ssh"]].concat(), "--ssh: ''ssh' is not a command");
    assert_refused(&[&eth0[..], &["--ssh", "/nowhere/ssh"]].concat(), "cannot run '/nowhere/ssh' here");
    assert_refused(&[&eth0[..], &["--steps", "xsp"]].concat(), "unknown step 'xsp'");
    assert_refused(&[&eth0[..], &["--for", "nothing"]].concat(), "no profile 'nothing'");
    assert_refused(
        &[&eth0[..], &["--time", "1e19"]].concat(),
        "'1e19' is no number of seconds from 0 to 1000000",
    );
    let running = ["--port", "7", "--workload", "echo", "--payload", "1400"];
    assert_refused(&[&eth0[..], &running].concat(), "--payload is for linerate's own server");
    let (history, _) = scene.expect(0, "history", &[]);
    assert!(!history.contains("ladder"), "{history}");
}
