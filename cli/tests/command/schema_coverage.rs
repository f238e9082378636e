//! Each schema in share/schemas is used by a test and linked from docs/schema.md.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::schema::directory;

#[test]
fn every_schema_is_used_by_a_test_and_linked_from_the_docs() {
    let mut sources = String::new();
    read_sources(Path::new("tests/command"), &mut sources);
    let documented = include_str!("../../../docs/schema.md");
    let mut count = 0;
    for entry in fs::read_dir(directory()).expect("share/schemas").map(|entry| entry.expect("an entry")) {
        let schema: Value =
            serde_json::from_str(&fs::read_to_string(entry.path()).expect("read")).expect("JSON");
        let name = schema["title"].as_str().expect("a title");
        assert!(sources.contains(&format!(", \"{name}\")")), "no test checks a document against \"{name}\"");
        let file = entry.file_name().into_string().expect("text");
        let link = format!("(../share/schemas/{file})");
        assert!(documented.contains(name) && documented.contains(&link), "docs/schema.md: no {name}");
        count += 1;
    }
    assert!(count > 25, "{count}");
}

fn read_sources(directory: &Path, sources: &mut String) {
    for entry in fs::read_dir(directory).expect("the sources are here").map(|entry| entry.expect("an entry"))
    {
        let path = entry.path();
        if path.is_dir() {
            read_sources(&path, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            sources.push_str(&fs::read_to_string(&path).expect("read"));
        }
    }
}
