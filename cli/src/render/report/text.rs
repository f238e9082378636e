//! Results as text.

use super::JoinedResults;
use crate::document::{Cell, Table};
use crate::render::column::TextColumn;
use crate::render::style::{TextStyle, TextTone};
use crate::render::text::{Reader, table_lines};

// A row per result with its verdict below, then the results that cannot be shown.
pub(crate) fn text(report: &JoinedResults, style: TextStyle) -> String {
    let rows = report.members.iter().map(|member| {
        let origin = &member.document.origin;
        [member.file.clone(), origin.schema.clone(), origin.time(), origin.host_line()].map(Cell::from)
    });
    let table = Table::new("file | schema | when | host").with_rows(rows);
    let mut lines = Vec::new();
    if !report.members.is_empty() {
        let mut rows = table_lines(&table, 0, Reader { style, full: true }).into_iter();
        lines.extend(rows.next());
        for (row, member) in rows.zip(&report.members) {
            lines.push(row);
            let (tone, words) =
                member.document.mark.as_ref().map_or((TextTone::Plain, String::new()), |mark| {
                    (mark.tone, format!("{}: ", mark.words))
                });
            lines.extend(wrapped(tone, &format!("{words}{}", member.document.verdict), style));
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

/// A text in lines with an indent of two columns.
fn wrapped(tone: TextTone, text: &str, style: TextStyle) -> Vec<String> {
    let column = TextColumn { style, before: 2, label: 0 };
    column.labelled("", text).iter().map(|line| style.paint(tone, line)).collect()
}
