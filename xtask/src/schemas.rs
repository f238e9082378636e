//! `cargo xtask schemas`: a JSON Schema for each document, generated from the sources of the types
//! that are serialized.
//!
//! Types are found by name, first in the crate that uses them, so no compiler is required.

mod source;
mod types;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use serde_json::{Map, Value, json};

use source::SourceTypes;
use types::SchemaDefinitions;

/// Documents with an envelope that exist only as JSON. Others implement `CommandResult`.
const JSON_RESULTS: [(&str, &str); 6] = [
    ("linerate.clean/2", "CleanReport"),
    ("linerate.labs/2", "LabList"),
    ("linerate.report/2", "ReportIndex"),
    ("linerate.serve/2", "ServeSummary"),
    ("linerate.steps/2", "StepList"),
    ("linerate.top/2", "Snapshot"),
];

/// Documents without the envelope: files that linerate also reads, and logs with one event per
/// line.
const FILES: [(&str, &str); 5] = [
    ("linerate.capture/1", "CaptureInfo"),
    ("linerate.load-stream/2", "LoadStreamStart"),
    ("linerate.persisted/1", "PersistedSettings"),
    ("linerate.plan/2", "TunePlan"),
    ("linerate.sink-stream/1", "StreamStart"),
];

pub(crate) fn run() -> Result<ExitCode> {
    let directory = directory();
    fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
    for (name, text) in texts()? {
        let file = directory.join(name);
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    println!("{} written", directory.display());
    Ok(ExitCode::SUCCESS)
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../share/schemas")
}

/// The schemas by file name.
fn texts() -> Result<BTreeMap<String, String>> {
    let sources = SourceTypes::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))?;
    let to_owned_pair = |(schema, name): &(&str, &str)| ((*schema).to_owned(), (*name).to_owned());
    let envelope_results =
        sources.command_results().into_iter().chain(JSON_RESULTS.iter().map(to_owned_pair));
    let documents = envelope_results.map(|(schema, name)| (schema, name, true));
    let files = FILES.iter().map(to_owned_pair).map(|(schema, name)| (schema, name, false));
    let mut texts = BTreeMap::new();
    for (schema, name, has_envelope) in documents.chain(files) {
        let document = document(&sources, &schema, &name, has_envelope).with_context(|| schema.clone())?;
        let file = schema.trim_start_matches("linerate.").split('/').next().unwrap_or_default().to_owned();
        texts.insert(format!("{file}.json"), serde_json::to_string_pretty(&document)? + "\n");
    }
    Ok(texts)
}

fn document(sources: &SourceTypes, schema: &str, name: &str, has_envelope: bool) -> Result<Value> {
    let mut definitions = SchemaDefinitions::new(sources);
    let mut body = if has_envelope {
        let mut envelope = definitions.expanded("Envelope")?;
        envelope["properties"]["result"] = definitions.reference(name)?;
        envelope
    } else {
        definitions.expanded(name)?
    };
    body["properties"]["schema"] = json!({"const": schema});
    if schema.contains("-stream/") {
        body["properties"]["event"] =
            json!({"const": "start", "description": "Later lines have other events, and no schema."});
    }
    let mut document = Map::new();
    document.insert("$schema".into(), json!("https://json-schema.org/draft/2020-12/schema"));
    document.insert("$id".into(), json!(format!("urn:{}", schema.replace(['.', '/'], ":"))));
    document.insert("title".into(), json!(schema));
    document.extend(body.as_object().cloned().unwrap_or_default());
    let definitions = definitions.finish();
    if !definitions.is_empty() {
        document.insert("$defs".into(), Value::Object(definitions));
    }
    Ok(Value::Object(document))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn schemas_in_share_match_the_types() {
        let texts = texts().expect("schemas");
        let entries = fs::read_dir(directory()).expect("share/schemas").map(|entry| entry.expect("an entry"));
        let files: BTreeSet<_> =
            entries.map(|entry| entry.file_name().into_string().expect("text")).collect();
        assert_eq!(files, texts.keys().cloned().collect(), "run `cargo xtask schemas`");
        // Descriptions are not compared, so that a doc comment can change alone.
        let parse = |text: &str| without_descriptions(serde_json::from_str(text).expect("JSON"));
        for (name, text) in texts {
            let file = fs::read_to_string(directory().join(&name)).expect("read");
            assert!(
                parse(&file) == parse(&text),
                "{name}: run `cargo xtask schemas` and commit share/schemas"
            );
        }
    }

    fn without_descriptions(mut schema: Value) -> Value {
        if let Some(object) = schema.as_object_mut() {
            object.retain(|key, value| key != "description" || !value.is_string());
        }
        match schema {
            Value::Object(object) => {
                object.into_iter().map(|(key, value)| (key, without_descriptions(value))).collect()
            }
            Value::Array(items) => items.into_iter().map(without_descriptions).collect(),
            other => other,
        }
    }
}
