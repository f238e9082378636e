//! In a network namespace, machine-wide settings are left to the user and do not block other
//! changes.

use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, Stdio};

use linerate_lab::Lab;
use serde_json::{Value, json};

use super::scene::TuneTestLab;
use crate::support::{checked_text, linerate, program, read_document, skip, start_root_lab};

const SERVER: &str = "198.18.0.1:4098";

/// More datagrams than the default receive buffer of 212,992 bytes holds.
const SENT: usize = 2000;

const SHOWN_ONLY: &str = "it belongs to the whole machine, and cannot be set from a network namespace";

#[test]
fn machine_wide_settings_are_not_planned_in_a_network_namespace() {
    let Some(lab) = start_root_lab(Lab::builder().queues(2)) else { return };
    let (receiver, sender) = (lab.receiver(), &lab.senders()[0]);
    // No process reads this socket.
    let _server = receiver.run(|| UdpSocket::bind(SERVER)).expect("the host runs").expect("a socket");
    let client = sender.run(|| UdpSocket::bind("0.0.0.0:0")).expect("the host runs").expect("a socket");
    for _ in 0..SENT {
        client.send_to(b"lost", SERVER).expect("sent");
    }
    let default = fs::read_to_string("/proc/sys/net/core/rmem_default").expect("a number");
    let default: u64 = default.trim().parse().expect("a number");
    if default > 256 << 10 {
        return skip(format!("a default of {default} bytes is none that a plan would change"));
    }
    let directory = tempfile::tempdir().expect("a directory");
    let (file, capture) = (directory.path().join("plan.json"), directory.path().join("host.tar.gz"));
    let run = |arguments: &[&str], file: &Path| {
        let mut command = Command::new(program());
        command.args(arguments).arg(file).stdout(Stdio::null());
        let mut child = receiver.spawn(command).expect("it starts");
        assert!(child.wait().expect("it ends").success(), "{arguments:?}");
    };
    run(&["tune", "plan", "--interface", "eth0", "--json"], &file);
    assert_left_to_the_user(&read_document(&file));
    // A user on another machine plans from a capture of this host.
    run(&["doctor", "capture", "--interface", "eth0"], &capture);
    let root = capture.to_str().expect("UTF-8");
    let text = file.to_str().expect("UTF-8");
    let output = linerate(&["tune", "plan", "--root", root, "--json", text]);
    assert!(output.status.success(), "{output:?}");
    assert_left_to_the_user(&read_document(&file));
}

fn assert_left_to_the_user(plan: &Value) {
    let is_of_core = |change: &Value| {
        change["setting"]["sysctl"].as_str().is_some_and(|name| name.starts_with("net.core.rmem_"))
    };
    let changes = plan["changes"].as_array().expect("changes");
    assert!(!changes.iter().any(is_of_core), "{changes:#?}");
    let skipped = plan["skipped"].as_array().expect("skipped findings").iter();
    let small = skipped.clone().find(|one| one["finding"] == "socket.buffer-small");
    let small = small.unwrap_or_else(|| panic!("{:#}", plan["skipped"]));
    assert!(small["why"].as_str().is_some_and(|why| why.contains(SHOWN_ONLY)), "{small:#}");
    let command = "sysctl -w net.core.rmem_default=4194304";
    let commands = small["commands"].as_array().expect("commands");
    assert!(commands.iter().any(|one| one == command), "{small:#}");
}

#[test]
fn apply_refuses_machine_wide_settings_and_makes_other_changes() {
    let Some(scene) = TuneTestLab::up() else { return };
    let value_of = |name: &str| scene.shell(&format!("cat /proc/sys/{name} 2>/dev/null || true"));
    let (memory, demux) = (value_of("net/core/rmem_default"), value_of("net/ipv4/udp_early_demux"));
    if memory.is_empty() {
        return skip("this kernel does not show net.core.rmem_default in a network namespace");
    }
    let other = if demux == "0" { "1" } else { "0" };
    let file = scene.save(
        "plan.json",
        scene.plan_of(&[
            (json!({ "sysctl": "net.core.rmem_default" }), &memory, "4194304"),
            (json!({ "sysctl": "net.ipv4.udp_early_demux" }), &demux, other),
        ]),
    );
    let (_, err) = scene.apply(2, &file, &[]);
    assert!(err.contains(SHOWN_ONLY) && err.contains("done"), "{err}");
    assert_eq!(value_of("net/ipv4/udp_early_demux"), other, "{err}");
    assert_eq!(value_of("net/core/rmem_default"), memory);
    scene.expect(0, "undo", &[]);
    assert_eq!(value_of("net/ipv4/udp_early_demux"), demux);
}

#[test]
fn undo_restores_settings_in_the_namespace_of_the_tune() {
    let Some(scene) = TuneTestLab::up() else { return };
    let demux = "/proc/sys/net/ipv4/udp_early_demux";
    let value = || scene.shell(&format!("cat {demux}"));
    let (before, own_value) = (value(), fs::read_to_string(demux).expect("a value"));
    let other = if before == "0" { "1" } else { "0" };
    let change = (json!({ "sysctl": "net.ipv4.udp_early_demux" }), before.as_str(), other);
    let file = scene.save("plan.json", scene.plan_of(&[change]));
    scene.apply(0, &file, &[]);
    assert_eq!(value(), other);
    let state = scene.state();
    let state = state.to_str().expect("UTF-8");
    let (out, _) = checked_text(&linerate(&["tune", "status", "--state-dir", state]), 0, "tune status");
    assert!(out.contains("it is in another network namespace"), "{out}");
    // The test's own namespace has a setting of the same name.
    checked_text(&linerate(&["tune", "undo", "--state-dir", state]), 0, "tune undo");
    assert_eq!((value(), fs::read_to_string(demux).expect("a value")), (before, own_value));
}
