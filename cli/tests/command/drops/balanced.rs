//! Runs in which nothing is lost.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use linerate_lab::LabChild;
use serde_json::Value;

use super::scene::{ADDRESS, PORT, Scene};
use crate::support::{self, program};

#[test]
fn every_transaction_of_a_run_is_accounted_for() {
    let _machine = support::machine();
    let Some(scene) = Scene::up("every_transaction_of_a_run_is_accounted_for", 1) else { return };
    let wanted = if std::env::var_os("LINERATE_TEST_LONG").is_some() { 1_000_000 } else { 100_000 };
    let _server = serve(&scene);
    let rate = load(&scene, 0.3)["answered_per_second"].as_f64().expect("a rate");
    let written = scene.path("load.json");
    let looking = scene.look(&["--port", &PORT.to_string(), "--load", &written]);
    // A tenth more than it takes, and again what the machine was slower.
    let mut document = load(&scene, 1.1 * f64::from(wanted) / rate);
    if answered(&document) < wanted.into() {
        // Only the last document counts, so that run has to be long enough by itself.
        drop(looking.end());
        let share = answered(&document) as f64 / f64::from(wanted);
        let looking = scene.look(&["--port", &PORT.to_string(), "--load", &written]);
        document = load(&scene, 2.0 * f64::from(wanted) / rate / share.max(0.1));
        return judged(&looking.end(), &document, wanted);
    }
    judged(&looking.end(), &document, wanted);
}

fn judged(found: &super::scene::Found, load: &Value, wanted: u32) {
    assert!(answered(load) >= wanted.into(), "{load:#}");
    let first = &found.document["requests"]["stages"][0];
    assert_eq!((&first["stage"], &first["packets_in"]), (&"generator".into(), &load["sent"]));
    assert!(
        found.losses("requests").iter().chain(&found.losses("replies")).all(|(_, packets)| *packets == 0)
    );
    assert_eq!(found.unaccounted(), [], "{:#}", found.document);
    assert_eq!(found.status, Some(0), "{}", found.errors);
}

fn answered(load: &Value) -> u64 {
    load["answered"].as_u64().expect("a count")
}

/// `linerate serve echo` on the receiver, once it serves.
fn serve(scene: &Scene) -> LabChild {
    let mut command = Command::new(program());
    command.args(["serve", "echo", "--bind", &format!("{ADDRESS}:{PORT}")]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = scene.receiver().spawn(command).expect("the command starts");
    let mut lines = BufReader::new(child.stderr.take().expect("a pipe")).lines().map_while(Result::ok);
    assert!(lines.by_ref().any(|line| line.starts_with("serving echo on ")), "it serves");
    std::thread::spawn(move || lines.for_each(drop));
    child
}

/// The document of load that waits for its answers.
fn load(scene: &Scene, seconds: f64) -> Value {
    let written = scene.path("load.json");
    let mut command = Command::new(program());
    command.args(["load", &format!("{ADDRESS}:{PORT}"), "--window", "4", "--backend", "socket", "--quiet"]);
    command.args(["--duration", &format!("{seconds:.2}"), "--json", &written]).stdout(Stdio::null());
    let mut child = scene.sender().spawn(command).expect("the command starts");
    assert!(child.wait().expect("it ends").success());
    serde_json::from_str(&std::fs::read_to_string(written).expect("written")).expect("JSON")
}
