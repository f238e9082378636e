use std::fs;

use super::*;
use crate::command::report::reading;
use crate::render::style::TextStyle;
use crate::render::{cost_fixtures, result_fixtures};
use crate::view::flame;

fn join_fixtures() -> JoinedResults {
    let directory = tempfile::tempdir().expect("a directory");
    let write = |name: &str, text: String| fs::write(directory.path().join(name), text).expect("written");
    write("b.json", serde_json::to_string(&cost_fixtures::envelope()).expect("JSON"));
    write("a.json", serde_json::to_string(&flame::tests::envelope()).expect("JSON"));
    write("c.json", serde_json::to_string(&result_fixtures::ladder_run()).expect("JSON"));
    write("d.json", "{\"schema\": \"linerate.labs/1\"}".to_owned());
    write("e.txt", "no result".to_owned());
    let mut results = join(reading::read(&[directory.path().to_owned()]).expect("read")).expect("joined");
    let prefix = format!("{}/", directory.path().display());
    for file in results.members.iter_mut().map(|member| &mut member.file) {
        *file = file.replace(&prefix, "");
    }
    for file in results.unread.iter_mut().map(|unread| &mut unread.file) {
        *file = file.replace(&prefix, "");
    }
    results
}

#[test]
fn results_are_ordered_by_kind_instead_of_file_name() {
    let results = join_fixtures();
    let files: Vec<&str> = results.members.iter().map(|member| member.file.as_str()).collect();
    assert_eq!(files, ["c.json", "b.json", "a.json"]);
    assert_eq!(results.unread.len(), 1);
}

#[test]
fn tune_changes_and_undos_are_ordered_by_time() {
    let directory = tempfile::tempdir().expect("a directory");
    let write = |name: &str, schema: &str, time: Option<u64>, more: &str| {
        let time = time.map_or("null".to_owned(), |time| time.to_string());
        let text = format!(
            "{{\"schema\": \"{schema}\", \"version\": \"0.0.0\", \"argv\": [], \"host\": {{}}, \"warnings\": [], \
             \"started_unix_seconds\": {time}, \"result\": {{\"tune\": 1, {more}}}}}"
        );
        fs::write(directory.path().join(name), text).expect("written");
    };
    let applied = "\"goal\": \"g\", \"until\": null, \"changes\": [], \"broke_off\": null, \"findings\": []";
    let undone = "\"why\": \"asked\", \"earlier_boot\": false, \"settings\": [], \"damaged_lines\": []";
    write("a.json", "linerate.tune-apply/2", Some(1_700_000_030), applied);
    write("b.json", "linerate.tune-undo/2", Some(1_700_000_020), undone);
    write("c.json", "linerate.tune-apply/2", Some(1_700_000_010), applied);
    write("d.json", "linerate.tune-undo/2", None, undone);
    let results = join(reading::read(&[directory.path().to_owned()]).expect("read")).expect("joined");
    let files: Vec<&str> = results.members.iter().map(|member| file_name(&member.file)).collect();
    assert_eq!(files, ["d.json", "c.json", "b.json", "a.json"]);
    assert_eq!(results.members[3].document.origin.started_unix_seconds, Some(1_700_000_030));
}

#[test]
fn text_has_a_row_per_result_and_the_unread_files() {
    let text = text(&join_fixtures(), TextStyle { width: 120, colour: false });
    insta::assert_snapshot!(text.replace(env!("CARGO_PKG_VERSION"), "VERSION"));
}

#[test]
fn the_json_index_lists_results_and_unread_files() {
    let document = serde_json::to_value(join_fixtures().index()).expect("JSON");
    assert_eq!(document["results"][0]["schema"], "linerate.ladder/2");
    assert_eq!(document["unread"][0]["file"], "d.json");
    assert!(document["path_from"].is_null());
    assert!(!document.to_string().contains('\u{a0}'), "{document}");
}

#[test]
fn a_page_without_a_path_drawing_has_a_note_and_all_anchors() {
    let page = page(&join_fixtures(), &["linerate".to_owned()]).expect("a page");
    assert!(page.contains("No result here has a picture of it"));
    for id in ["path", "summary", "result-1", "result-2", "result-3", "unread"] {
        assert!(page.contains(&format!("href=\"#{id}\"")) && page.contains(&format!("id=\"{id}\"")), "{id}");
    }
}
