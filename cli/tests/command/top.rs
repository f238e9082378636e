//! `linerate top`, with a terminal and without one.

mod screen;
mod without_terminal;

use linerate_lab::Lab;
use screen::TmuxTerminal;

use crate::support::{TestDirectory, shell, start_echo, start_root_lab, within};

/// The receiver's address, and a port for an echo server there.
const ECHO: &str = "198.18.0.1:4077";

const ADD_TOP0: &str = "ip link add top0 type veth peer name top1; ip link set top0 up; ip link set top1 up";

#[test]
fn top_handles_keys_resizes_and_recreated_interfaces_and_counts_drops() {
    let Some(lab) = lab() else { return };
    let _echo = start_echo(lab.receiver(), ECHO.parse().expect("an address"));
    let directory = TestDirectory::new();
    let recording = directory.file("top.jsonl");
    let arguments = format!("top --interval 0.3 --record {recording}");
    let Some(pane) = TmuxTerminal::start(&lab, directory.path(), &arguments, (80, 24)) else { return };

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
    pane.press_for("Right", "━ IRQ / CPU ━");
    pane.press_for("s", "IRQ / CPU sorted by softirq");
    pane.press("Down");
    pane.press_for("Enter", "time in softirq");
    pane.press("Escape");
    pane.wait_until_gone("time in softirq");
    pane.press_for("?", "sort the stage by another column");
    pane.press("q");
    pane.wait_until_gone("sort the stage by another column");
    pane.press_for("/", "filter:");
    pane.press("4077");
    pane.press_for("Enter", "/4077");
    pane.press("Escape");
    pane.press_for("d", "counting drops");
    pane.wait_for("counted for");
    pane.press("Escape");
    pane.wait_until_gone("counted for");
    pane.press_for("p", "paused");
    pane.press_for("Space", "every 0.3 s");
    pane.resize(80, 24);
    pane.wait_until_gone("─ OUT ");

    pane.press_for("q", "ended 0");
    assert!(!pane.is_alternate(), "the terminal is as it was");
    let lines = std::fs::read_to_string(&recording).expect("a recording");
    assert!(lines.ends_with('\n') && lines.lines().count() > 5);
}

#[test]
fn sigterm_restores_the_terminal_and_replay_steps_through_a_recording() {
    let Some(lab) = lab() else { return };
    let directory = TestDirectory::new();
    let recording = directory.file("top.jsonl");
    let arguments = format!("top --interval 0.1 --record {recording}");
    let Some(pane) = TmuxTerminal::start(&lab, directory.path(), &arguments, (80, 24)) else { return };
    pane.wait_for("eth0");
    within(40, "ten snapshots", || {
        std::fs::read_to_string(&recording).is_ok_and(|text| text.lines().count() >= 10)
    });
    assert!(pane.is_alternate());
    pane.terminate();
    pane.wait_for("ended 0");
    assert!(!pane.is_alternate(), "the terminal is as it was");
    drop(pane);

    let arguments = format!("top --replay {recording}");
    let Some(pane) = TmuxTerminal::start(&lab, directory.path(), &arguments, (100, 30)) else { return };
    pane.wait_for("replay");
    pane.press("Space");
    pane.press_for("Right", "‖ replay");
    for _ in 0..40 {
        pane.press("Left");
    }
    pane.wait_for("replay 1/");
    pane.press_for("Right", "replay 2/");
    pane.press_for("+", "×2");
    pane.press_for("d", "drops are counted on a running host only");
    pane.press_for("q", "ended 0");
}

/// Prints a SKIP line and returns `None` without root or if no lab can be created.
fn lab() -> Option<Lab> {
    start_root_lab(Lab::builder().queues(2))
}
