//! Files that make a tune persist.

use std::fs;

use serde_json::{Value, json};

use super::scene::{TuneTestLab, text};
use crate::schema::conforms;
use crate::support::{is_program_of_root, read_document};

#[test]
fn persist_writes_settings_for_reapply_and_unpersist_removes_them() {
    let Some(scene) = TuneTestLab::up().filter(|_| is_program_of_root()) else { return };
    // A queue that already has its target value has to persist, too.
    let mut plan = scene.plan();
    let current = scene.shell("cat /sys/class/net/eth0/queues/rx-1/rps_cpus");
    let queue = json!({ "queue_cpus": { "interface": "eth0", "direction": "receive", "queue": 1 } });
    plan["target"] = json!([{ "setting": queue, "value": current }]);
    // So does a queue whose change was made before the plan was applied.
    let current = scene.shell("cat /sys/class/net/eth0/queues/rx-2/rps_cpus");
    let changed = json!({ "queue_cpus": { "interface": "eth0", "direction": "receive", "queue": 2 } });
    let change = &scene.plan_of(&[(changed.clone(), "5", &current)])["changes"][0];
    plan["changes"].as_array_mut().expect("changes").push(change.clone());
    let file = scene.save("plan.json", &plan);
    fs::create_dir(scene.state()).expect("made");
    let image = scene.path("image");
    fs::create_dir(&image).expect("made");
    let root = ["--root", text(&image)];
    let (_, err) = scene.expect(2, "persist", &[root[0], root[1], "--yes"]);
    assert!(err.contains("no tune is in effect") && err.lines().count() == 1, "{err}");

    let before = scene.values();
    scene.apply(0, &file, &[]);
    // Without a terminal, persist requires --yes.
    let (_, err) = scene.expect(2, "persist", &root);
    assert!(err.contains("--yes"), "{err}");
    let (out, _) = scene.expect(0, "persist", &[root[0], root[1], "--yes"]);
    assert!(out.contains("/etc/linerate/tune.json\n  {"), "{out}");
    let document = read_document(image.join("etc/linerate/tune.json"));
    conforms(&document, "linerate.persisted/1");
    let settings = document["settings"].as_array().expect("settings");
    let has = |expected: &Value| settings.iter().any(|entry| entry["setting"] == *expected);
    assert!(has(&queue) && has(&changed), "settings that already have their values: {document}");
    let (out, _) = scene.expect(0, "status", &[]);
    assert!(out.contains("persists"), "{out}");

    // As after a reboot: only the file is left.
    scene.undo(&before);
    let (out, _) = scene.expect(0, "status", &[]);
    assert!(out.contains("Files apply settings at boot: "), "{out}");
    let document = image.join("etc/linerate/tune.json");
    let (out, _) = scene.expect(0, "reapply", &["--file", text(&document)]);
    assert!(out.contains("eth0 rx-3/rps_cpus"), "{out}");
    assert_eq!(scene.shell("cat /sys/class/net/eth0/queues/rx-3/rps_cpus"), "3");
    scene.undo(&before);

    let (out, _) = scene.expect(0, "unpersist", &[]);
    assert!(out.contains("removed"), "{out}");
    let remaining: Vec<_> = fs::read_dir(&image).expect("listed").collect();
    assert!(remaining.is_empty(), "{remaining:?}");
    let (out, _) = scene.expect(0, "unpersist", &[]);
    assert_eq!(out, "Nothing was made to persist.\n");
}
