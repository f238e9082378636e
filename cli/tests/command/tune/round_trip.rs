//! Applied changes are in effect, and undo restores the original values.

use super::scene::TuneTestLab;
use crate::support::{checked_document, document_of};

#[test]
fn applied_changes_are_in_effect_until_undo() {
    let Some(scene) = TuneTestLab::up() else { return };
    let plan = scene.plan();
    let file = scene.save("plan.json", &plan);
    let before = scene.values();

    let (out, err) = scene.apply(0, &file, &[]);
    assert!(out.contains("Tune 1: 8 changes made and read back."), "{out}");
    assert!(err.contains("  1/8  eth0 rx-0/rps_cpus: none -> 1 ... done\n"), "{err}");
    assert_eq!(scene.shell("cat /sys/class/net/eth0/queues/rx-3/rps_cpus"), "3");
    assert!(scene.shell("nft list table inet linerate_test").contains("dport 53"));

    let (out, _) = scene.expect(0, "status", &[]);
    assert!(out.contains("made; 8 settings in effect\n"), "{out}");
    let output = scene.run("status", &["--json", "-"]);
    let status = checked_document(&output, 0, "linerate.tune-status/2");
    let changes = plan["changes"].as_array().expect("changes").len();
    let settings = status["result"]["tunes"][0]["settings"].as_array().expect("settings").clone();
    assert_eq!(settings.len(), changes);
    assert!(settings.iter().all(|setting| setting["state"] == "in-effect"), "{settings:?}");

    // The same plan again finds all settings at their target values.
    let (out, _) = scene.apply(0, &file, &[]);
    assert!(out.contains("0 changes made and read back, 8 had their value already"), "{out}");

    let (out, _) = scene.expect(0, "undo", &["--full"]);
    assert!(out.contains("Tune 1 undone: 8 settings as before."), "{out}");
    scene.assert_undone(&before);
    let (out, _) = scene.expect(0, "history", &[]);
    let (first, second) = out.split_once("\n2 ").expect("two tunes");
    assert!(first.contains("8 settings written; undone"), "{out}");
    assert!(second.contains("0 settings written"), "{out}");
    let output = scene.run("history", &["--json", "-"]);
    assert_eq!(document_of(&output)["result"]["tunes"].as_array().map(Vec::len), Some(2));
    let (_, err) = scene.expect(2, "undo", &[]);
    assert_eq!(err, "linerate: nothing to undo: no tune is in effect\n");
}

#[test]
fn apply_and_undo_finish_with_a_closed_output_pipe() {
    let Some((scene, file, _)) = TuneTestLab::up_with_plan() else { return };
    for (verb, arguments) in [("apply", ["--plan", file.as_str(), "--yes"].as_slice()), ("undo", &[])] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let status = scene.tune(verb, arguments).stdout(writer).status().expect("it starts");
        assert_eq!(status.code(), Some(0), "{verb}");
        let (out, _) = scene.expect(0, "status", &[]);
        let expected = if verb == "apply" { "8 settings in effect" } else { "No tune is in effect" };
        assert!(out.contains(expected), "{verb}: {out}");
    }
}

#[test]
fn undo_keeps_and_names_settings_changed_by_others() {
    let Some((scene, file, before)) = TuneTestLab::up_with_plan() else { return };
    scene.apply(0, &file, &[]);
    scene.shell("echo 1 > /sys/class/net/eth0/queues/rx-3/rps_cpus");
    let (out, _) = scene.expect(1, "status", &[]);
    assert!(out.contains("eth0 rx-3/rps_cpus: 0; the tune set 0-1, originally none"), "{out}");
    let (out, _) = scene.expect(1, "undo", &["1"]);
    assert!(out.contains("eth0 rx-3/rps_cpus: 0, set by others since; before the tune it was none"), "{out}");
    assert!(out.contains("7 settings as before; 1 changed by others since, and left."), "{out}");
    let (out, _) = scene.expect(0, "history", &[]);
    let words = out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("8 settings written; undone") && words.ends_with("; 1 left"), "{out}");
    let mut after = scene.values();
    let path = "/sys/class/net/eth0/queues/rx-3/rps_cpus";
    assert_eq!(after.insert(path.into(), before[path].clone()).as_deref(), Some("1"));
    assert_eq!(before, after);
}
