//! What a plan does not fix.

use linerate_tune::plan::SkippedFinding;

use crate::render::column::TextColumn;
use crate::render::style::{TextStyle, TextTone};

/// A block for each, worst first as the plan has them.
pub(super) fn lines(left: &[SkippedFinding], full: bool, style: TextStyle) -> Vec<String> {
    if left.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![String::new(), style.paint(TextTone::Strong, "left as it is")];
    let column = TextColumn { style, before: 4, label: 8 };
    for (index, one) in left.iter().enumerate() {
        let id = format!("  {:<8}{}", one.severity, one.finding);
        lines.push(style.paint(tone(&one.severity), &id));
        let text = |label: &str, text: &str| {
            if full { column.labelled(label, text) } else { column.labelled_short(label, text) }
        };
        lines.extend(text("found", &one.title));
        if left.get(index + 1).is_some_and(|next| is_for_the_same(one, next)) {
            continue;
        }
        lines.extend(text("left", &one.why));
        match one.commands.split_first() {
            Some(_) if full => lines.extend(one.commands.iter().map(|command| column.whole_command(command))),
            Some((first, rest)) => lines.push(column.command("do", first, rest.len())),
            None => {}
        }
    }
    lines
}

/// Whether two that follow each other are left for one reason, told with the last of them.
fn is_for_the_same(one: &SkippedFinding, next: &SkippedFinding) -> bool {
    one.why == next.why && one.commands == next.commands
}

/// As doctor paints that severity.
fn tone(severity: &str) -> TextTone {
    match severity {
        "high" => TextTone::Bad,
        "medium" => TextTone::Warn,
        "note" => TextTone::Faint,
        _ => TextTone::Strong,
    }
}
