//! What burns along the packet path, as text.

mod cpus;
mod locks;
mod spots;
#[cfg(test)]
mod tests;

use linerate_host::Known;
use linerate_trace::flame::{SampleEvent, StackProfile};

use super::column::TextColumn;
use super::flame_verdict::FlameVerdict;
use super::format;
use super::style::{TextStyle, TextTone};
use super::table::TextTable;
use crate::command::flame::{FlameDocument, SelfSamples};

pub(super) use cpus::{context_heads, contexts};
pub(super) use locks::{callers, kind, total};

/// Functions in the short form.
const FEW: usize = 5;

/// The verdict, hot spots worst first and waits for locks, in the order in which they matter, functions, CPUs, and how it was
/// seen. In `full`, nothing is left out.
pub(crate) fn flame(document: &FlameDocument, full: bool, style: TextStyle) -> String {
    let found = FlameVerdict::of(document);
    let mut blocks = vec![verdict(&found, document, style)];
    let waits = document.contention.as_ref().map(|contention| locks::lines(contention, full, style));
    let mut causes = vec![spots::lines(document, full, style), waits.unwrap_or_default()];
    if found.of_locks {
        causes.reverse();
    }
    blocks.extend(causes);
    if let Some(profile) = &document.profile {
        blocks.push(functions(&document.functions, full, style));
        blocks.push(cpus::lines(profile, full, style));
    }
    blocks.push(notes(document, style));
    if !full {
        let more =
            "Sources, functions, all waits and CPUs: --full. The graph: --svg FILE. A page: --html FILE.";
        blocks.push(TextColumn { style, before: 0, label: 0 }.labelled("", more));
        if let Some(last) = blocks.last_mut() {
            last.iter_mut().for_each(|line| *line = style.paint(TextTone::Faint, line));
        }
    }
    joined(blocks)
}

/// Blocks with an empty line between them; those without lines are left out.
pub(super) fn joined(blocks: Vec<Vec<String>>) -> String {
    let blocks = blocks.into_iter().filter(|block| !block.is_empty()).map(|block| block.join("\n"));
    let mut text = blocks.collect::<Vec<_>>().join("\n\n");
    text.push('\n');
    text
}

fn verdict(verdict: &FlameVerdict, document: &FlameDocument, style: TextStyle) -> Vec<String> {
    let column = TextColumn { style, before: 0, label: 0 };
    let tone = if verdict.tone == TextTone::Plain { TextTone::Strong } else { verdict.tone };
    let mut lines: Vec<String> =
        column.labelled("", &verdict.sentence).iter().map(|line| style.paint(tone, line)).collect();
    // The first hot spot has its remedy just below.
    if verdict.of_locks || document.spots.first().is_none_or(|spot| spot.remedy != verdict.advice) {
        lines.extend(column.labelled("", &verdict.advice));
    }
    lines
}

fn functions(functions: &[SelfSamples], full: bool, style: TextStyle) -> Vec<String> {
    const MANY: usize = 40;
    if functions.is_empty() {
        return Vec::new();
    }
    let mut table = TextTable::new(&[">share", ">samples", "function, by its own time"]);
    for own in functions {
        let module = own.module.as_ref().map_or_else(String::new, |module| format!(" [{module}]"));
        table.row(vec![
            format::percent(own.share),
            format::grouped(own.samples),
            format!("{}{module}", own.function),
        ]);
    }
    table.lines(0, if full { MANY } else { FEW }, style)
}

fn notes(document: &FlameDocument, style: TextStyle) -> Vec<String> {
    let column = TextColumn { style, before: 0, label: 9 };
    let mut lines = Vec::new();
    if let Some(profile) = &document.profile {
        lines.extend(column.labelled("sampled", &format!("{}.", sampled(profile))));
        lines.extend(column.labelled("itself", &format!("{}.", own(profile, document.contention.is_some()))));
        lines.extend(profile.notes.iter().flat_map(|note| column.labelled("note", note)));
    }
    if let Some(contention) = &document.contention {
        lines.extend(contention.notes.iter().flat_map(|note| column.labelled("locks", note)));
    }
    for warning in &document.warnings {
        lines.extend(alarm(column, "warning", warning));
    }
    lines
}

/// A text behind its label, all of it in the colour of warnings.
pub(super) fn alarm(column: TextColumn, label: &str, text: &str) -> Vec<String> {
    let plain = TextColumn { style: TextStyle { colour: false, ..column.style }, ..column };
    plain.labelled(label, text).iter().map(|line| column.style.paint(TextTone::Warn, line)).collect()
}

/// By how much a share of so few samples may be off, in words; empty where that is little.
pub(super) fn doubt(samples: u64) -> String {
    /// Above this many a share is off by three points at most.
    const MANY: u64 = 1_000;
    if samples == 0 || samples >= MANY {
        return String::new();
    }
    // Two standard deviations of a half, which is off by most.
    let points = 100.0 / (samples as f64).sqrt();
    format!("so that each may be off by {points:.0} points")
}

/// What sampling took, in a sentence without its end.
pub(crate) fn own(profile: &StackProfile, with_locks: bool) -> String {
    let locks = if with_locks { "; what looking at locks took is not in it" } else { "" };
    match &profile.own {
        Known::Value(own) => format!(
            "sampling took {} of these CPUs: {} a sample, and {} of this process{locks}",
            format::percent(own.share),
            format::time_span(own.ns_a_sample),
            format::time_span(own.process_ns as f64),
        ),
        Known::Unknown { why } => format!("what sampling took is not known: {why}"),
    }
}

/// What was sampled, in a line: `CPUs 0-1 for 10.0 s at 999 Hz, by the CPU clock`. Notes say why not by cycles.
pub(crate) fn sampled(profile: &StackProfile) -> String {
    let cpus: Vec<u32> = profile.cpus.iter().map(|cpu| cpu.cpu).collect();
    let event = match &profile.event {
        SampleEvent::CpuCycles => "cycles",
        SampleEvent::CpuClock { .. } => "the CPU clock",
    };
    let lost = match profile.lost() {
        0 => String::new(),
        1 => "; 1 sample lost".to_owned(),
        lost => format!("; {} samples lost", format::grouped(lost)),
    };
    format!(
        "CPUs {} for {:.1} s at {} Hz, by {event}{lost}",
        format::cpu_list(&cpus),
        profile.seconds,
        profile.frequency_hz
    )
}
