//! Tunes that undo themselves.

use std::process::{Child, Stdio};

use rustix::process::Signal;

use super::scene::{HostSettingValues, TuneTestLab};
use crate::support::{await_line, signal, within};

/// Text without the line breaks of a narrow terminal.
fn join_lines(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn await_restored(scene: &TuneTestLab, before: &HostSettingValues) {
    within(60, "no tune in effect", || scene.expect_any("status", &[]).0 == "No tune is in effect.\n");
    assert_eq!(*before, scene.values());
}

#[test]
fn tunes_are_undone_at_their_deadline_unless_confirmed() {
    let Some((scene, file, before)) = TuneTestLab::up_with_plan() else { return };
    let (out, _) = scene.apply(0, &file, &["--until-confirmed", "3s"]);
    assert!(out.contains("tune confirm 1 --state-dir"), "{out}");
    assert_ne!(before, scene.values());
    // No other tune can start until tune 1 is confirmed or undone.
    let (_, err) = scene.apply(2, &file, &[]);
    assert!(err.contains("tune 1") && err.lines().count() == 1, "{err}");
    await_restored(&scene, &before);
    let (out, _) = scene.expect(0, "history", &[]);
    assert!(join_lines(&out).contains("it was not confirmed"), "{out}");
    let (_, err) = scene.expect(2, "confirm", &[]);
    assert_eq!(err.lines().count(), 1, "{err}");

    let (out, _) = scene.apply(0, &file, &["--for-duration", "2s"]);
    assert!(out.contains("undone automatically in "), "{out}");
    await_restored(&scene, &before);
    let (out, _) = scene.expect(0, "history", &[]);
    assert!(join_lines(&out).contains("its time is over"), "{out}");

    scene.apply(0, &file, &["--until-confirmed", "60s"]);
    let (out, _) = scene.expect(0, "status", &[]);
    assert!(out.contains("unless confirmed: linerate tune confirm 3"), "{out}");
    let (out, _) = scene.expect(0, "confirm", &[]);
    assert!(out.starts_with("Tune 3 is confirmed and stays."), "{out}");
    let (out, _) = scene.expect(0, "status", &[]);
    assert!(out.contains("8 settings in effect") && !out.contains("undone automatically"), "{out}");
}

/// Starts to apply and returns after four of the eight changes.
fn apply_half(scene: &TuneTestLab, file: &str, more: &[&str]) -> Child {
    let mut arguments = vec!["--plan", file, "--yes"];
    arguments.extend(more);
    let mut command = scene.tune("apply", &arguments);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("starts");
    await_line(&mut child.stderr, |line| line.starts_with("  4/").then_some(()));
    child
}

#[test]
fn unfinished_tunes_are_undone_by_their_guard_or_can_be_resumed_or_undone() {
    let Some((scene, file, before)) = TuneTestLab::up_with_plan() else { return };
    let mut child = apply_half(&scene, &file, &["--until-confirmed", "1h"]);
    child.kill().expect("killed");
    child.wait().expect("reaped");
    await_restored(&scene, &before);

    // The kill may come after the last change.
    let mut child = apply_half(&scene, &file, &[]);
    child.kill().expect("killed");
    child.wait().expect("reaped");
    let (out, _) = scene.expect_any("status", &[]);
    assert!(out.contains("not finished: its program was killed") || out.contains("made; 8"), "{out}");
    if out.contains("not finished") {
        let (_, err) = scene.apply(2, &file, &[]);
        assert!(err.contains("apply --resume") && err.lines().count() == 1, "{err}");
        let (out, _) = scene.expect(0, "apply", &["--resume", "--yes"]);
        assert!(out.contains("had their value already"), "{out}");
        let (out, _) = scene.expect(0, "status", &[]);
        assert!(out.contains("made; 8 settings in effect"), "{out}");
    }
    scene.undo(&before);

    // An interrupted tune stops between two changes.
    let mut child = apply_half(&scene, &file, &[]);
    signal(child.id(), Signal::INT);
    let status = child.wait().expect("reaped");
    let (out, _) = scene.expect_any("status", &[]);
    // The signal may come after the last change.
    match status.code() {
        Some(2) => assert!(out.contains("stopped: it was interrupted"), "{out}"),
        Some(0) => assert!(out.contains("made; 8"), "{out}"),
        other => panic!("{other:?}: {out}"),
    }
    scene.undo(&before);
}
