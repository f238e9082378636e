//! The table at the end of a run, for a terminal or a pipe.

use comfy_table::{Attribute, Cell, CellAlignment, Color, LineStyle, Table, TableStyle};
use linerate_lab::ladder::report::{LadderReport, StepReport};
use linerate_load::stats::ComparisonVerdict;

use super::format;
use super::style::{TextStyle, TextTone, wrap};
use super::summary;

/// The whole result: the machine, the table, the doubts and what it comes to.
///
/// Uses the widest layout that fits `style.width`; a narrow terminal gets the columns in several
/// tables, and below that the least important ones are left out. Figures are never broken.
pub(crate) fn ladder(report: &LadderReport, style: TextStyle) -> String {
    let mut text = String::new();
    push_paragraph(&mut text, TextTone::Strong, &format!("linerate {} · the ladder", report.version), style);
    push_paragraph(&mut text, TextTone::Faint, &summary::machine(report), style);
    push_paragraph(&mut text, TextTone::Faint, &summary::method(report), style);
    text.push('\n');
    let (tables, layout) = tables(report, style);
    text.push_str(&tables);
    text.push_str(&legend(report, layout, style));
    text.push_str(&doubts(report, style));
    text.push('\n');
    push_paragraph(&mut text, TextTone::Strong, &summary::best(report), style);
    if let Some(caveat) = summary::lab_caveat(report) {
        push_paragraph(&mut text, TextTone::Plain, &caveat, style);
    }
    text
}

/// A column beside the step's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StepColumn {
    Rate,
    RateDoubt,
    Wire,
    LineShare,
    Loss,
    P50,
    P99,
    Cycles,
    Instructions,
    GoodputAt2,
    GoodputAt5,
    Ratio,
    RatioInterval,
    Verdict,
    Published,
}

use StepColumn::{
    Cycles, GoodputAt2, GoodputAt5, Instructions, LineShare, Loss, P50, P99, Published, Rate, RateDoubt,
    Ratio, RatioInterval, Wire,
};

/// Tables printed one below the other.
type StepTableLayout = &'static [&'static [StepColumn]];

/// From the most to the least room; the first that fits is used.
const LAYOUTS: &[StepTableLayout] = &[
    &[&[
        Rate,
        RateDoubt,
        Wire,
        LineShare,
        Loss,
        P50,
        P99,
        Cycles,
        Instructions,
        GoodputAt2,
        GoodputAt5,
        Ratio,
        RatioInterval,
        StepColumn::Verdict,
        Published,
    ]],
    &[&[
        Rate,
        RateDoubt,
        Wire,
        LineShare,
        Loss,
        P50,
        P99,
        Cycles,
        Instructions,
        GoodputAt2,
        GoodputAt5,
        Ratio,
        StepColumn::Verdict,
        Published,
    ]],
    &[
        &[Rate, RateDoubt, Wire, LineShare, Ratio, RatioInterval, StepColumn::Verdict, Published],
        &[Loss, P50, P99, Cycles, Instructions, GoodputAt2, GoodputAt5],
    ],
    &[
        &[Rate, RateDoubt, Wire, LineShare, Ratio, StepColumn::Verdict, Published],
        &[Loss, P50, P99, Cycles, Instructions, GoodputAt2, GoodputAt5],
    ],
    &[
        &[Rate, RateDoubt, Ratio, StepColumn::Verdict, Published],
        &[Wire, LineShare, Loss, P50, P99],
        &[Cycles, Instructions, GoodputAt2, GoodputAt5],
    ],
    &[&[Rate, Ratio, StepColumn::Verdict], &[Loss, P50, P99]],
    &[&[Rate, Ratio], &[P50, P99]],
    &[&[Rate]],
];

/// Blanks between two columns; the table itself adds one of them.
const GAP: usize = 2;

/// Narrower than this, running text goes below its label instead of beside it.
const NARROWEST_TEXT: usize = 32;

/// The tables in the roomiest layout that fits, and that layout.
fn tables(report: &LadderReport, style: TextStyle) -> (String, StepTableLayout) {
    if !report.steps.iter().any(|step| step.applied) {
        return (with_skipped_steps(report, Vec::new(), true, style), &[]);
    }
    let mut chosen = (Vec::new(), LAYOUTS[0]);
    for layout in LAYOUTS {
        let tables: Vec<Vec<String>> =
            layout.iter().map(|columns| table_lines(report, columns, style)).collect();
        let fits = tables.iter().flatten().all(|line| columns_of(line) <= style.width);
        chosen = (tables, layout);
        if fits {
            break;
        }
    }
    let (tables, layout) = chosen;
    let texts: Vec<String> = tables
        .into_iter()
        .enumerate()
        .map(|(index, lines)| with_skipped_steps(report, lines, index == 0, style))
        .collect();
    (texts.join("\n"), layout)
}

fn name_width(report: &LadderReport) -> usize {
    report.steps.iter().map(|step| step.id.chars().count()).max().unwrap_or(0).max("step".len())
}

