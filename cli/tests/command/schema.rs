//! Checks documents against their JSON Schemas in share/schemas. xtask does so for its own
//! documents.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

pub(crate) fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../share/schemas")
}

/// Panics unless `document` names `schema`, is valid, and has only keys that the schema describes.
pub(crate) fn conforms(document: &Value, schema: &str) {
    assert_eq!(document["schema"], schema, "{document}");
    let name = schema.trim_start_matches("linerate.").split('/').next().unwrap_or_default();
    let file = directory().join(format!("{name}.json"));
    let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let root: Value = serde_json::from_str(&text).expect("JSON");
    if let Err(why) = (SchemaCheck { root: &root }).value(&root, document, "") {
        panic!("{schema}: {why}\n{document}");
    }
}

/// The keywords that `cargo xtask schemas` writes.
const KEYWORDS: [&str; 17] = [
    "$schema",
    "$id",
    "$defs",
    "$ref",
    "title",
    "description",
    "type",
    "const",
    "enum",
    "anyOf",
    "minimum",
    "items",
    "prefixItems",
    "minItems",
    "properties",
    "required",
    "additionalProperties",
];

struct SchemaCheck<'a> {
    root: &'a Value,
}

impl SchemaCheck<'_> {
    fn value(&self, schema: &Value, value: &Value, path: &str) -> Result<(), String> {
        let Some(schema) = schema.as_object() else {
            return if schema == true { Ok(()) } else { Err(format!("{path} must not be there")) };
        };
        if let Some(unknown) = schema.keys().find(|key| !KEYWORDS.contains(&key.as_str())) {
            return Err(format!("the schema has the keyword {unknown}, which this test does not support"));
        }
        let wrong = |expected: &Value| Err(format!("{path} is {value}, not {expected}"));
        if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            let target = self.root.pointer(reference.trim_start_matches('#'));
            return self.value(target.ok_or_else(|| format!("no {reference}"))?, value, path);
        }
        match schema.get("const") {
            Some(expected) if expected != value => return wrong(expected),
            _ => {}
        }
        match schema.get("enum") {
            Some(words) if !words.as_array().is_some_and(|words| words.contains(value)) => {
                return wrong(words);
            }
            _ => {}
        }
        if let Some(kinds) = schema.get("anyOf").and_then(Value::as_array) {
            let results: Vec<_> = kinds.iter().map(|kind| self.value(kind, value, path)).collect();
            if results.iter().all(Result::is_err) {
                let why: Vec<String> = results.into_iter().filter_map(Result::err).collect();
                return Err(why.join("; "));
            }
        }
        if let Some(kind) = schema.get("type") {
            let kinds = kind.as_array().map_or(std::slice::from_ref(kind), Vec::as_slice);
            if !kinds.iter().any(|kind| is_of_type(value, kind)) {
                return wrong(kind);
            }
        }
        if schema.get("minimum").and_then(Value::as_f64) > value.as_f64() && value.is_number() {
            return Err(format!("{path} is {value}, below its minimum"));
        }
        if let Some(object) = value.as_object() {
            self.object(schema, object, path)?;
        }
        for (index, item) in value.as_array().into_iter().flatten().enumerate() {
            let fixed = schema.get("prefixItems").and_then(|fixed| fixed.get(index));
            if let Some(of) = fixed.or(schema.get("items")) {
                self.value(of, item, &format!("{path}/{index}"))?;
            }
        }
        let least = schema.get("minItems").and_then(Value::as_u64).unwrap_or(0);
        if value.as_array().is_some_and(|items| (items.len() as u64) < least) {
            return Err(format!("{path} has fewer than {least} items"));
        }
        Ok(())
    }

    fn object(
        &self,
        schema: &Map<String, Value>,
        object: &Map<String, Value>,
        path: &str,
    ) -> Result<(), String> {
        for key in schema.get("required").and_then(Value::as_array).into_iter().flatten() {
            if key.as_str().is_none_or(|key| !object.contains_key(key)) {
                return Err(format!("{path} has no {key}"));
            }
        }
        let properties = schema.get("properties");
        for (key, item) in object {
            let at = format!("{path}/{key}");
            match (properties.and_then(|of| of.get(key)), schema.get("additionalProperties")) {
                (Some(of), _) | (None, Some(of)) => self.value(of, item, &at)?,
                // JSON Schema allows unknown keys, and so would not notice an outdated schema.
                (None, None) if properties.is_some() => return Err(format!("{at} is not in the schema")),
                (None, None) => {}
            }
        }
        Ok(())
    }
}

fn is_of_type(value: &Value, kind: &Value) -> bool {
    match kind.as_str() {
        Some("null") => value.is_null(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_u64() || value.is_i64(),
        Some("number") => value.is_number(),
        Some("string") => value.is_string(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        _ => false,
    }
}
