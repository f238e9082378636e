//! Plans that do not fit the host, and damaged journals.

use std::fs;
use std::io::Write;

use serde_json::json;

use super::scene::TuneTestLab;

/// `tune apply` has to refuse the plan in one line with these words, and to change nothing.
fn assert_refused(scene: &TuneTestLab, plan: &serde_json::Value, words: &str) {
    let before = scene.values();
    let file = scene.save("plan.json", plan);
    let (out, err) = scene.apply(2, &file, &[]);
    assert!(out.is_empty() && err.lines().count() == 1, "{out}{err}");
    assert!(err.contains(words), "no '{words}' in {err}");
    scene.assert_undone(&before);
}

#[test]
fn apply_refuses_plans_with_other_interfaces_or_values_before_any_change() {
    let Some(scene) = TuneTestLab::up() else { return };
    let mut plan = scene.plan();
    plan["devices"][0]["index"] = json!(4711);
    assert_refused(&scene, &plan, "eth0 is another device now");
    let mut plan = scene.plan();
    plan["devices"] = json!([]);
    assert_refused(&scene, &plan, "not among the plan's devices");
    let with = |index: usize, key: &str, value: &str| {
        let mut plan = scene.plan();
        plan["changes"][index][key] = json!(value);
        plan
    };
    assert_refused(&scene, &with(3, "to", "1,00000000,00000000"), "not online");
    assert_refused(&scene, &with(3, "to", "many"), "'many'");
    assert_refused(&scene, &with(4, "from", "77"), "make a new plan");
    let rings = json!({ "rings": { "interface": "eth0" } });
    let mut plan = scene.plan();
    let extra = scene.plan_of(&[(rings, "rx 256 tx 256", "rx 512 tx 512")])["changes"][0].clone();
    plan["changes"].as_array_mut().expect("changes").push(extra);
    assert_refused(&scene, &plan, "rings of eth0");

    let file = scene.save("plan.json", scene.plan());
    scene.shell("ip link set eth0 down; ip link set eth0 name lan0; ip link set lan0 up");
    let (_, err) = scene.apply(2, &file, &[]);
    assert_eq!(err, "linerate: eth0 is called lan0 now: make a new plan\n");
}

#[test]
fn apply_stops_at_a_refused_change_and_resume_makes_the_others() {
    let Some(scene) = TuneTestLab::up() else { return };
    // The kernel rejects this value, so the error comes from the write.
    let mut plan = scene.plan();
    let name = json!({ "sysctl": "net.ipv4.conf.eth0.rp_filter" });
    let position =
        plan["changes"].as_array().and_then(|all| all.iter().position(|change| change["setting"] == name));
    let position = position.expect("the sysctl");
    plan["changes"][position]["to"] = json!("nonsense");
    let file = scene.save("plan.json", &plan);
    let before = scene.values();
    let (out, err) = scene.apply(2, &file, &["--for-duration", "1h"]);
    assert!(err.contains("rp_filter: 0 -> nonsense ... refused: cannot write 'nonsense' to "), "{err}");
    assert!(out.contains(&format!("stopped with {position} changes made")), "{out}");
    assert!(out.contains("to finish it") && out.contains("apply --resume"), "{out}");
    let (out, _) = scene.expect(1, "status", &[]);
    assert!(out.contains("not made ") && out.contains("net.ipv4.conf.eth0.rp_filter"), "{out}");
    let (_, err) = scene.expect(2, "apply", &["--resume", "--keep-if-better", "--yes"]);
    assert!(err.contains("nothing was changed: the service cannot be measured"), "{err}");
    // Resuming with --keep-going makes the other changes.
    let (out, _) = scene.expect(2, "apply", &["--resume", "--keep-going", "--yes"]);
    assert!(
        out.contains("stopped with 3 changes made, 4 had their value already: 1 change refused"),
        "{out}"
    );
    assert!(out.contains("undone automatically in "), "{out}");
    scene.undo(&before);

    // Without a successful change there is nothing to undo.
    let plan = scene.plan_of(&[(json!({ "sysctl": "net.ipv4.conf.eth0.rp_filter" }), "0", "nonsense")]);
    let file = scene.save("plan.json", &plan);
    let (out, _) = scene.apply(2, &file, &["--for-duration", "10m"]);
    assert!(out.contains("stopped with 0 changes made") && out.contains("apply --resume"), "{out}");
    assert!(!out.contains("to undo it") && !out.contains("undone automatically"), "{out}");
    let (_, err) = scene.expect(2, "undo", &[]);
    assert_eq!(err, "linerate: nothing to undo: no tune is in effect\n");
}

