//! Plans that are shown, saved and read back.

use std::process::Output;

use serde_json::{Value, json};

use super::scene::TuneTestLab;
use crate::support::{TestDirectory, checked_text, linerate, text_of};

/// An empty plan, for any host.
fn empty() -> Value {
    json!({
        "schema": "linerate.plan/2", "version": "0.1.0", "goal": "udp-server", "devices": [], "cpus": [],
        "layouts": [], "exclusions": [], "changes": [], "skipped": [],
    })
}

fn show(plan: &str) -> Output {
    let directory = TestDirectory::new();
    linerate(&["tune", "plan", "--plan", &directory.write("plan.json", plan)])
}

#[test]
fn invalid_plans_are_refused_in_one_line() {
    let with = |key: &str, value: Value| {
        let mut plan = empty();
        plan[key] = value;
        plan.to_string()
    };
    let change = json!({
        "setting": { "warp_factor": { "interface": "eth0" } }, "from": "1", "to": "9", "why": "", "findings": [],
        "effect": null, "source": null, "risk": null, "interrupts": "nothing", "claims": [],
    });
    for (plan, word) in [
        (String::new(), "EOF"),
        ("not JSON".to_owned(), "line 1"),
        (with("schema", json!("linerate.plan/99")), "linerate.plan/99"),
        (with("surprise", json!(1)), "surprise"),
        (with("changes", json!([change])), "warp_factor"),
        (with("cpus", json!(["all"])), "line 1"),
    ] {
        let output = show(&plan);
        let (out, err) = checked_text(&output, 2, &plan);
        assert!(out.is_empty() && err.lines().count() == 1, "{plan}: {out}{err}");
        assert!(err.contains(word) && err.contains("plan.json"), "{plan}: {err}");
    }
    let out = text_of(&show(&empty().to_string()));
    assert!(out.starts_with("Nothing to change on "), "{out}");
}

#[test]
fn plan_lists_settings_and_reasons_and_changes_nothing() {
    let Some((scene, file, before)) = TuneTestLab::up_with_plan() else { return };
    let (out, _) = scene.expect(0, "plan", &["--plan", &file]);
    for words in ["8 changes on", "rx-0 ", "rx-3 ", "rp_filter", "A test wants it."] {
        assert!(out.contains(words), "no '{words}' in {out}");
    }
    assert_eq!(before, scene.values());
    assert!(!scene.state().exists(), "showing a plan makes no journal");
}
