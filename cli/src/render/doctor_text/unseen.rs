//! What could not be seen, grouped by what stood in the way.

use linerate_host::diagnosis::Unknown;

use crate::render::style::{Style, Tone};

/// Groups beyond these are counted, not shown; the JSON has all.
const MOST: usize = 8;

/// A line a reason.
pub(super) fn lines(unknown: &[Unknown], style: Style) -> Vec<String> {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for item in unknown {
        match groups.iter_mut().find(|(why, _)| *why == item.why) {
            Some((_, places)) => places.push(&item.what),
            None => groups.push((&item.why, vec![&item.what])),
        }
    }
    if groups.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![style.paint(Tone::Strong, "could not see")];
    for (why, places) in groups.iter().take(MOST) {
        let more = match places.len() {
            0 | 1 => String::new(),
            many => format!(" and {} more", many - 1),
        };
        lines.push(format!("  {}{more}: {why}", places.first().unwrap_or(&"")));
    }
    if groups.len() > MOST {
        lines.push(style.paint(Tone::Faint, &format!("  and {} more", groups.len() - MOST)));
    }
    lines
}