/// The heading, a rule, and one line a measured step.
fn table_lines(report: &LadderReport, columns: &[StepColumn], style: TextStyle) -> Vec<String> {
    let name_width = name_width(report);
    let mut table = Table::new();
    table
        .force_no_tty()
        .load_style(TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─')));
    if style.colour {
        table.enforce_styling();
    }
    let name = |name: &str, tone| cell(format!("{name:name_width$}"), tone);
    let headings = columns.iter().map(|&column| cell(heading_of(report, column), TextTone::Faint));
    table.set_header(std::iter::once(name("step", TextTone::Faint)).chain(headings));
    for step in report.steps.iter().filter(|step| step.applied) {
        let figures = columns.iter().map(|&column| {
            let (text, tone) = figure(report, step, column);
            cell(text, tone)
        });
        table.add_row(std::iter::once(name(&step.id, TextTone::Plain)).chain(figures));
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((if index == 0 { 0 } else { GAP as u16 - 1 }, 0));
        let words = index == 0 || columns.get(index - 1) == Some(&StepColumn::Verdict);
        column.set_cell_alignment(if words { CellAlignment::Left } else { CellAlignment::Right });
    }
    table.lines().map(|line| line.trim_end().to_owned()).collect()
}

/// Puts the skipped steps where they belong in the run: in the first table only.
fn with_skipped_steps(report: &LadderReport, lines: Vec<String>, wanted: bool, style: TextStyle) -> String {
    let indent = name_width(report) + GAP;
    let mut lines = lines.into_iter();
    let mut text = String::new();
    for line in lines.by_ref().take(2) {
        push_line(&mut text, &line);
    }
    for step in &report.steps {
        if step.applied {
            push_line(&mut text, &lines.next().unwrap_or_default());
        } else if wanted {
            let reason =
                format!("skipped: {}", step.skipped_because.as_deref().unwrap_or("no reason recorded"));
            for line in labelled(&step.id, &reason, indent, style.width) {
                push_line(&mut text, &style.paint(TextTone::Faint, &line));
            }
        }
    }
    text
}

/// A label with text beside it, or below it where there is no room beside it.
fn labelled(label: &str, words: &str, indent: usize, width: usize) -> Vec<String> {
    let beside = width >= indent + NARROWEST_TEXT;
    let indent = if beside { indent } else { 2 };
    let mut lines: Vec<String> = wrap(words, width.saturating_sub(indent))
        .iter()
        .map(|line| format!("{:indent$}{line}", ""))
        .collect();
    if beside {
        lines[0].replace_range(..indent, &format!("{label:indent$}"));
    } else {
        lines.insert(0, label.to_owned());
    }
    lines
}

fn push_paragraph(text: &mut String, tone: TextTone, words: &str, style: TextStyle) {
    for line in wrap(words, style.width) {
        push_line(text, &style.paint(tone, &line));
    }
}

fn push_line(text: &mut String, line: &str) {
    text.push_str(line.trim_end());
    text.push('\n');
}

fn cell(text: String, tone: TextTone) -> Cell {
    let cell = Cell::new_owned(text);
    match tone {
        TextTone::Plain => cell,
        TextTone::Strong => cell.add_attribute(Attribute::Bold),
        TextTone::Good => cell.fg(Color::DarkGreen),
        TextTone::Bad => cell.fg(Color::DarkRed),
        TextTone::Warn => cell.fg(Color::DarkYellow),
        TextTone::Faint => cell.add_attribute(Attribute::Dim),
    }
}

fn heading_of(report: &LadderReport, column: StepColumn) -> String {
    match column {
        StepColumn::Rate => "tps",
        StepColumn::RateDoubt => "±",
        StepColumn::Wire => "Mbit/s",
        StepColumn::LineShare => return format!("of {}", format::link(report.testbed.link_bits_per_second)),
        StepColumn::Loss => "loss",
        StepColumn::P50 => "p50 us",
        StepColumn::P99 => "p99 us",
        StepColumn::Cycles => "cycles",
        StepColumn::Instructions => "instr.",
        StepColumn::GoodputAt2 => "at 2x",
        StepColumn::GoodputAt5 => "at 5x",
        StepColumn::Ratio => "ratio",
        StepColumn::RatioInterval => "95 %",
        StepColumn::Verdict => "verdict",
        StepColumn::Published => "published",
    }
    .to_owned()
}

/// A figure and how it is to be read; what is not known is a question mark.
fn figure(report: &LadderReport, step: &StepReport, column: StepColumn) -> (String, TextTone) {
    let rate = step.transactions_per_second;
    let known = |value: Option<String>| value.unwrap_or_else(|| format::UNKNOWN.to_owned());
    let goodput =
        |factor: &str| known(step.goodput_at_overload.get(factor).copied().flatten().map(format::percent));
    let versus = step.versus_previous.as_ref();
    let text = match column {
        StepColumn::Rate => {
            let bound = if summary::is_lower_bound(step) { "≥" } else { "" };
            return (
                known(rate.map(|rate| format!("{bound}{}", format::rate(rate.median)))),
                TextTone::Strong,
            );
        }
        StepColumn::RateDoubt => known(rate.map(|rate| match rate.samples {
            0 | 1 => "n=1".to_owned(),
            _ => format::plus_minus(rate.median, rate.low, rate.high),
        })),
        StepColumn::Wire => known(step.wire_bits_per_second.map(format::megabits)),
        StepColumn::LineShare => known(step.line_rate_ratio.map(format::percent)),
        StepColumn::Loss => known(step.loss_ratio.map(format::percent)),
        StepColumn::P50 => known(step.latency_ns.map(|latency| format::microseconds(latency.p50))),
        StepColumn::P99 => known(step.latency_ns.map(|latency| format::microseconds(latency.p99))),
        StepColumn::Cycles => known(step.cycles_per_transaction.map(format::rate)),
        StepColumn::Instructions => known(step.instructions_per_transaction.map(format::rate)),
        StepColumn::GoodputAt2 => goodput("2"),
        StepColumn::GoodputAt5 => goodput("5"),
        StepColumn::Ratio => versus.map_or_else(String::new, |versus| format::ratio(versus.ratio.median)),
        StepColumn::RatioInterval => {
            let interval = versus.and_then(|versus| summary::ratio_interval(&versus.ratio));
            return (interval.unwrap_or_default(), TextTone::Faint);
        }
        StepColumn::Verdict => return verdict(report, step),
        StepColumn::Published => {
            return (step.published_ratio.map_or_else(String::new, format::ratio), TextTone::Faint);
        }
    };
    (text, TextTone::Plain)
}

fn verdict(report: &LadderReport, step: &StepReport) -> (String, TextTone) {
    let Some(versus) = &step.versus_previous else {
        return (String::new(), TextTone::Plain);
    };
    let tone = match versus.verdict {
        ComparisonVerdict::Better => TextTone::Good,
        ComparisonVerdict::Worse => TextTone::Bad,
        ComparisonVerdict::NoDifferenceShown => TextTone::Faint,
    };
    let reverted = if summary::was_reverted(report, step) { ", undone" } else { "" };
    (format!("{}{reverted}", summary::verdict_name(versus.verdict)), tone)
}

/// What the headings shown stand for.
fn legend(report: &LadderReport, layout: StepTableLayout, style: TextStyle) -> String {
    let shown = |column| layout.iter().any(|columns| columns.contains(&column));
    let mut words = Vec::new();
    if shown(StepColumn::Ratio) {
        words.push("ratio: rate against the step compared with, by alternation".to_owned());
    }
    if shown(StepColumn::Cycles) {
        words.push("cycles, instr.: of the whole machine a transaction".to_owned());
    }
    if shown(StepColumn::GoodputAt2) {
        words.push("at 2x, 5x: share of capacity still answered when that much is offered".to_owned());
    }
    let sources = summary::published_sources(report);
    if shown(StepColumn::Published) && !sources.is_empty() {
        words.push(format!(
            "published: that step in {}, other hardware, not measured here",
            sources.join(", ")
        ));
    }
    let mut text = String::new();
    if !words.is_empty() {
        text.push('\n');
        push_paragraph(&mut text, TextTone::Faint, &format!("{}.", words.join("; ")), style);
    }
    text
}

fn doubts(report: &LadderReport, style: TextStyle) -> String {
    let doubts = summary::step_caveats(report);
    if doubts.is_empty() {
        return String::new();
    }
    let widest = doubts.iter().map(|doubt| summary::kind_name(doubt.kind).len()).max().unwrap_or(0);
    let mut text = format!("\n{}\n", style.paint(TextTone::Strong, "Warnings"));
    let mut kind_before = None;
    for doubt in &doubts {
        let name = if kind_before == Some(doubt.kind) { "" } else { summary::kind_name(doubt.kind) };
        kind_before = Some(doubt.kind);
        let body = format!("{} ({})", doubt.detail.trim_end_matches('.'), doubt.scope());
        for line in labelled(name, &body, widest + GAP, style.width).iter().filter(|line| !line.is_empty()) {
            // The label is ASCII, so that its length is an offset too.
            let (label, rest) = line.split_at(if line.starts_with(name) { name.len() } else { 0 });
            push_line(&mut text, &format!("{}{rest}", style.paint(TextTone::Bad, label)));
        }
    }
    text
}

/// Columns a line takes: escape sequences take none, every other character used here takes one.
fn columns_of(line: &str) -> usize {
    let mut columns = 0;
    let mut in_escape = false;
    for character in line.chars() {
        match character {
            '\u{1b}' => in_escape = true,
            'm' if in_escape => in_escape = false,
            _ if in_escape => {}
            _ => columns += 1,
        }
    }
    columns
}

#[cfg(test)]
mod tests;
