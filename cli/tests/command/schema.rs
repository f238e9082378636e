//! What docs/schema.md promises of the documents, read from it, so that no promise is left unchecked.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

const DOCUMENTED: &str = include_str!("../../../docs/schema.md");

/// The keys that are promised of a document, and of the things in its lists: `A finding:` is of those in `findings`.
#[derive(Debug, Default)]
struct Promise {
    keys: Vec<String>,
    things: Vec<(String, Vec<String>)>,
}

/// Fails unless `document` is of `schema`, and has all keys that docs/schema.md has in the tables of it.
pub(crate) fn conforms(document: &Value, schema: &str) {
    assert_eq!(document["schema"], schema, "{document}");
    let promise = Promise::of(schema).unwrap_or_else(|| panic!("docs/schema.md has no {schema}"));
    has(document, &promise.keys, schema);
    for (list, keys) in &promise.things {
        for thing in document[list].as_array().map_or(&[][..], Vec::as_slice) {
            has(thing, keys, &format!("{schema}, {list}"));
        }
    }
}

fn has(value: &Value, keys: &[String], what: &str) {
    for key in keys {
        assert!(value.get(key).is_some(), "{what}: docs/schema.md promises '{key}', which is not in {value}");
    }
}

/// The schemas that sections are of.
fn schemas() -> BTreeSet<&'static str> {
    let headings = DOCUMENTED.lines().filter(|line| line.starts_with("## `linerate."));
    headings.flat_map(named).collect()
}

/// The schemas that a heading names.
fn named(heading: &'static str) -> impl Iterator<Item = &'static str> {
    let words = heading.split('`').filter(|word| word.starts_with("linerate.") && word.contains('/'));
    words.filter(|word| !word.contains(' '))
}

impl Promise {
    fn of(schema: &str) -> Option<Self> {
        let mut lines = DOCUMENTED
            .lines()
            .skip_while(|line| !(line.starts_with("## ") && named(line).any(|name| name == schema)));
        lines.next()?;
        let mut promise = Self::default();
        let mut thing: Option<String> = None;
        for line in lines.take_while(|line| !line.starts_with("## ")) {
            if let Some(name) = thing_of(line) {
                thing = Some(format!("{name}s"));
            }
            let Some(cell) = line.strip_prefix("| `").and_then(|row| row.split(" | ").next()) else {
                continue;
            };
            let keys = cell.split('`').filter(|word| !word.starts_with([',', ' ']) && !word.is_empty());
            let keys = keys.map(|key| key.trim_end_matches("[]").to_owned());
            match &thing {
                None => promise.keys.extend(keys),
                Some(list) => match promise.things.iter_mut().find(|(name, _)| name == list) {
                    Some((_, known)) => known.extend(keys),
                    None => promise.things.push((list.clone(), keys.collect())),
                },
            }
        }
        Some(promise)
    }
}

/// The `rung` of a line that is `A rung:`.
fn thing_of(line: &str) -> Option<&str> {
    line.strip_prefix("A ")?.strip_suffix(':').filter(|name| !name.contains(' '))
}

#[test]
fn promises_are_read_as_they_are_written() {
    let promise = Promise::of("linerate.ladder/1").expect("a section");
    for key in ["schema", "argv", "rungs", "warnings", "settings"] {
        assert!(promise.keys.iter().any(|promised| promised == key), "{key}: {promise:?}");
    }
    let (list, keys) = &promise.things[0];
    assert!(list == "rungs" && keys.iter().any(|key| key == "loss_ratio"), "{promise:?}");
    assert!(schemas().len() > 25, "{:?}", schemas());
}

/// A document whose keys nobody compares with the documentation is a promise without a check.
#[test]
fn every_schema_is_checked_by_a_test() {
    let mut sources = String::new();
    read_sources(Path::new("tests/command"), &mut sources);
    let unchecked: Vec<_> =
        schemas().into_iter().filter(|schema| !sources.contains(&format!(", \"{schema}\");"))).collect();
    assert!(unchecked.is_empty(), "no test calls schema::conforms(.., \"..\") for {unchecked:?}");
    for schema in schemas() {
        let promise = Promise::of(schema).expect("a section");
        assert!(
            promise.keys.iter().any(|key| key == "schema"),
            "{schema}: docs/schema.md has no table of its keys"
        );
    }
}

fn read_sources(directory: &Path, sources: &mut String) {
    for entry in fs::read_dir(directory).expect("the sources are here").map(|entry| entry.expect("an entry"))
    {
        let path = entry.path();
        if path.is_dir() {
            read_sources(&path, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") && !path.ends_with("schema.rs")
        {
            sources.push_str(&fs::read_to_string(&path).expect("read"));
        }
    }
}
