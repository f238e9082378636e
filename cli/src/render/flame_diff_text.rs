//! What changed between two runs of `flame`, as text.

use super::column::TextColumn;
use super::flame_text::{alarm, joined, kind};
use super::format;
use super::style::{TextStyle, TextTone};
use super::table::TextTable;
use crate::command::flame::FlameComparison;

/// Rows in the short form, and in the full one.
const FEW: usize = 10;
const MANY: usize = 60;
/// CPUs' worth of time below which a change is told as none.
const LEAST: f64 = 0.0005;

/// A sentence, hot spots, functions and waits for locks before and after.
pub(crate) fn difference(comparison: &FlameComparison, full: bool, style: TextStyle) -> String {
    let most = if full { MANY } else { FEW };
    joined(vec![
        column(style, 0)
            .labelled("", &verdict(comparison))
            .iter()
            .map(|line| style.paint(TextTone::Strong, line))
            .collect(),
        sides(comparison, style),
        spots(comparison, most, style),
        functions(comparison, most, style),
        locks(comparison, most, style),
        notes(comparison, style),
    ])
}

fn column(style: TextStyle, label: usize) -> TextColumn {
    TextColumn { style, before: 0, label }
}

/// What it comes to.
pub(super) fn verdict(comparison: &FlameComparison) -> String {
    let (before, after) = (comparison.difference.before_cpus, comparison.difference.after_cpus);
    let what = if comparison.shown.irq_only { "Interrupt context" } else { "All that was busy" };
    let most = comparison.spots.first().filter(|change| change.by().abs() >= LEAST).map(|change| {
        let way = if change.by() > 0.0 { "grew" } else { "shrank" };
        format!(
            "; most {way}: {} ({} to {})",
            change.spot.id,
            cpus(change.before_cpus),
            cpus(change.after_cpus)
        )
    });
    format!("{what} took {} before and {} after{}.", cpus(before), cpus(after), most.unwrap_or_default())
}

/// CPUs' worth of time: 0.25 is a quarter of a CPU.
pub(super) fn cpus(worth: f64) -> String {
    if worth.abs() < LEAST { "0 CPUs".to_owned() } else { format!("{worth:.3} CPUs") }
}

fn bare(worth: f64) -> String {
    format!("{worth:.3}")
}

/// A change with its sign.
pub(super) fn signed(worth: f64) -> String {
    if worth.abs() < LEAST { "0".to_owned() } else { format!("{worth:+.3}") }
}

fn sides(comparison: &FlameComparison, style: TextStyle) -> Vec<String> {
    let column = column(style, 8);
    let line = |label: &str, side: &crate::command::flame::ComparedProfile| {
        let when = format::utc(side.started_unix_seconds);
        column.labelled(label, &format!("{}: {}, {when}, {:.1} s", side.file, side.host, side.seconds))
    };
    let mut lines = line("before", &comparison.before);
    lines.extend(line("after", &comparison.after));
    lines
}

fn spots(comparison: &FlameComparison, most: usize, style: TextStyle) -> Vec<String> {
    if comparison.spots.is_empty() {
        return Vec::new();
    }
    let mut table = TextTable::new(&[">before", ">after", ">change", "hot spot, in CPUs", "what"]);
    for change in &comparison.spots {
        table.row(vec![
            bare(change.before_cpus),
            bare(change.after_cpus),
            signed(change.by()),
            change.spot.id.clone(),
            change.spot.what.clone(),
        ]);
    }
    table.lines(0, most, style)
}

fn functions(comparison: &FlameComparison, most: usize, style: TextStyle) -> Vec<String> {
    let functions = &comparison.difference.functions;
    if functions.is_empty() {
        return Vec::new();
    }
    let mut table = TextTable::new(&[">before", ">after", ">change", "function, by its own time in CPUs"]);
    for change in functions.iter().filter(|change| change.cpus().abs() >= LEAST) {
        let module =
            change.function.module.as_ref().map_or_else(String::new, |module| format!(" [{module}]"));
        table.row(vec![
            bare(change.before_cpus),
            bare(change.after_cpus),
            signed(change.cpus()),
            format!("{}{module}", change.function.name),
        ]);
    }
    table.lines(0, most, style)
}

fn locks(comparison: &FlameComparison, most: usize, style: TextStyle) -> Vec<String> {
    if comparison.locks.is_empty() {
        return Vec::new();
    }
    let mut table = TextTable::new(&[">before", ">after", "lock, waited a second", "where, and who called"]);
    for change in &comparison.locks {
        table.row(vec![
            format::time_span(change.before_ns_per_second),
            format::time_span(change.after_ns_per_second),
            kind(change.lock).to_owned(),
            change.callers.join(" < "),
        ]);
    }
    table.lines(0, most, style)
}

fn notes(comparison: &FlameComparison, style: TextStyle) -> Vec<String> {
    let column = column(style, 9);
    let mut lines: Vec<String> =
        comparison.difference.notes.iter().flat_map(|note| column.labelled("note", note)).collect();
    for warning in &comparison.warnings {
        lines.extend(alarm(column, "warning", warning));
    }
    lines
}
