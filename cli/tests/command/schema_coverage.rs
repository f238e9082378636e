//! That every document that docs/schema.md tells of is held against it by a test.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::schema::{DOCUMENTED, DocumentedKeys, named};

/// The schemas that sections are of.
fn schemas() -> BTreeSet<&'static str> {
    let headings = DOCUMENTED.lines().filter(|line| line.starts_with("## `linerate."));
    headings.flat_map(named).filter(|name| *name != "linerate.NAME/VERSION").collect()
}

#[test]
fn promises_are_read_as_they_are_written() {
    let promise = DocumentedKeys::of("linerate.ladder/2").expect("a section");
    for key in ["config", "testbed", "steps", "settings"] {
        assert!(promise.keys.iter().any(|promised| promised == key), "{key}: {promise:?}");
    }
    let (list, keys) = &promise.things[0];
    assert!(list == "steps" && keys.iter().any(|key| key == "loss_ratio"), "{promise:?}");
    assert!(schemas().len() > 25, "{:?}", schemas());
}

/// A document whose keys nobody compares with the documentation is a promise without a check.
#[test]
fn every_schema_is_checked_by_a_test() {
    let mut sources = String::new();
    for directory in ["tests/command", "../xtask/src"] {
        read_sources(Path::new(directory), &mut sources);
    }
    let unchecked: Vec<_> =
        schemas().into_iter().filter(|schema| !sources.contains(&format!(", \"{schema}\");"))).collect();
    assert!(unchecked.is_empty(), "no test calls schema::conforms(.., \"..\") for {unchecked:?}");
    for schema in schemas() {
        let promise = DocumentedKeys::of(schema).expect("a section");
        assert!(!promise.keys.is_empty(), "{schema}: docs/schema.md has no table of its keys");
    }
}

fn read_sources(directory: &Path, sources: &mut String) {
    for entry in fs::read_dir(directory).expect("the sources are here").map(|entry| entry.expect("an entry"))
    {
        let path = entry.path();
        if path.is_dir() {
            read_sources(&path, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs")
            && !path.ends_with("schema_coverage.rs")
        {
            sources.push_str(&fs::read_to_string(&path).expect("read"));
        }
    }
}