/// A full pipe: a write blocks until the pipe is read.
fn full_pipe() -> (std::io::PipeReader, std::io::PipeWriter) {
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    rustix::io::ioctl_fionbio(&writer, true).expect("set");
    while writer.write(&[b'.'; 4096]).is_ok() {}
    while writer.write(b".").is_ok() {}
    rustix::io::ioctl_fionbio(&writer, false).expect("set");
    (reader, writer)
}

#[test]
fn only_one_process_changes_settings_at_a_time() {
    let Some((scene, file, before)) = TuneTestLab::up_with_plan() else { return };
    // The tune begins, but blocks on its output before it makes its first change.
    let (mut reader, writer) = full_pipe();
    let mut command = scene.tune("apply", &["--plan", &file, "--yes"]);
    let mut first = command.stdout(std::process::Stdio::null()).stderr(writer).spawn().expect("starts");
    drop(command);
    let has_begun =
        || fs::read_to_string(scene.state().join("journal")).is_ok_and(|text| text.contains("begun"));
    while !has_begun() {
        assert!(first.try_wait().expect("a child").is_none(), "apply ended");
        std::thread::yield_now();
    }
    for verb in ["apply", "undo", "confirm", "unpersist"] {
        let arguments: &[&str] = if verb == "apply" { &["--plan", &file, "--yes"] } else { &[] };
        let (out, err) = scene.expect(2, verb, arguments);
        let words = format!("changing settings already (process {})", first.id());
        assert!(out.is_empty() && err.contains(&words) && err.lines().count() == 1, "{verb}: {out}{err}");
    }
    let (out, _) = scene.expect(0, "status", &[]);
    assert!(out.contains("in progress now"), "{out}");
    assert_eq!(before, scene.values());
    let mut progress = String::new();
    std::io::Read::read_to_string(&mut reader, &mut progress).expect("text");
    assert!(progress.contains("8/8"), "{progress}");
    assert!(first.wait().expect("reaped").success());
    scene.undo(&before);
}

#[test]
fn undo_restores_settings_from_a_torn_or_damaged_journal() {
    let Some((scene, file, before)) = TuneTestLab::up_with_plan() else { return };
    let journal = scene.state().join("journal");
    scene.apply(0, &file, &[]);
    let mut open = fs::OpenOptions::new().append(true).open(&journal).expect("a journal");
    open.write_all(br#"{"sequence":99,"uni"#).expect("written");
    drop(open);
    let (out, _) = scene.expect(1, "status", &[]);
    assert!(out.contains("torn") && out.contains("8 settings in effect"), "{out}");
    scene.undo(&before);
    scene.expect(0, "status", &[]);

    scene.apply(0, &file, &[]);
    let text = fs::read_to_string(&journal).expect("read");
    // The intent of the tune's third change. Version 0.1 could not restore the setting without it.
    let lines: Vec<&str> = text.lines().collect();
    let intents = lines.iter().enumerate().filter(|(_, line)| line.contains("\"intent\""));
    let (number, line) = intents.map(|(at, line)| (at + 1, *line)).nth(8 + 2).expect("eight of each tune");
    fs::write(&journal, text.replacen(line, &line.replacen("intent", "jntent", 1), 1)).expect("written");
    let damage = format!("journal line {number} is damaged");
    let (out, _) = scene.expect(1, "status", &[]);
    assert!(out.contains(&damage) && out.contains("8 settings in effect"), "{out}");
    let (out, err) = scene.expect(1, "undo", &[]);
    assert!(err.contains(&damage) && err.lines().count() == 1, "{err}");
    assert!(out.contains("8 settings as before"), "{out}");
    assert_eq!(before, scene.values());
    // The damage does not affect the next tune.
    scene.apply(0, &file, &[]);
    scene.undo(&before);
}

#[test]
fn missing_state_directory_is_an_error_and_is_not_created() {
    let Some(scene) = TuneTestLab::up() else { return };
    for verb in ["status", "undo", "history", "confirm", "persist", "unpersist"] {
        let arguments: &[&str] = if verb == "persist" { &["--yes"] } else { &[] };
        let (out, err) = scene.expect(2, verb, arguments);
        assert!(out.is_empty() && err.lines().count() == 1, "{verb}: {out}{err}");
        assert!(err.contains("there is no such directory") && err.contains("/state"), "{verb}: {err}");
        assert!(!scene.state().exists(), "{verb}");
    }
}

#[test]
fn undo_reports_settings_of_a_deleted_interface_as_gone() {
    let Some((scene, file, _)) = TuneTestLab::up_with_plan() else { return };
    scene.apply(0, &file, &[]);
    scene.shell("ip link del eth0");
    let (out, _) = scene.expect(1, "status", &[]);
    assert!(out.contains("gone"), "{out}");
    let (out, _) = scene.expect(1, "undo", &[]);
    assert!(out.contains("2 settings as before; 6 gone"), "{out}");
    assert_eq!(scene.expect(0, "status", &[]).0, "No tune is in effect.\n");
}
