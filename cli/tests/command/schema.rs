//! What docs/schema.md promises of the documents, read from it. xtask holds its own documents against it, too.

use serde_json::Value;

pub(crate) const DOCUMENTED: &str = include_str!("../../../docs/schema.md");

/// The keys that are promised of a document, and of the things in its lists: `A finding:` is of those in `findings`.
#[derive(Debug, Default)]
pub(crate) struct DocumentedKeys {
    pub(crate) keys: Vec<String>,
    pub(crate) things: Vec<(String, Vec<String>)>,
}

/// Fails unless `document` is of `schema`, and has all keys that docs/schema.md has in the tables of it.
pub(crate) fn conforms(document: &Value, schema: &str) {
    assert_eq!(document["schema"], schema, "{document}");
    let promise = DocumentedKeys::of(schema).unwrap_or_else(|| panic!("docs/schema.md has no {schema}"));
    // Keys of a document with an envelope are those of its result.
    let result = match document.get("result") {
        Some(result) => {
            let envelope =
                DocumentedKeys::of("linerate.NAME/VERSION").expect("docs/schema.md has the envelope");
            has(document, &envelope.keys, schema);
            result
        }
        None => document,
    };
    has(result, &promise.keys, schema);
    for (list, keys) in &promise.things {
        for thing in result[list].as_array().map_or(&[][..], Vec::as_slice) {
            has(thing, keys, &format!("{schema}, {list}"));
        }
    }
}

fn has(value: &Value, keys: &[String], what: &str) {
    for key in keys {
        assert!(value.get(key).is_some(), "{what}: docs/schema.md promises '{key}', which is not in {value}");
    }
}

/// The schemas that a heading names.
pub(crate) fn named(heading: &'static str) -> impl Iterator<Item = &'static str> {
    let words = heading.split('`').filter(|word| word.starts_with("linerate.") && word.contains('/'));
    words.filter(|word| !word.contains(' '))
}

impl DocumentedKeys {
    /// What is promised of a schema; none where nothing is.
    pub(crate) fn of(schema: &str) -> Option<Self> {
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

/// The `step` of a line that is `A step:`.
fn thing_of(line: &str) -> Option<&str> {
    line.strip_prefix("A ")?.strip_suffix(':').filter(|name| !name.contains(' '))
}
