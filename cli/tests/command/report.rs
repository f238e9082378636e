//! Results that other commands wrote, joined into one page.

use std::fs;

use serde_json::Value;

use crate::schema::conforms;
use crate::support::linerate;

fn path(directory: &tempfile::TempDir, name: &str) -> String {
    directory.path().join(name).display().to_string()
}

#[test]
fn results_are_joined_and_what_is_none_is_named() {
    let runs = tempfile::tempdir().expect("a directory");
    let (doctor, page) = (path(&runs, "doctor.json"), path(&runs, "report.html"));
    let looked = linerate(&["doctor", "--interface", "lo", "--json", &doctor]);
    assert!(looked.status.code().is_some_and(|code| code < 2), "{looked:?}");
    let newer = r#"{"schema": "linerate.doctor/999", "version": "99.0.0", "argv": []}"#;
    fs::write(path(&runs, "newer.json"), newer).expect("written");
    fs::write(path(&runs, "broken.json"), "{").expect("written");

    let joined = linerate(&["report", &runs.path().display().to_string(), "--json", "-", "--html", &page]);
    assert!(joined.status.success(), "{joined:?}");
    let document: Value = serde_json::from_slice(&joined.stdout).expect("JSON");
    conforms(&document, "linerate.report/2");
    let files = |list: &str| -> Vec<String> {
        let rows = document["result"][list].as_array().expect("a list");
        rows.iter().map(|row| row["file"].as_str().expect("a file").to_owned()).collect()
    };
    assert_eq!(files("results").len(), 1, "{document}");
    assert!(files("results")[0].ends_with("doctor.json"), "{document}");
    let unread = files("unread");
    assert_eq!(unread.len(), 2, "{document}");
    assert!(unread.iter().any(|file| file.ends_with("newer.json")), "{document}");

    let page = fs::read_to_string(page).expect("a page");
    assert!(page.contains("newer.json") && page.contains("<svg"), "{page}");
}

#[test]
fn without_a_result_there_is_no_report() {
    let empty = tempfile::tempdir().expect("a directory");
    for from in [empty.path().display().to_string(), path(&empty, "gone")] {
        let refused = linerate(&["report", &from]);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(said.lines().count() == 1 && said.contains(&from), "{said}");
    }
}
