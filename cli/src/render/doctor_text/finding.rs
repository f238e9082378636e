//! One finding as a block of a few lines.

use linerate_host::finding::Evidence;
use linerate_host::{Finding, Severity};
use serde_json::Value;

use crate::render::style::{Style, Tone, wrap};

/// Evidence and commands beyond these are counted, not shown; the JSON has all.
const MOST_EVIDENCE: usize = 2;
const MOST_COMMANDS: usize = 2;
/// Lines longer than this are hard to read.
const WIDEST: usize = 110;
const INDENT: usize = 8;

/// The block.
pub(super) fn lines(finding: &Finding, style: Style) -> Vec<String> {
    let severity = style.paint(tone(finding.severity), &format!("{:<INDENT$}", finding.severity.name()));
    let mut lines = vec![format!("{severity}{}", style.paint(Tone::Strong, finding.id))];
    lines.extend(labelled("", &finding.title, style));
    lines.extend(labelled("seen", &seen(&finding.evidence), style));
    lines.extend(labelled("effect", &format!("{} [{}]", finding.effect, finding.source), style));
    lines.extend(remedy(finding, style));
    lines.extend(labelled("unless", finding.unless, style));
    lines
}

fn seen(evidence: &[Evidence]) -> String {
    let shown: Vec<String> = evidence
        .iter()
        .take(MOST_EVIDENCE)
        .map(|item| format!("{} {} ({})", item.what, value(&item.value), item.read_from))
        .collect();
    format!("{}{}", shown.join("; "), more(evidence.len(), MOST_EVIDENCE))
}

fn remedy(finding: &Finding, style: Style) -> Vec<String> {
    let mut lines = labelled("remedy", finding.remedy, style);
    // A command is not broken: it is there to be copied.
    let shown = finding.commands.iter().take(MOST_COMMANDS);
    lines.extend(shown.map(|command| format!("{}$ {command}", " ".repeat(INDENT))));
    if finding.commands.len() > MOST_COMMANDS {
        let more = more(finding.commands.len(), MOST_COMMANDS);
        lines.push(style.paint(Tone::Faint, &format!("{}{}", " ".repeat(INDENT), more.trim_start())));
    }
    lines
}

fn more(all: usize, shown: usize) -> String {
    match all.saturating_sub(shown) {
        0 => String::new(),
        more => format!(" and {more} more"),
    }
}

/// A value as a person reads it: text without quotes.
pub(super) fn value(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "none".to_owned(),
        other => other.to_string(),
    }
}

fn labelled(label: &str, text: &str, style: Style) -> Vec<String> {
    if text.is_empty() {
        return Vec::new();
    }
    let width = style.width.min(WIDEST).saturating_sub(INDENT).max(20);
    let label = style.paint(Tone::Faint, &format!("{label:<INDENT$}"));
    let mut labels = vec![label];
    wrap(text, width)
        .into_iter()
        .map(|line| format!("{}{line}", labels.pop().unwrap_or_else(|| " ".repeat(INDENT))))
        .collect()
}

pub(super) fn tone(severity: Severity) -> Tone {
    match severity {
        Severity::High => Tone::Bad,
        Severity::Medium => Tone::Warn,
        Severity::Low => Tone::Strong,
        Severity::Note => Tone::Faint,
    }
}
