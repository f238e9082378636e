//! What is wrong along the packet path, as text.

mod finding;
mod unseen;

use linerate_host::Severity;

pub(crate) use unseen::groups as unseen_groups;

use super::doctor_picture;
use super::style::{TextStyle, TextTone};
use crate::command::doctor::DoctorDocument;

/// The picture, findings worst first, what could not be seen, and a line that sums up. In `full`, nothing is left out.
pub(crate) fn doctor(document: &DoctorDocument<'_>, full: bool, style: TextStyle) -> String {
    let mut lines = doctor_picture::lines(&document.picture, style);
    let severities: Vec<Severity> = document.findings.iter().map(|finding| finding.severity).collect();
    for finding in document.findings {
        lines.extend(if full { finding::full(finding, style) } else { finding::short(finding, style) });
        lines.push(String::new());
    }
    let unseen = unseen::lines(document.unknown, full, style);
    if !unseen.is_empty() {
        lines.extend(unseen);
        lines.push(String::new());
    }
    lines.push(style.paint(TextTone::Strong, &summary(&severities, document.unknown.len())));
    if !full && !document.findings.is_empty() {
        lines.push(
            style.paint(
                TextTone::Faint,
                "All evidence, commands and sources: --full. Why it matters: --explain ID. To have settings made, \
                 and undone: linerate tune.",
            ),
        );
    }
    lines.push(String::new());
    lines.join("\n")
}

/// How many of which severity.
pub(crate) fn summary(findings: &[Severity], unknown: usize) -> String {
    let unseen = match unknown {
        0 => String::new(),
        1 => "; one thing could not be seen".to_owned(),
        many => format!("; {many} things could not be seen"),
    };
    let total = findings.len();
    if total == 0 {
        return format!("Nothing found{unseen}.");
    }
    let counts: Vec<String> = Severity::ALL
        .iter()
        .map(|severity| (severity, findings.iter().filter(|one| *one == severity).count()))
        .filter(|(_, count)| *count > 0)
        .map(|(severity, count)| format!("{count} {severity}"))
        .collect();
    let findings = if total == 1 { "finding" } else { "findings" };
    format!("{total} {findings}: {}{unseen}.", counts.join(", "))
}
