//! `linerate top`, with a terminal and without one.

mod screen;
mod without_terminal;

use linerate_lab::Lab;
use screen::TmuxTerminal;

use crate::support::{is_root, shell, start_echo, start_lab, within};

/// The receiver's address, and a port for an echo server there.
const ECHO: &str = "198.18.0.1:4077";

const ADD_TOP0: &str = "ip link add top0 type veth peer name top1; ip link set top0 up; ip link set top1 up";

#[test]
fn top_handles_keys_resizes_and_recreated_interfaces() {
    const NAME: &str = "top_handles_keys_resizes_and_recreated_interfaces";
    let Some(lab) = lab(NAME) else { return };
    let _echo = start_echo(lab.receiver(), ECHO.parse().expect("an address"));
    let directory = tempfile::tempdir().expect("a directory");
    let recording = directory.path().join("top.jsonl");
    let arguments = format!("top --interval 0.3 --record {}", recording.display());
    let Some(pane) = TmuxTerminal::start(NAME, &lab, directory.path(), &arguments, (80, 24)) else { return };

    pane.wait_for("IRQ / CPU");
    pane.wait_for("eth0");
    pane.wait_until_gone("reading the host");
    assert!(pane.text().lines().count() <= 24);

    shell(lab.receiver(), ADD_TOP0);
    pane.wait_for("top0");
    shell(lab.receiver(), "ip link del top0");
    pane.wait_for("gone");
    pane.wait_until_gone("top0");
    shell(lab.receiver(), ADD_TOP0);
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
    within(40, "ten snapshots", || {
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
    if is_root(test) { start_lab(test, Lab::builder().queues(2)) } else { None }
}
