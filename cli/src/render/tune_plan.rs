//! A plan as text: what an operator needs to say yes or no.

mod afterwards;
mod block;
mod held_back;
mod layout;
mod left;
mod rows;

use linerate_tune::TunePlan;
use linerate_tune::plan::{ChangeImpact, PlannedChange};

use super::column::TextColumn;
use super::format;
use super::style::{TextStyle, TextTone};
pub(crate) use afterwards::{afterwards, unseen};
pub(crate) use rows::shown;

/// What is to be changed, by interface and kind, and what is left. In `full`, nothing is left out.
pub(crate) fn plan(plan: &TunePlan, host: &str, full: bool, style: TextStyle) -> String {
    let column = TextColumn { style, before: 0, label: 0 };
    let summary = column.labelled("", &summary(plan, host));
    let mut lines: Vec<String> = summary.iter().map(|line| style.paint(TextTone::Strong, line)).collect();
    lines.extend(order(plan, style));
    lines.extend(changes(plan, full, style));
    lines.extend(held_back::lines(&plan.held_back, full, style));
    lines.extend(layout::lines(plan, full, style));
    lines.extend(left::lines(&plan.left, full, style));
    lines.push(String::new());
    lines.join("\n")
}

/// The changes alone, in blocks below headings.
pub(crate) fn changes(plan: &TunePlan, full: bool, style: TextStyle) -> Vec<String> {
    let mut lines = Vec::new();
    let mut section = String::new();
    for block in block::blocks(plan) {
        let heading = block.section.heading(&plan.devices);
        if heading != section {
            lines.extend([String::new(), style.paint(TextTone::Strong, &heading)]);
            section = heading;
        }
        lines.extend(block.lines(full, style));
    }
    lines
}

/// How much is changed, and what that interrupts.
pub(crate) fn summary(plan: &TunePlan, host: &str) -> String {
    let all = || plan.agreements.iter().chain(&plan.changes);
    let goal = &plan.goal;
    let count = all().count();
    let held: usize = plan.held_back.iter().map(|held| held.changes.len()).sum();
    let held = match held {
        0 => String::new(),
        held => format!(" {} held back.", count_with_noun(held, "change")),
    };
    if count == 0 {
        return format!("Nothing to change on {host} for {goal}.{held}");
    }
    let resets = all().filter(|change| change.interrupts == ChangeImpact::Link).count();
    let moments = all().filter(|change| change.interrupts == ChangeImpact::Moment).count();
    let interrupted = match (resets, moments) {
        (0, 0) => "none interrupts traffic".to_owned(),
        (0, some) => format!("no link goes down, {some} may reorder or lose packets for a moment"),
        (1, _) => "1 takes a link down for up to seconds".to_owned(),
        (some, _) => format!("{some} take a link down for up to seconds"),
    };
    format!("{} on {host} for {goal}; {interrupted}.{held}", count_with_noun(count, "change"))
}

/// The order in which CPUs are used, and what the queues' CPUs are to be.
fn order(plan: &TunePlan, style: TextStyle) -> Vec<String> {
    if plan.cpus.is_empty() {
        return Vec::new();
    }
    let column = TextColumn { style, before: 0, label: 0 };
    column.labelled("", &format!("Packets go to CPUs {}.", in_order(&plan.cpus)))
}

/// CPUs in the order given, runs as ranges: `0-9, then 20-29`.
fn in_order(cpus: &[u32]) -> String {
    let mut runs: Vec<Vec<u32>> = Vec::new();
    for cpu in cpus {
        match runs.last_mut() {
            Some(run) if run.last().and_then(|last| last.checked_add(1)) == Some(*cpu) => run.push(*cpu),
            _ => runs.push(vec![*cpu]),
        }
    }
    let texts: Vec<String> = runs.iter().map(|run| format::cpu_list(run)).collect();
    // One by one they are no runs but an order of their own.
    texts.join(if runs.len() > 4 { " " } else { ", then " })
}

/// A count with its noun.
pub(crate) fn count_with_noun(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// A change as one line, as where it is being made.
pub(crate) fn one_line(change: &PlannedChange) -> String {
    rows::one_line(&change.setting, &change.from, &change.to)
}

#[cfg(test)]
mod tests;
