//! What results say, as text.

use super::Joined;
use super::joined::plain;
use crate::render::column::Column;
use crate::render::style::{Style, Tone};
use crate::render::table::Table;

/// A row a result with its verdict below, then what could not be shown.
pub(crate) fn text(joined: &Joined, style: Style) -> String {
    let mut table = Table::new(&["file", "schema", "when", "host"]);
    for member in &joined.members {
        let head = &member.head;
        table.row(vec![member.file.clone(), head.schema.clone(), plain(&head.time), plain(&head.host)]);
    }
    let mut lines = Vec::new();
    if !joined.members.is_empty() {
        let mut rows = table.lines(0, usize::MAX, style).into_iter();
        lines.extend(rows.next());
        for (row, member) in rows.zip(&joined.members) {
            lines.push(row);
            let mark = member.head.mark.as_ref();
            let word = mark.map(|(_, words)| format!("{words}: ")).unwrap_or_default();
            lines.extend(wrapped(
                tone(mark.map(|(class, _)| *class)),
                &format!("{word}{}", plain(&member.head.verdict)),
                style,
            ));
        }
    }
    if !joined.unread.is_empty() {
        lines.push(String::new());
        lines.push(style.paint(Tone::Strong, "not shown"));
        let told = joined.unread.iter().map(|unread| format!("{}: {}", unread.file, unread.why));
        lines.extend(told.flat_map(|line| wrapped(Tone::Plain, &line, style)));
    }
    lines.push(String::new());
    lines.join("\n")
}

fn tone(class: Option<&str>) -> Tone {
    match class {
        Some("good") => Tone::Good,
        Some("bad") => Tone::Bad,
        Some("warn") => Tone::Warn,
        _ => Tone::Plain,
    }
}

/// A text in lines that begin two columns in.
fn wrapped(tone: Tone, text: &str, style: Style) -> Vec<String> {
    let column = Column { style, before: 2, label: 0 };
    column.labelled("", text).iter().map(|line| style.paint(tone, line)).collect()
}
