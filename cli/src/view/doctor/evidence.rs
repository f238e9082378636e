//! Values of evidence for people.

use serde_json::Value;

/// A value without the marks of JSON: `12`, `4096 of 8192`, `0: 12, 1: 11`.
pub(crate) fn value(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "none".to_owned(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::Number(number) => match number.as_f64() {
            Some(number_value) if number.is_f64() && number_value.fract() == 0.0 => {
                format!("{number_value:.0}")
            }
            _ => number.to_string(),
        },
        Value::Array(items) => join_items(items.iter().map(nested_value)),
        Value::Object(map) => {
            let mut items: Vec<(&String, &Value)> = map.iter().collect();
            // CPUs and queues by number: 2 before 10.
            items.sort_by_key(|(key, _)| key.parse::<u64>().unwrap_or(u64::MAX));
            join_items(items.into_iter().map(|(key, item)| format!("{key}: {}", nested_value(item))))
        }
    }
}

/// The content of a list or map. A list within a list keeps its brackets.
fn nested_value(item: &Value) -> String {
    match item {
        Value::Array(_) => format!("[{}]", value(item)),
        Value::Object(_) => format!("{{{}}}", value(item)),
        _ => value(item),
    }
}

fn join_items(items: impl Iterator<Item = String>) -> String {
    let items: Vec<String> = items.collect();
    if items.is_empty() { "none".to_owned() } else { items.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn evidence_values_print_without_json_syntax() {
        for (from, expected) in [
            (json!("off"), "off"),
            (json!(12), "12"),
            (json!(null), "none"),
            (json!([1, 2, [3, 4]]), "1, 2, [3, 4]"),
            (json!({"0": "0-4", "1": {"a": true}}), "0: 0-4, 1: {a: yes}"),
            (json!([]), "none"),
            (json!({"10": 2.0, "9": 0.5}), "9: 0.5, 10: 2"),
        ] {
            assert_eq!(value(&from), expected);
        }
    }
}
