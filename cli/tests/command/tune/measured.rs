//! A change is measured on the service that runs: harm is found and undone, and an idle service is not measured.

use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::scene::{TuneTestLab, output_text};
use crate::schema::conforms;
use crate::support::{machine, program, skip};

/// An echo server of a lab under load, until it is dropped.
struct LoadedServer {
    children: Vec<Child>,
}

impl LoadedServer {
    fn start(scene: &TuneTestLab, rate: Option<&str>) -> Self {
        let mut server = scene.on_host(program());
        server.args(["serve", "echo", "--bind", "198.18.0.1:7777"]);
        let mut children = vec![quiet(server)];
        scene.shell("until ss -Hlun sport = 7777 | grep -q 7777; do sleep 0.05; done");
        if let Some(rate) = rate {
            let mut load = scene.on("sender0", program());
            load.args([
                "load",
                "198.18.0.1:7777",
                "--rate",
                rate,
                "--duration",
                "120",
                "--backend",
                "socket",
            ]);
            children.push(quiet(load));
            // The second line that begins so has the values.
            scene.shell(
                "until awk '/^Udp:/ { n = $2 } END { exit !(n > 100) }' /proc/net/snmp; do sleep 0.05; done",
            );
        }
        Self { children }
    }
}

fn quiet(mut command: Command) -> Child {
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the command starts")
}

impl Drop for LoadedServer {
    fn drop(&mut self) {
        for child in self.children.iter_mut().rev() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A plan that gives all sockets of the server this receive buffer.
fn buffer_plan(scene: &TuneTestLab, bytes: &str) -> Option<Value> {
    let asked = ["boost", "plan", "--port", "7777", "--receive-buffer", "64000000", "--no-steer", "--no-pin"];
    let output = scene.on_host(program()).args(asked).args(["--no-datagrams", "--json", "-"]).output();
    let (out, err) = output_text(&output.expect("the command starts"));
    let boost: Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}{err}"));
    let changes = boost["result"]["plan"]["changes"].as_array()?;
    let mut plan = scene.plan_of(&[]);
    let changes = changes.iter().filter(|change| change["setting"]["socket"]["knob"] == "receive_buffer");
    let shrunk = changes.map(|change| {
        let mut change = change.clone();
        change["to"] = bytes.into();
        change
    });
    plan["changes"] = shrunk.collect::<Vec<_>>().into();
    Some(plan)
}

#[test]
fn a_receive_buffer_that_loses_requests_is_worse_and_undone() {
    let test = "a_receive_buffer_that_loses_requests_is_worse_and_undone";
    let _machine = machine();
    let Some(scene) = TuneTestLab::up(test) else { return };
    let _server = LoadedServer::start(&scene, Some("20k"));
    let plan = buffer_plan(&scene, "4096").expect("changes of receive buffers");
    assert!(!plan["changes"].as_array().expect("changes").is_empty(), "{plan}");
    let file = scene.save("plan.json", &plan);
    let output = scene.run("apply", &["--plan", &file, "--yes", "--keep-if-better", "--json", "-"]);
    let (out, err) = output_text(&output);
    if err.contains("CAP_BPF") || err.contains("Linux 6.3") {
        return skip(test, err.trim());
    }
    assert_eq!(output.status.code(), Some(1), "{out}{err}");
    let document: Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}{err}"));
    conforms(&document, "linerate.tune-apply/2");
    let measured = &document["result"]["measurement"];
    assert_eq!(
        (&measured["verdict"], &document["result"]["undone"]),
        (&json!("worse"), &json!(true)),
        "{measured}"
    );
    assert!(err.contains("Tune 1 undone because it did harm"), "{err}");
    let (out, _) = scene.expect(0, "status", &[]);
    assert_eq!(out, "No tune is in effect.\n");
}

#[test]
fn alternated_changes_are_undone_and_made_again() {
    let test = "alternated_changes_are_undone_and_made_again";
    let _machine = machine();
    let Some(scene) = TuneTestLab::up(test) else { return };
    let _server = LoadedServer::start(&scene, Some("5k"));
    let queue = json!({ "queue_cpus": { "interface": "eth0", "direction": "transmit", "queue": 3 } });
    let file = scene.save("plan.json", &scene.plan_of(&[(queue, "0", "1")]));
    let output = scene.run("apply", &["--plan", &file, "--yes", "--measure=alternate", "--json", "-"]);
    let (out, err) = output_text(&output);
    if err.contains("CAP_BPF") || err.contains("Linux 6.3") {
        return skip(test, err.trim());
    }
    let document: Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}{err}"));
    let windows = document["result"]["measurement"]["windows"].as_array().expect("windows");
    let changed: Vec<&Value> = windows.iter().map(|window| &window["changed"]).collect();
    assert_eq!(changed, [false, true, false], "{out}");
    assert_eq!(document["result"]["tune"], 2, "{out}");
    assert_eq!(scene.shell("cat /sys/class/net/eth0/queues/tx-3/xps_cpus"), "1");
    let (out, _) = scene.expect_any("history", &[]);
    assert!(out.contains("to measure the"), "{out}");
    scene.expect(0, "undo", &[]);
    assert_eq!(scene.shell("cat /sys/class/net/eth0/queues/tx-3/xps_cpus"), "0");
}

#[test]
fn an_idle_service_is_not_measured_and_not_changed_if_it_has_to_be() {
    let test = "an_idle_service_is_not_measured_and_not_changed_if_it_has_to_be";
    let Some(scene) = TuneTestLab::up(test) else { return };
    let _server = LoadedServer::start(&scene, None);
    let queue = json!({ "queue_cpus": { "interface": "eth0", "direction": "transmit", "queue": 3 } });
    let file = scene.save("plan.json", &scene.plan_of(&[(queue, "0", "1")]));
    for option in ["--measure", "--keep-if-better"] {
        let (_, err) = scene.expect(2, "apply", &["--plan", &file, "--yes", option]);
        assert!(err.contains("nothing was changed: the service cannot be measured"), "{err}");
    }
    assert_eq!(scene.shell("cat /sys/class/net/eth0/queues/tx-3/xps_cpus"), "0");
    let (out, _) = scene.expect(0, "apply", &["--plan", &file, "--yes"]);
    assert!(out.contains("Not measured: "), "{out}");
    let (_, err) =
        scene.expect(2, "apply", &["--plan", &file, "--yes", "--keep-if-better", "--measure=never"]);
    assert!(err.contains("--keep-if-better requires a measurement"), "{err}");
}
