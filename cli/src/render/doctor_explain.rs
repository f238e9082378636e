//! What a rule or a stage knows, as text.

use linerate_host::finding::Rule;
use linerate_host::stage::{STAGES, StageInfo};

use super::style::{TextStyle, TextTone, wrap};
use crate::command::doctor::rules_of;

/// Lines longer than this are hard to read.
const WIDEST: usize = 100;

/// Everything about a rule.
pub(crate) fn rule(rule: &Rule, style: TextStyle) -> String {
    let mut lines = vec![style.paint(TextTone::Strong, rule.id), rule.title.to_owned(), String::new()];
    lines.extend(wrap(rule.why, style.width.min(WIDEST)));
    let parts = [
        ("effect", rule.effect),
        ("source", rule.source),
        ("kernels", rule.kernels),
        ("remedy", rule.remedy),
        ("not if", rule.caveats),
    ];
    for (name, text) in parts {
        lines.push(String::new());
        lines.extend(part(name, text, style));
    }
    ended(lines)
}

/// A stage and what it looks for.
pub(crate) fn stage(stage: &StageInfo, style: TextStyle) -> String {
    let mut lines = vec![style.paint(TextTone::Strong, stage.name.name())];
    lines.extend(wrap(stage.explain, style.width.min(WIDEST)));
    lines.push(String::new());
    lines.extend(list(stage));
    ended(lines)
}

/// All stages and what they look for.
pub(crate) fn all(style: TextStyle) -> String {
    let mut lines = Vec::new();
    for stage in &STAGES {
        lines.push(style.paint(TextTone::Strong, stage.name.name()));
        lines.extend(list(stage));
    }
    ended(lines)
}

fn list(stage: &StageInfo) -> Vec<String> {
    let widest = rules_of(stage.name).map(|rule| rule.id.len()).max().unwrap_or(0);
    rules_of(stage.name).map(|rule| format!("  {:widest$}  {}", rule.id, rule.title)).collect()
}

fn part(name: &str, text: &str, style: TextStyle) -> Vec<String> {
    let indent = 9;
    let wrapped = wrap(text, style.width.min(WIDEST).saturating_sub(indent).max(20));
    let label = |index| {
        if index == 0 {
            style.paint(TextTone::Faint, &format!("{name:<indent$}"))
        } else {
            " ".repeat(indent)
        }
    };
    wrapped.iter().enumerate().map(|(index, line)| format!("{}{line}", label(index))).collect()
}

fn ended(mut lines: Vec<String>) -> String {
    lines.push(String::new());
    lines.join("\n")
}
