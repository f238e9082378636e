//! A server as it was seen, and what would be done with it: what an operator needs to say yes or no.

mod advice;
mod places;
mod server;
mod sockets;
mod verdict;

use super::column::TextColumn;
use super::style::{TextStyle, TextTone};
use super::tune_plan;
use crate::command::boost::BoostPlanDocument;

pub(crate) use verdict::{change_summary, delivery_text, refusal_summary, server_title};

/// Rows of a table beyond these are counted, not shown, but in the full form.
pub(super) const MOST: usize = 16;

/// The verdict first, then what it rests on. In `full`, nothing is left out.
pub(crate) fn plan(planned: &BoostPlanDocument<'_>, full: bool, style: TextStyle) -> String {
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

pub(crate) fn verdict_line(planned: &BoostPlanDocument<'_>, style: TextStyle) -> String {
    let mut lines = verdict_lines(planned, style);
    lines.push(String::new());
    lines.join("\n")
}

fn verdict_lines(planned: &BoostPlanDocument<'_>, style: TextStyle) -> Vec<String> {
    let column = TextColumn { style, before: 0, label: 0 };
    let (tone, text) = verdict::verdict(planned);
    column.labelled("", &text).iter().map(|line| style.paint(tone, line)).collect()
}

fn notes(notes: &[String], style: TextStyle) -> Vec<String> {
    if notes.is_empty() {
        return Vec::new();
    }
    let column = TextColumn { style, before: 2, label: 0 };
    let mut lines = heading("how this was seen", style);
    lines.extend(notes.iter().flat_map(|note| column.labelled("", note)));
    lines
}

/// An empty line and a heading.
fn heading(text: &str, style: TextStyle) -> Vec<String> {
    vec![String::new(), style.paint(TextTone::Strong, text)]
}

/// How many rows are not shown.
pub(super) fn hidden_rows_note(count: usize, style: TextStyle) -> Option<String> {
    (count > 0).then(|| style.paint(TextTone::Faint, &format!("    and {count} more (--full)")))
}

#[cfg(test)]
pub(super) mod sample;
#[cfg(test)]
mod tests;
