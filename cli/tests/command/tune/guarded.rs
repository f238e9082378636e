//! Tunes that undo themselves.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use super::scene::{HostSettingValues, TuneTestLab};

fn await_condition(description: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < deadline, "{description} within 60 s");
        std::thread::yield_now();
    }
}

/// Text without the line breaks of a narrow terminal.
fn join_lines(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn await_restored(scene: &TuneTestLab, before: &HostSettingValues) {
    await_condition("no tune in effect", || {
        let (out, _) = scene.expect_any("status", &[]);
        out == "No tune is in effect.\n"
    });
    assert_eq!(*before, scene.values());
}

#[test]
fn unconfirmed_tunes_are_undone() {
    let Some(scene) = TuneTestLab::up("unconfirmed_tunes_are_undone") else { return };
    let file = scene.save("plan.json", &scene.plan());
    let before = scene.values();
    let (out, _) = scene.expect(0, "apply", &["--plan", &file, "--yes", "--until-confirmed", "3s"]);
    assert!(out.contains("tune confirm 1 --state-dir"), "{out}");
    assert_ne!(before, scene.values());
    // No other tune can start until tune 1 is confirmed or undone.
    let (_, err) = scene.expect(2, "apply", &["--plan", &file, "--yes"]);
    assert!(err.contains("tune 1") && err.lines().count() == 1, "{err}");
    await_restored(&scene, &before);
    let (out, _) = scene.expect(0, "history", &[]);
    assert!(join_lines(&out).contains("it was not confirmed"), "{out}");
    let (_, err) = scene.expect(2, "confirm", &[]);
    assert_eq!(err.lines().count(), 1, "{err}");

    let (out, _) = scene.expect(0, "apply", &["--plan", &file, "--yes", "--for-duration", "2s"]);
    assert!(out.contains("undone automatically in "), "{out}");
    await_restored(&scene, &before);
    let (out, _) = scene.expect(0, "history", &[]);
    assert!(join_lines(&out).contains("its time is over"), "{out}");
}

#[test]
fn confirmed_tunes_stay_in_effect() {
    let Some(scene) = TuneTestLab::up("confirmed_tunes_stay_in_effect") else { return };
    let file = scene.save("plan.json", &scene.plan());
    scene.expect(0, "apply", &["--plan", &file, "--yes", "--until-confirmed", "60s"]);
    let (out, _) = scene.expect(0, "status", &[]);
    assert!(out.contains("unless confirmed: linerate tune confirm 1"), "{out}");
    let (out, _) = scene.expect(0, "confirm", &[]);
    assert!(out.starts_with("Tune 1 is confirmed and stays."), "{out}");
    let (out, _) = scene.expect(0, "status", &[]);
    assert!(out.contains("8 settings in effect") && !out.contains("undone automatically"), "{out}");
}

/// Starts to apply and returns after four of the eight changes.
fn apply_half(scene: &TuneTestLab, file: &str, more: &[&str]) -> Child {
    let mut arguments = vec!["--plan", file, "--yes"];
    arguments.extend(more);
    let mut command = scene.tune("apply", &arguments);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("starts");
    let errors = std::io::BufReader::new(child.stderr.take().expect("piped"));
    let mut lines = std::io::BufRead::lines(errors).map_while(Result::ok);
    assert!(lines.any(|line| line.starts_with("  4/")), "it ended before the fourth change");
    child
}

#[test]
fn killed_apply_is_undone_by_its_guard_or_can_be_resumed() {
    let test = "killed_apply_is_undone_by_its_guard_or_can_be_resumed";
    let Some(scene) = TuneTestLab::up(test) else { return };
    let file = scene.save("plan.json", &scene.plan());
    let before = scene.values();
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
        let (_, err) = scene.expect(2, "apply", &["--plan", &file, "--yes"]);
        assert!(err.contains("apply --resume") && err.lines().count() == 1, "{err}");
        let (out, _) = scene.expect(0, "apply", &["--resume", "--yes"]);
        assert!(out.contains("had their value already"), "{out}");
        let (out, _) = scene.expect(0, "status", &[]);
        assert!(out.contains("made; 8 settings in effect"), "{out}");
    }
    scene.expect(0, "undo", &[]);
    assert_eq!(before, scene.values());
}

#[test]
fn an_interrupted_tune_stops_between_changes() {
    let Some(scene) = TuneTestLab::up("an_interrupted_tune_stops_between_changes") else { return };
    let file = scene.save("plan.json", &scene.plan());
    let before = scene.values();
    let mut child = apply_half(&scene, &file, &[]);
    let kill = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(kill.expect("kill starts").success());
    let status = child.wait().expect("reaped");
    let (out, _) = scene.expect_any("status", &[]);
    // The signal may come after the last change.
    match status.code() {
        Some(2) => assert!(out.contains("stopped: it was interrupted"), "{out}"),
        Some(0) => assert!(out.contains("made; 8"), "{out}"),
        other => panic!("{other:?}: {out}"),
    }
    scene.expect(0, "undo", &[]);
    assert_eq!(before, scene.values());
}
