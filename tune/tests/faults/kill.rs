//! Kills at every step, and the state that they leave.

use std::io::{BufRead, BufReader, Write};
use std::process::Command;
use std::time::Duration;

use linerate_host::SettingValue;
use linerate_lab::LabChild;
use linerate_tune::status::{SettingState, TuneState};

use crate::TrialResult;
use crate::scene::{Scene, changes};

/// Lets a role run for `steps` steps and kills it at the next one. Returns false if it ended
/// before.
fn kill_at(child: &mut LabChild, steps: usize) -> bool {
    let mut input = child.stdin.take().expect("piped");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    for _ in 0..steps {
        match lines.next() {
            Some(Ok(line)) if line == "step" => input.write_all(b"\n").expect("written"),
            _ => return false,
        }
    }
    let is_waiting = lines.next().is_some_and(|line| line.is_ok_and(|line| line == "step"));
    child.kill().expect("killed");
    is_waiting
}

/// Asserts that status lists every changed setting, and that undo restores all of them.
fn assert_undo_restores_all(scene: &Scene, before: &std::collections::BTreeMap<String, String>, at: &str) {
    let (status, now) = (scene.status(), scene.values());
    let settings: Vec<_> = status.tunes.iter().flat_map(|tune| &tune.settings).collect();
    for (name, value) in &now {
        let is_listed = settings.iter().any(|setting| setting.name == *name);
        assert!(
            is_listed || before.get(name) == Some(value),
            "{at}: {name} reads {value}, and status does not list it"
        );
    }
    for setting in &settings {
        let current = setting.now.as_ref().map(SettingValue::as_str);
        assert!(
            current.is_none() || current == now.get(&setting.name).map(String::as_str),
            "{at}: {setting:?}"
        );
        assert_ne!(setting.state, SettingState::Drifted, "{at}: {setting:?}");
    }
    if status.tunes.iter().any(|tune| tune.settings.iter().any(|setting| setting.from != setting.now)) {
        let report = scene.undo();
        assert!(!report.has_failures() && !report.has_skipped(), "{at}: {report:?}");
    }
    assert_eq!(scene.values(), *before, "{at}");
}

pub(crate) fn undo_restores_settings_after_a_kill_at_any_step_of_a_tune() -> TrialResult {
    kill_at_any_step("tune", &TuneState::Died, changes().len() * 4)
}

pub(crate) fn undo_restores_settings_after_a_kill_at_any_step_of_an_undo() -> TrialResult {
    kill_at_any_step("undo", &TuneState::UndoDied, changes().len() * 2)
}

/// Kills a role, which has more than `least` steps, at each of them. Each kill leaves this state.
fn kill_at_any_step(role: &str, state: &TuneState, least: usize) -> TrialResult {
    let scene = Scene::new()?;
    let before = scene.values();
    for step in 0.. {
        scene.delete_journal();
        if role == "undo" {
            kill_at(&mut scene.start(&[], &["tune", &scene.directory(), "stepping"]), 10_000);
            assert_ne!(scene.values(), before);
        }
        let is_killed = kill_at(&mut scene.start(&[], &[role, &scene.directory(), "stepping"]), step);
        if is_killed {
            assert!(scene.status().tunes.iter().all(|tune| tune.state == *state), "{role}: step {step}");
        }
        assert_undo_restores_all(&scene, &before, &format!("{role}: step {step}"));
        if !is_killed {
            assert!(step > least, "only {step} steps");
            println!("killed at {step} steps: {role}");
            break;
        }
    }
    Ok(())
}

/// Kills a role at its first, second, ... call of a system call, until it makes fewer. Returns the
/// number of kills.
fn kill_at_system_calls(
    scene: &Scene,
    role: &str,
    call: &str,
    before: &std::collections::BTreeMap<String, String>,
) -> usize {
    let run = |wrapper: &[&str], role: &str| {
        let mut child = scene.start(wrapper, &[role, &scene.directory(), "fast"]);
        drop(child.stdin.take());
        child.wait_at_most(Duration::from_secs(60)).expect("waited").expect("ended").success()
    };
    for count in 1.. {
        scene.delete_journal();
        if role == "undo" {
            assert!(run(&[], "tune"));
        }
        let inject = format!("inject={call}:signal=KILL:when={count}");
        let has_ended =
            run(&["strace", "-qq", "-o", "/dev/null", "-e", &format!("trace={call}"), "-e", &inject], role);
        assert_undo_restores_all(scene, before, &format!("{role}: {call} {count}"));
        if has_ended {
            return count - 1;
        }
    }
    unreachable!("the loop has no end")
}

fn has_strace() -> TrialResult {
    let is_installed = Command::new("strace").arg("-V").output().is_ok_and(|output| output.status.success());
    is_installed.then_some(()).ok_or_else(|| "strace is not installed".to_owned())
}

pub(crate) fn undo_restores_settings_after_a_kill_at_any_journal_system_call() -> TrialResult {
    let calls = ["openat", "pwrite64", "fdatasync", "fallocate", "fcntl", "fsync"];
    kill_at_any_call("tune", &calls, 50)
}

pub(crate) fn undo_can_be_repeated_after_a_kill_at_any_journal_system_call() -> TrialResult {
    // Without openat, most of whose calls read settings: the steps of an undo cover these. Each
    // record is written and synchronized: two per setting, and the first and last of the undo.
    kill_at_any_call("undo", &["pwrite64", "fdatasync", "fallocate", "fcntl", "fsync"], changes().len() * 2)
}

fn kill_at_any_call(role: &str, calls: &[&str], least: usize) -> TrialResult {
    has_strace()?;
    let scene = Scene::new()?;
    let before = scene.values();
    let kills: usize = calls.iter().map(|call| kill_at_system_calls(&scene, role, call, &before)).sum();
    assert!(kills > least, "{kills}");
    println!("killed at {kills} system calls: {role}");
    Ok(())
}
