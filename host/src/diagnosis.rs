//! Findings of all stages on a host, and the values that could not be read.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::finding::{Finding, Rule, Severity};
use crate::stage::{HostView, PacketPath, STAGES};

#[derive(Debug, Clone, Serialize)]
pub struct Diagnosis {
    /// Worst first.
    pub findings: Vec<Finding>,
    pub unknown: Vec<UnknownItem>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnknownItem {
    /// Place in the state of the stages, such as `link[eth0].rings`.
    pub what: String,
    pub why: String,
}

impl Diagnosis {
    pub fn of(view: &HostView<'_>) -> Self {
        Self { findings: findings(view), unknown: unknown_items(view.now) }
    }

    /// The findings in the order of their severity under load, which is the same at every load.
    #[must_use]
    pub fn findings_under_load(&self, view: &HostView<'_>) -> Vec<&Finding> {
        let mut findings: Vec<&Finding> = self.findings.iter().collect();
        findings.sort_by_key(|finding| rules().position(|rule| rule.id == finding.id));
        findings
            .sort_by(|left, right| by_severity(view, [left, right], |finding| finding.severity_under_load));
        findings
    }
}

/// The findings alone. Collecting the unknown values of a large host takes longer.
pub fn findings(view: &HostView<'_>) -> Vec<Finding> {
    let mut findings: Vec<Finding> = rules().flat_map(|rule| rule.findings(view)).collect();
    findings.sort_by(|left, right| by_severity(view, [left, right], |finding| finding.severity));
    if view.busy_services_share_a_socket() {
        findings.iter_mut().for_each(Finding::hold_back);
    }
    findings
}

// Most severe first, then by the gain in a published case.
fn by_severity(
    view: &HostView<'_>,
    [left, right]: [&Finding; 2],
    severity: fn(&Finding) -> Severity,
) -> std::cmp::Ordering {
    let ratio = |finding: &Finding| finding.published_ratio.unwrap_or(1.0);
    // A user who named a service wants to see its losses first.
    let is_named = view.now.socket.services().iter().any(|service| service.named);
    let is_first = |finding: &Finding| is_named && finding.is_about_loss();
    let by_loss = is_first(right).cmp(&is_first(left));
    severity(right).cmp(&severity(left)).then(by_loss).then(ratio(right).total_cmp(&ratio(left)))
}

/// The rules of all stages, in the order a packet meets them.
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    STAGES.iter().flat_map(|stage| stage.rules.iter())
}

pub fn rule(id: &str) -> Option<&'static Rule> {
    rules().find(|rule| rule.id == id)
}

// Collects every unknown value in the serialized state, so that no rule can omit one.
fn unknown_items(path: &PacketPath) -> Vec<UnknownItem> {
    let mut items = Vec::new();
    match serde_json::to_value(path) {
        Ok(state) => collect_unknown(&state, &mut String::new(), &mut items),
        Err(error) => {
            items.push(UnknownItem { what: "the state of the stages".into(), why: error.to_string() });
        }
    }
    items
}

fn collect_unknown(state: &Value, state_path: &mut String, unknown_items: &mut Vec<UnknownItem>) {
    let length = state_path.len();
    match state {
        Value::Object(map) => {
            if let (1, Some(Value::String(why))) = (map.len(), map.get("unknown")) {
                unknown_items.push(UnknownItem { what: state_path.clone(), why: why.clone() });
                return;
            }
            for (key, value) in map {
                state_path.push_str(if length == 0 { "" } else { "." });
                state_path.push_str(key);
                collect_unknown(value, state_path, unknown_items);
                state_path.truncate(length);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate().filter(|(_, item)| !item.is_number()) {
                let label = label(item).unwrap_or_else(|| index.to_string());
                state_path.extend(["[", &label, "]"]);
                collect_unknown(item, state_path, unknown_items);
                state_path.truncate(length);
            }
        }
        _ => {}
    }
}

/// The value of the first of these keys that the item has.
fn label(item: &Value) -> Option<String> {
    const NAMES: [&str; 8] = ["interface", "name", "queue", "cpu", "irq", "local", "tid", "pid"];
    NAMES.iter().find_map(|key| match item.get(key)? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_values_are_reported_with_their_path() {
        let state = serde_json::json!({
            "link": [{ "interface": "eth0", "rings": { "unknown": "no privilege" }, "mtu": 1500 }],
            "machine": { "kernel": { "unknown": "gone" } },
        });
        let mut found = Vec::new();
        collect_unknown(&state, &mut String::new(), &mut found);
        let lines: Vec<String> = found.iter().map(|item| format!("{}: {}", item.what, item.why)).collect();
        assert_eq!(lines, ["link[eth0].rings: no privilege", "machine.kernel: gone"]);
    }

    #[test]
    fn every_rule_has_a_unique_id_its_stage_and_complete_texts() {
        let mut ids = std::collections::BTreeSet::new();
        for stage in STAGES {
            for rule in stage.rules {
                assert_eq!(rule.stage(), Some(stage.name), "{}", rule.id);
                assert!(ids.insert(rule.id), "{} is not unique", rule.id);
                for text in [rule.source, rule.kernels] {
                    assert!(!text.trim().is_empty(), "{}: source or kernels is empty", rule.id);
                }
                assert!(!rule.title.ends_with('.'), "{}: a title has no full stop", rule.id);
                assert!(rule.why.ends_with('.'), "{}: {}", rule.id, rule.why);
                for text in [rule.effect, rule.remedy, rule.caveats] {
                    let capital = |letter: char| letter.is_uppercase() || letter.is_ascii_digit();
                    // Printed after the word "not if".
                    let well = text.starts_with(capital) && text.ends_with('.') && !text.starts_with("Not ");
                    assert!(well, "{}: {text}", rule.id);
                }
            }
        }
    }
}
