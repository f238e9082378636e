//! A server as it was seen, and what would be done with it: what an operator needs to say yes or no.

mod advice;
mod places;
mod server;
mod sockets;
mod verdict;

use super::column::Column;
use super::style::{Style, Tone};
use super::tune_plan;
use crate::command::boost::Planned;

pub(crate) use verdict::{landed, name, nothing, what_changes};

/// Rows of a table beyond these are counted, not shown, but in the full form.
pub(super) const MOST: usize = 16;

/// The verdict first, then what it rests on. In `full`, nothing is left out.
pub(crate) fn plan(planned: &Planned<'_>, full: bool, style: Style) -> String {
    let mut lines = verdict_lines(planned, style);
    lines.extend(server::lines(planned.server, full, style));
    lines.extend(sockets::lines(planned, full, style));
    lines.extend(places::lines(planned, full, style));
    lines.extend(tune_plan::changes(&planned.boost.plan, full, style));
    lines.extend(advice::refusals(planned, style));
    lines.extend(advice::advice(&planned.boost.advice, style));
    lines.extend(notes(&planned.server.notes, style));
    lines.push(String::new());
    lines.join("\n")
}

/// The verdict alone.
pub(crate) fn verdict_line(planned: &Planned<'_>, style: Style) -> String {
    let mut lines = verdict_lines(planned, style);
    lines.push(String::new());
    lines.join("\n")
}

fn verdict_lines(planned: &Planned<'_>, style: Style) -> Vec<String> {
    let column = Column { style, before: 0, label: 0 };
    let (tone, text) = verdict::verdict(planned);
    column.labelled("", &text).iter().map(|line| style.paint(tone, line)).collect()
}

fn notes(notes: &[String], style: Style) -> Vec<String> {
    if notes.is_empty() {
        return Vec::new();
    }
    let column = Column { style, before: 2, label: 0 };
    let mut lines = heading("how this was seen", style);
    lines.extend(notes.iter().flat_map(|note| column.labelled("", note)));
    lines
}

/// An empty line and a heading.
fn heading(text: &str, style: Style) -> Vec<String> {
    vec![String::new(), style.paint(Tone::Strong, text)]
}

/// How many rows are not shown.
pub(super) fn more(count: usize, style: Style) -> Option<String> {
    (count > 0).then(|| style.paint(Tone::Faint, &format!("    and {count} more (--full)")))
}

#[cfg(test)]
pub(super) mod sample;
#[cfg(test)]
mod tests;
