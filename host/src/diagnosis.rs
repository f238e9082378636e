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
        let mut findings: Vec<Finding> = rules().flat_map(|rule| rule.findings(view)).collect();
        findings.sort_by(|one, other| by_severity(view, [one, other], |finding| finding.severity));
        if view.busy_services_share_a_socket() {
            findings.iter_mut().for_each(Finding::hold_back);
        }
        Self { findings, unknown: unknown(view.now) }
    }

    /// The findings in the order of their severity under load, which is the same at every load.
    #[must_use]
    pub fn findings_under_load(&self, view: &HostView<'_>) -> Vec<&Finding> {
        let mut findings: Vec<&Finding> = self.findings.iter().collect();
        findings.sort_by_key(|finding| rules().position(|rule| rule.id == finding.id));
        findings.sort_by(|one, other| by_severity(view, [one, other], |finding| finding.severity_under_load));
        findings
    }
}

// Most severe first, then by the gain in a published case.
fn by_severity(
    view: &HostView<'_>,
    [one, other]: [&Finding; 2],
    severity: fn(&Finding) -> Severity,
) -> std::cmp::Ordering {
    let ratio = |finding: &Finding| finding.published_ratio.unwrap_or(1.0);
    // A user who named a service wants to see its losses first.
    let is_named = view.now.socket.services().iter().any(|service| service.named);
    let is_first = |finding: &Finding| is_named && finding.is_about_loss();
    let by_loss = is_first(other).cmp(&is_first(one));
    severity(other).cmp(&severity(one)).then(by_loss).then(ratio(other).total_cmp(&ratio(one)))
}

/// The rules of all stages, in the order a packet meets them.
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    STAGES.iter().flat_map(|stage| stage.rules.iter())
}

pub fn rule(id: &str) -> Option<&'static Rule> {
    rules().find(|rule| rule.id == id)
}

// Collects every unknown value in the serialized state, so that no rule can omit one.
fn unknown(path: &PacketPath) -> Vec<UnknownItem> {
    let mut found = Vec::new();
    match serde_json::to_value(path) {
        Ok(state) => collect(&state, "", &mut found),
        Err(error) => {
            found.push(UnknownItem { what: "the state of the stages".into(), why: error.to_string() });
        }
    }
    found
}

fn collect(state: &Value, place: &str, found: &mut Vec<UnknownItem>) {
    match state {
        Value::Object(map) => {
            if let (1, Some(Value::String(why))) = (map.len(), map.get("unknown")) {
                found.push(UnknownItem { what: place.to_owned(), why: why.clone() });
                return;
            }
            for (key, value) in map {
                let place = if place.is_empty() { key.clone() } else { format!("{place}.{key}") };
                collect(value, &place, found);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                let label = label(item).unwrap_or_else(|| index.to_string());
                collect(item, &format!("{place}[{label}]"), found);
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
    fn an_unknown_is_named_by_its_place() {
        let state = serde_json::json!({
            "link": [{ "interface": "eth0", "rings": { "unknown": "no privilege" }, "mtu": 1500 }],
            "machine": { "kernel": { "unknown": "gone" } },
        });
        let mut found = Vec::new();
        collect(&state, "", &mut found);
        let shown: Vec<String> = found.iter().map(|item| format!("{}: {}", item.what, item.why)).collect();
        assert_eq!(shown, ["link[eth0].rings: no privilege", "machine.kernel: gone"]);
    }

    #[test]
    fn every_rule_belongs_to_its_stage_and_is_named_once() {
        let mut ids = std::collections::BTreeSet::new();
        for stage in STAGES {
            for rule in stage.rules {
                assert_eq!(rule.stage(), Some(stage.name), "{}", rule.id);
                assert!(ids.insert(rule.id), "{} twice", rule.id);
                for text in [rule.source, rule.kernels] {
                    assert!(!text.trim().is_empty(), "{} leaves something unsaid", rule.id);
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
