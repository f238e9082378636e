//! One snapshot of `linerate top` as text.

use linerate_host::live::Snapshot;

use super::fit::{PanelFit, StyledSpan, severity_sign};
use super::panel::{RowSelection, TopPanel};
use super::rows::panels;
use crate::render::format;
use crate::render::style::{TextStyle, TextTone, on_one_line, wrap};

const FINDINGS: usize = 8;

/// All stages, one below the other, then the findings.
pub(crate) fn snapshot(snapshot: &Snapshot, selection: &RowSelection, style: TextStyle) -> String {
    let mut lines = vec![paint(style, &title(snapshot)), String::new()];
    for panel in panels(snapshot, selection) {
        lines.extend(stage(&panel, style));
        lines.push(String::new());
    }
    lines.extend(findings(snapshot, style));
    for unknown in &snapshot.unknown {
        let text = format!("Unknown: {}: {}", unknown.what, unknown.why);
        lines.extend(wrap(&text, style.width).iter().map(|line| style.paint(TextTone::Faint, line)));
    }
    let mut text = lines.join("\n").trim_end().to_owned();
    text.push('\n');
    text
}

/// The host, and the time over which rates are calculated.
fn title(snapshot: &Snapshot) -> Vec<StyledSpan> {
    let mut spans = host(snapshot);
    let time = match snapshot.interval_seconds {
        Some(seconds) => format!("rates over {}", format::time_span(seconds * 1e9)),
        None => "read once: no rates".to_owned(),
    };
    let separator = if spans.is_empty() { "" } else { ", " };
    spans.push((format!("{separator}{time}"), TextTone::Faint));
    spans
}

pub(crate) fn host(snapshot: &Snapshot) -> Vec<StyledSpan> {
    let mut spans = Vec::new();
    if let Some(name) = snapshot.host.name.value().filter(|name| !name.is_empty()) {
        spans.push((format!("{name}  "), TextTone::Strong));
    }
    let mut facts: Vec<String> = Vec::new();
    facts.extend(snapshot.host.kernel.value().map(|kernel| format!("Linux {kernel}")));
    facts.extend(snapshot.cpus.value().map(|cpus| format::count_with_noun(cpus.len(), "CPU")));
    facts.extend(
        Some(snapshot.host.nodes.len())
            .filter(|nodes| *nodes > 1)
            .map(|count| format::count_with_noun(count, "node")),
    );
    if !facts.is_empty() {
        spans.push((facts.join(", "), TextTone::Faint));
    }
    spans
}

fn stage(panel: &TopPanel, style: TextStyle) -> Vec<String> {
    let mut lines = vec![style.paint(TextTone::Strong, panel.stage.title())];
    if let Some(reason) = &panel.unknown {
        lines.extend(wrap(reason, style.width.saturating_sub(2)).iter().map(|line| format!("  {line}")));
        return lines;
    }
    let fit = PanelFit::new(panel, None, style.width);
    lines.push(paint(style, &fit.heads()));
    lines.extend(fit.lines(0).map(|line| paint(style, &line)));
    lines
}

fn findings(snapshot: &Snapshot, style: TextStyle) -> Vec<String> {
    let mut lines = Vec::new();
    for finding in snapshot.findings.iter().take(FINDINGS) {
        let (sign, tone) = severity_sign(Some(finding.severity));
        let words = format!("{} {}: {}", finding.severity.name(), finding.id, finding.title);
        for (number, line) in wrap(&words, style.width.saturating_sub(2)).iter().enumerate() {
            let prefix = if number == 0 { style.paint(tone, &sign) } else { " ".to_owned() };
            lines.push(format!("{prefix} {line}"));
        }
    }
    let hidden_count = snapshot.findings.len().saturating_sub(FINDINGS);
    if hidden_count > 0 {
        lines.push(style.paint(TextTone::Faint, &format!("  {hidden_count} more: linerate doctor")));
    }
    if !lines.is_empty() {
        lines.insert(0, style.paint(TextTone::Strong, "FINDINGS"));
    }
    lines
}

fn paint(style: TextStyle, pieces: &[StyledSpan]) -> String {
    let line: String = pieces.iter().map(|(text, tone)| style.paint(*tone, &on_one_line(text))).collect();
    if style.colour { line } else { line.trim_end().to_owned() }
}
