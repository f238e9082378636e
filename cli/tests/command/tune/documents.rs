//! The documents of a tune, from its plan to its history, match their schemas.

use std::fs;

use serde_json::{Value, json};

use super::scene::{TuneTestLab, text};
use crate::schema::conforms;
use crate::support::{document_of, is_program_of_root};

#[test]
fn json_of_each_tune_verb_matches_its_schema() {
    let Some(scene) = TuneTestLab::up().filter(|_| is_program_of_root()) else { return };
    let document = |verb: &str, arguments: &[&str]| {
        document_of(&scene.run(verb, &[arguments, &["--json", "-"]].concat()))
    };
    conforms(&document("plan", &["--interface", "eth0"]), "linerate.plan/2");
    // A plan without changes makes no tune.
    let file = scene.save("empty.json", scene.plan_of(&[]));
    let unchanged = document("apply", &["--plan", &file, "--yes"]);
    conforms(&unchanged, "linerate.tune-apply/2");
    assert_eq!((&unchanged["result"]["tune"], &unchanged["result"]["changes"]), (&Value::Null, &json!([])));
    let file = scene.save("plan.json", scene.plan());
    conforms(&document("apply", &["--plan", &file, "--yes"]), "linerate.tune-apply/2");
    conforms(&document("status", &[]), "linerate.tune-status/2");
    let image = scene.path("image");
    fs::create_dir(&image).expect("made");
    conforms(&document("persist", &["--root", text(&image), "--yes"]), "linerate.tune-persist/2");
    conforms(&document("unpersist", &[]), "linerate.tune-unpersist/2");
    conforms(&document("undo", &[]), "linerate.tune-undo/2");
    conforms(&document("history", &[]), "linerate.tune-history/2");
}
