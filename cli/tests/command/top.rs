//! `linerate top`, with a terminal and without one.

mod screen;
mod without_terminal;

use std::net::SocketAddr;
use std::process::Command;

use linerate_lab::Lab;
use linerate_testkit::reflector::Reflector;
use screen::TmuxTerminal;

use crate::support::{program, skip};

/// The receiver's address, and a port for an echo server there.
const ECHO: &str = "198.18.0.1:4077";

#[test]
fn top_handles_keys_resizes_and_recreated_interfaces() {
    const NAME: &str = "top_handles_keys_resizes_and_recreated_interfaces";
    let Some(lab) = lab(NAME) else { return };
    let start = || {
        let address: SocketAddr = ECHO.parse().expect("an address");
        Reflector::builder().address(address).start()
    };
    let _echo = lab.receiver().run(start).expect("the host runs").expect("an echo");
    let directory = tempfile::tempdir().expect("a directory");
    let recording = directory.path().join("top.jsonl");
    let arguments = format!("top --interval 0.3 --record {}", recording.display());
    let Some(pane) = TmuxTerminal::start(NAME, &lab, directory.path(), &arguments, (80, 24)) else { return };

    pane.wait_for("IRQ / CPU");
    pane.wait_for("eth0");
    pane.wait_until_gone("reading the host");
    assert!(pane.text().lines().count() <= 24);

    pane.ip("link add top0 type veth peer name top1");
    pane.ip("link set top0 up");
    pane.ip("link set top1 up");
    pane.wait_for("top0");
    pane.ip("link del top0");
    pane.wait_for("gone");
    pane.wait_until_gone("top0");
    pane.ip("link add top0 type veth peer name top1");
    pane.ip("link set top0 up");
    pane.ip("link set top1 up");
    pane.wait_for("top0");

    pane.resize(200, 60);
    pane.wait_for("─ OUT ");
    pane.wait_for(":4077");
    pane.press("Right");
    pane.wait_for("━ IRQ / CPU ━");
    pane.press("s");
    pane.wait_for("IRQ / CPU sorted by softirq");
    pane.press("Down");
    pane.press("Enter");
    pane.wait_for("time in softirq");
    pane.press("Escape");
    pane.wait_until_gone("time in softirq");
    pane.press("?");
    pane.wait_for("sort the stage by another column");
    pane.press("q");
    pane.wait_until_gone("sort the stage by another column");
    pane.press("/");
    pane.wait_for("filter:");
    pane.press("4077");
    pane.press("Enter");
    pane.wait_for("/4077");
    pane.press("Escape");
    pane.press("p");
    pane.wait_for("paused");
    pane.press("Space");
    pane.wait_for("every 0.3 s");
    pane.resize(80, 24);
    pane.wait_until_gone("─ OUT ");

    pane.press("q");
    pane.wait_for("ended 0");
    assert!(!pane.is_alternate(), "the terminal is as it was");
    let lines = std::fs::read_to_string(&recording).expect("a recording");
    assert!(lines.ends_with('\n') && lines.lines().count() > 5);
}

#[test]
fn sigterm_restores_the_terminal_and_replay_steps_through_a_recording() {
    const NAME: &str = "sigterm_restores_the_terminal_and_replay_steps_through_a_recording";
    let Some(lab) = lab(NAME) else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let recording = directory.path().join("top.jsonl");
    let arguments = format!("top --interval 0.1 --record {}", recording.display());
    let Some(pane) = TmuxTerminal::start(NAME, &lab, directory.path(), &arguments, (80, 24)) else { return };
    pane.wait_for("eth0");
    screen::within("ten snapshots", || {
        std::fs::read_to_string(&recording).is_ok_and(|text| text.lines().count() >= 10)
    });
    assert!(pane.is_alternate());
    pane.terminate();
    pane.wait_for("ended 0");
    assert!(!pane.is_alternate(), "the terminal is as it was");
    drop(pane);

    let arguments = format!("top --replay {}", recording.display());
    let Some(pane) = TmuxTerminal::start(NAME, &lab, directory.path(), &arguments, (100, 30)) else { return };
    pane.wait_for("replay");
    pane.press("Space");
    pane.press("Right");
    pane.wait_for("‖ replay");
    for _ in 0..40 {
        pane.press("Left");
    }
    pane.wait_for("replay 1/");
    pane.press("Right");
    pane.wait_for("replay 2/");
    pane.press("+");
    pane.wait_for("×2");
    pane.press("d");
    pane.wait_for("drops are counted on a running host only");
    pane.press("q");
    pane.wait_for("ended 0");
}

#[test]
fn key_d_counts_and_shows_drops() {
    const NAME: &str = "key_d_counts_and_shows_drops";
    let Some(lab) = lab(NAME) else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let Some(pane) = TmuxTerminal::start(NAME, &lab, directory.path(), "top --interval 0.3", (120, 40))
    else {
        return;
    };
    pane.wait_for("eth0");
    pane.press("d");
    pane.wait_for("counting drops");
    pane.wait_for("counted for");
    pane.press("Escape");
    pane.wait_until_gone("counted for");
    pane.press("q");
    pane.wait_for("ended 0");
}

/// Prints a SKIP line and returns `None` without root or if no lab can be created.
fn lab(test: &str) -> Option<Lab> {
    if !rustix::process::geteuid().is_root() {
        skip(test, "requires root");
        return None;
    }
    match Lab::builder().senders(1).queues(2).start() {
        Ok(lab) => Some(lab),
        Err(error) => {
            skip(test, &error.to_string());
            None
        }
    }
}

/// Runs `linerate` with these arguments on the receiver of a lab.
fn on_receiver(lab: &Lab, arguments: &[&str]) -> std::process::Output {
    let mut command = Command::new(program());
    command.args(arguments).stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut child = lab.receiver().spawn(command).expect("it starts");
    let (mut out, mut errors) = (Vec::new(), Vec::new());
    std::io::Read::read_to_end(&mut child.stdout.take().expect("a pipe"), &mut out).expect("text");
    std::io::Read::read_to_end(&mut child.stderr.take().expect("a pipe"), &mut errors).expect("text");
    std::process::Output { status: child.wait().expect("it ends"), stdout: out, stderr: errors }
}
