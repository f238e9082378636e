//! strace injects errors at every relevant system call. Afterwards undo restores all settings.

use std::fs;
use std::process::Output;

use serde_json::Value;

use super::scene::{HostSettingValues, TuneTestLab, text};
use crate::support::{output_text, skip};

/// A lab, a plan file with one change per kind of setting (file, sysctl, ioctl, program), and the
/// original values.
fn scene() -> Option<(TuneTestLab, String, HostSettingValues)> {
    let scene = TuneTestLab::up()?;
    if !scene.on_host("strace").arg("-V").output().is_ok_and(|output| output.status.success()) {
        skip("no strace");
        return None;
    }
    let mut plan = scene.plan();
    let changes = plan["changes"].as_array_mut().expect("changes");
    let kind = |change: &Value| change["setting"].as_object().and_then(|kind| kind.keys().next().cloned());
    changes.dedup_by_key(|change| kind(change));
    assert!(changes.len() >= 4, "{changes:?}");
    let file = scene.save("plan.json", &plan);
    let before = scene.values();
    Some((scene, file, before))
}

struct FaultRun {
    /// The system call, as strace prints it.
    place: String,
    output: Output,
}

/// Applies a plan and injects `error` into the `number`th `call` in any of its processes. For
/// `write`, only calls of `tune` itself count. Returns `None` if there are fewer calls.
fn apply_with_fault(
    scene: &TuneTestLab,
    call: &str,
    error: &str,
    number: u32,
    file: &str,
) -> Option<FaultRun> {
    let trace = scene.path("trace");
    let mut command = scene.on_host("strace");
    // Write faults must not reach nft, which does not check its writes and would list an incomplete
    // ruleset.
    command.args((call != "write").then_some("-f"));
    command.args(["-qq", "-e", &format!("trace={call}"), "-o", text(&trace)]);
    command.args(["-e", &format!("inject={call}:error={error}:when={number}")]);
    command.arg(crate::support::program()).args(["tune", "apply", "--state-dir"]).arg(scene.state());
    let output = command.args(["--plan", file, "--yes"]).output().expect("strace starts");
    let trace_text = fs::read_to_string(trace).expect("a trace");
    let place = trace_text.lines().find(|line| line.contains("INJECTED"))?.to_owned();
    Some(FaultRun { place, output })
}

/// Undoes any tune in effect, and checks that all settings have their original values.
fn undo_and_check(scene: &TuneTestLab, before: &HostSettingValues, place: &str) {
    let (status, _) = scene.expect_any("status", &[]);
    let output = scene.run("undo", &[]);
    let (out, err) = output_text(&output);
    let nothing = err.contains("nothing to undo");
    assert!(output.status.success() || nothing, "{place}: {status}{out}{err}");
    assert_eq!(*before, scene.values(), "{place}: {status}{out}{err}");
    let (after, _) = scene.expect_any("status", &[]);
    assert!(nothing || after == "No tune is in effect.\n", "{place}: {after}");
}

#[test]
fn undo_restores_settings_after_an_error_in_any_write() {
    let Some((scene, file, before)) = scene() else { return };
    for (call, error) in [
        ("pwrite64", "ENOSPC"),
        ("fdatasync", "EIO"),
        ("write", "EPERM"),
        ("write", "EBUSY"),
        ("ioctl", "EINVAL"),
        ("sendmsg", "EPERM"),
    ] {
        let injects_fault = |number| {
            let faulty_run = apply_with_fault(&scene, call, error, number, &file);
            let place = format!("{error} from {call} {number}");
            if let Some(FaultRun { place: call, output }) = &faulty_run {
                let (out, err) = output_text(output);
                // The Rust standard library assumes that it can make a pipe non-blocking.
                let is_ours = !call.contains("FIONBIO");
                let ends_well = matches!(output.status.code(), Some(0..=2)) && !err.contains("panicked");
                assert!(ends_well || !is_ours, "{place}: {call}: {out}{err}");
                // strace prints the description of the error. A setting that was not written is
                // reported with its present value.
                let (_, description) =
                    call.trim_end_matches(") (INJECTED)").rsplit_once('(').expect("an error");
                let words = format!("{out}{err}").split_whitespace().collect::<Vec<_>>().join(" ");
                let is_reported = words.contains(description) || words.contains("it still reads");
                assert!(is_reported || output.status.success(), "{place}: {call}: {out}{err}");
            }
            undo_and_check(&scene, &before, &place);
            faulty_run.is_some()
        };
        (1..200).find(|number| !injects_fault(*number)).expect("an end");
    }
}
