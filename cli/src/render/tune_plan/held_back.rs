//! Changes that have to wait until something else is fixed.

use linerate_tune::plan::{HeldBack, PlannedChange};

use super::{count_with_noun, rows};
use crate::render::column::TextColumn;
use crate::render::style::{TextStyle, TextTone};

/// A block for each reason: how many of which changes, why, what to do first, and what became of a
/// host where they were made all the same.
pub(super) fn lines(held: &[HeldBack], full: bool, style: TextStyle) -> Vec<String> {
    if held.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![String::new(), style.paint(TextTone::Strong, "held back")];
    let column = TextColumn { style, before: 4, label: 8 };
    for HeldBack { until_fixed, why, first, effect, source, changes } in held {
        let what = format!("  {} until {until_fixed} is fixed", count_with_noun(changes.len(), "change"));
        lines.push(style.paint(TextTone::Warn, &what));
        let shown = if full { changes.len() } else { 2 };
        let one = |change: &PlannedChange| rows::one_line(&change.setting, &change.from, &change.to);
        lines.extend(changes.iter().take(shown).map(|change| format!("    {}", one(change))));
        if changes.len() > shown {
            let more = format!("    and {} more (--full)", changes.len() - shown);
            lines.push(style.paint(TextTone::Faint, &more));
        }
        lines.extend(column.labelled("why", why));
        lines.extend(column.labelled("first", first));
        lines.extend(column.labelled("effect", &format!("{effect} ({source})")));
        lines.extend(column.labelled("or", "--anyway plans them all the same."));
    }
    lines
}
