//! Results as text.

use super::JoinedResults;
use super::joined_results::plain;
use crate::render::column::TextColumn;
use crate::render::style::{TextStyle, TextTone};
use crate::render::table::TextTable;

// A row per result with its verdict below, then the results that cannot be shown.
pub(crate) fn text(report: &JoinedResults, style: TextStyle) -> String {
    let mut table = TextTable::new(&["file", "schema", "when", "host"]);
    for member in &report.members {
        let head = &member.head;
        table.row(vec![member.file.clone(), head.schema.clone(), plain(&head.time), plain(&head.host)]);
    }
    let mut lines = Vec::new();
    if !report.members.is_empty() {
        let mut rows = table.lines(0, usize::MAX, style).into_iter();
        lines.extend(rows.next());
        for (row, member) in rows.zip(&report.members) {
            lines.push(row);
            let mark = member.head.mark.as_ref();
            let mark_text = mark.map(|(_, words)| format!("{words}: ")).unwrap_or_default();
            lines.extend(wrapped(
                tone(mark.map(|(class, _)| *class)),
                &format!("{mark_text}{}", plain(&member.head.verdict)),
                style,
            ));
        }
    }
    if !report.unread.is_empty() {
        lines.push(String::new());
        lines.push(style.paint(TextTone::Strong, "not shown"));
        let unread_lines = report.unread.iter().map(|file| format!("{}: {}", file.file, file.why));
        lines.extend(unread_lines.flat_map(|line| wrapped(TextTone::Plain, &line, style)));
    }
    lines.push(String::new());
    lines.join("\n")
}

fn tone(class: Option<&str>) -> TextTone {
    match class {
        Some("good") => TextTone::Good,
        Some("bad") => TextTone::Bad,
        Some("warn") => TextTone::Warn,
        _ => TextTone::Plain,
    }
}

/// A text in lines with an indent of two columns.
fn wrapped(tone: TextTone, text: &str, style: TextStyle) -> Vec<String> {
    let column = TextColumn { style, before: 2, label: 0 };
    column.labelled("", text).iter().map(|line| style.paint(tone, line)).collect()
}
