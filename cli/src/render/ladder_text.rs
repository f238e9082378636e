//! The table at the end of a climb, for a terminal or a pipe.

use comfy_table::{Attribute, Cell, CellAlignment, Color, LineStyle, Table, TableStyle};
use linerate_lab::ladder::report::{Report, RungReport};
use linerate_load::stats::Verdict;

use super::format;
use super::style::{Style, Tone, wrap};
use super::summary;

/// The whole result: the machine, the table, the doubts and what it comes to.
///
/// Uses the widest layout that fits `style.width`; a narrow terminal gets the columns in several
/// tables, and below that the least important ones are left out. Figures are never broken.
pub(crate) fn ladder(report: &Report, style: Style) -> String {
    let mut text = String::new();
    push_paragraph(&mut text, Tone::Strong, &format!("linerate {} · the ladder", report.version), style);
    push_paragraph(&mut text, Tone::Faint, &summary::machine(report), style);
    push_paragraph(&mut text, Tone::Faint, &summary::method(report), style);
    text.push('\n');
    let (tables, layout) = tables(report, style);
    text.push_str(&tables);
    text.push_str(&legend(report, layout, style));
    text.push_str(&doubts(report, style));
    text.push('\n');
    push_paragraph(&mut text, Tone::Strong, &summary::best(report), style);
    if let Some(caveat) = summary::caveat(report) {
        push_paragraph(&mut text, Tone::Plain, &caveat, style);
    }
    text
}

/// A column beside the step's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
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

use Column::{
    Cycles, GoodputAt2, GoodputAt5, Instructions, LineShare, Loss, P50, P99, Published, Rate, RateDoubt,
    Ratio, RatioInterval, Wire,
};

/// Tables printed one below the other.
type Layout = &'static [&'static [Column]];

/// From the most to the least room; the first that fits is used.
const LAYOUTS: &[Layout] = &[
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
        Column::Verdict,
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
        Column::Verdict,
        Published,
    ]],
    &[
        &[Rate, RateDoubt, Wire, LineShare, Ratio, RatioInterval, Column::Verdict, Published],
        &[Loss, P50, P99, Cycles, Instructions, GoodputAt2, GoodputAt5],
    ],
    &[
        &[Rate, RateDoubt, Wire, LineShare, Ratio, Column::Verdict, Published],
        &[Loss, P50, P99, Cycles, Instructions, GoodputAt2, GoodputAt5],
    ],
    &[
        &[Rate, RateDoubt, Ratio, Column::Verdict, Published],
        &[Wire, LineShare, Loss, P50, P99],
        &[Cycles, Instructions, GoodputAt2, GoodputAt5],
    ],
    &[&[Rate, Ratio, Column::Verdict], &[Loss, P50, P99]],
    &[&[Rate, Ratio], &[P50, P99]],
    &[&[Rate]],
];

/// Blanks between two columns; the table itself adds one of them.
const GAP: usize = 2;

/// Narrower than this, running text goes below its label instead of beside it.
const NARROWEST_TEXT: usize = 32;

/// The tables in the roomiest layout that fits, and that layout.
fn tables(report: &Report, style: Style) -> (String, Layout) {
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

fn name_width(report: &Report) -> usize {
    report.steps.iter().map(|step| step.id.chars().count()).max().unwrap_or(0).max("step".len())
}

/// The heading, a rule, and one line a measured step.
fn table_lines(report: &Report, columns: &[Column], style: Style) -> Vec<String> {
    let name_width = name_width(report);
    let mut table = Table::new();
    table
        .force_no_tty()
        .load_style(TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─')));
    if style.colour {
        table.enforce_styling();
    }
    let name = |name: &str, tone| cell(format!("{name:name_width$}"), tone);
    let headings = columns.iter().map(|&column| cell(heading_of(report, column), Tone::Faint));
    table.set_header(std::iter::once(name("step", Tone::Faint)).chain(headings));
    for step in report.steps.iter().filter(|step| step.applied) {
        let figures = columns.iter().map(|&column| {
            let (text, tone) = figure(report, step, column);
            cell(text, tone)
        });
        table.add_row(std::iter::once(name(&step.id, Tone::Plain)).chain(figures));
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((if index == 0 { 0 } else { GAP as u16 - 1 }, 0));
        let words = index == 0 || columns.get(index - 1) == Some(&Column::Verdict);
        column.set_cell_alignment(if words { CellAlignment::Left } else { CellAlignment::Right });
    }
    table.lines().map(|line| line.trim_end().to_owned()).collect()
}

/// Puts the skipped steps where they belong in the climb: in the first table only.
fn with_skipped_steps(report: &Report, lines: Vec<String>, wanted: bool, style: Style) -> String {
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
                push_line(&mut text, &style.paint(Tone::Faint, &line));
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

fn push_paragraph(text: &mut String, tone: Tone, words: &str, style: Style) {
    for line in wrap(words, style.width) {
        push_line(text, &style.paint(tone, &line));
    }
}

fn push_line(text: &mut String, line: &str) {
    text.push_str(line.trim_end());
    text.push('\n');
}

fn cell(text: String, tone: Tone) -> Cell {
    let cell = Cell::new_owned(text);
    match tone {
        Tone::Plain => cell,
        Tone::Strong => cell.add_attribute(Attribute::Bold),
        Tone::Good => cell.fg(Color::DarkGreen),
        Tone::Bad => cell.fg(Color::DarkRed),
        Tone::Warn => cell.fg(Color::DarkYellow),
        Tone::Faint => cell.add_attribute(Attribute::Dim),
    }
}

fn heading_of(report: &Report, column: Column) -> String {
    match column {
        Column::Rate => "tps",
        Column::RateDoubt => "±",
        Column::Wire => "Mbit/s",
        Column::LineShare => return format!("of {}", format::link(report.method.link_bits_per_second)),
        Column::Loss => "loss",
        Column::P50 => "p50 us",
        Column::P99 => "p99 us",
        Column::Cycles => "cycles",
        Column::Instructions => "instr.",
        Column::GoodputAt2 => "at 2x",
        Column::GoodputAt5 => "at 5x",
        Column::Ratio => "ratio",
        Column::RatioInterval => "95 %",
        Column::Verdict => "verdict",
        Column::Published => "published",
    }
    .to_owned()
}

/// A figure and how it is to be read; what is not known is a question mark.
fn figure(report: &Report, step: &RungReport, column: Column) -> (String, Tone) {
    let rate = step.transactions_per_second;
    let known = |value: Option<String>| value.unwrap_or_else(|| format::UNKNOWN.to_owned());
    let goodput =
        |factor: &str| known(step.goodput_at_overload.get(factor).copied().flatten().map(format::percent));
    let versus = step.versus_previous.as_ref();
    let text = match column {
        Column::Rate => {
            let bound = if summary::is_lower_bound(step) { "≥" } else { "" };
            return (known(rate.map(|rate| format!("{bound}{}", format::rate(rate.median)))), Tone::Strong);
        }
        Column::RateDoubt => known(rate.map(|rate| match rate.samples {
            0 | 1 => "n=1".to_owned(),
            _ => format::plus_minus(rate.median, rate.low, rate.high),
        })),
        Column::Wire => known(step.wire_bits_per_second.map(format::megabits)),
        Column::LineShare => known(step.line_rate_ratio.map(format::percent)),
        Column::Loss => known(step.loss_ratio.map(format::percent)),
        Column::P50 => known(step.latency_ns.map(|latency| format::microseconds(latency.p50))),
        Column::P99 => known(step.latency_ns.map(|latency| format::microseconds(latency.p99))),
        Column::Cycles => known(step.cycles_per_transaction.map(format::rate)),
        Column::Instructions => known(step.instructions_per_transaction.map(format::rate)),
        Column::GoodputAt2 => goodput("2"),
        Column::GoodputAt5 => goodput("5"),
        Column::Ratio => versus.map_or_else(String::new, |versus| format::ratio(versus.ratio.median)),
        Column::RatioInterval => {
            let interval = versus.and_then(|versus| summary::ratio_interval(&versus.ratio));
            return (interval.unwrap_or_default(), Tone::Faint);
        }
        Column::Verdict => return verdict(report, step),
        Column::Published => {
            return (step.published_ratio.map_or_else(String::new, format::ratio), Tone::Faint);
        }
    };
    (text, Tone::Plain)
}

fn verdict(report: &Report, step: &RungReport) -> (String, Tone) {
    let Some(versus) = &step.versus_previous else {
        return (String::new(), Tone::Plain);
    };
    let tone = match versus.verdict {
        Verdict::Better => Tone::Good,
        Verdict::Worse => Tone::Bad,
        Verdict::NoDifferenceShown => Tone::Faint,
    };
    let reverted = if summary::was_reverted(report, step) { ", undone" } else { "" };
    (format!("{}{reverted}", summary::verdict_name(versus.verdict)), tone)
}

/// What the headings shown stand for.
fn legend(report: &Report, layout: Layout, style: Style) -> String {
    let shown = |column| layout.iter().any(|columns| columns.contains(&column));
    let mut words = Vec::new();
    if shown(Column::Ratio) {
        words.push("ratio: rate against the step compared with, by alternation".to_owned());
    }
    if shown(Column::Cycles) {
        words.push("cycles, instr.: of the whole machine a transaction".to_owned());
    }
    if shown(Column::GoodputAt2) {
        words.push("at 2x, 5x: share of capacity still answered when that much is offered".to_owned());
    }
    let sources = summary::published_sources(report);
    if shown(Column::Published) && !sources.is_empty() {
        words.push(format!(
            "published: that step in {}, other hardware, not measured here",
            sources.join(", ")
        ));
    }
    let mut text = String::new();
    if !words.is_empty() {
        text.push('\n');
        push_paragraph(&mut text, Tone::Faint, &format!("{}.", words.join("; ")), style);
    }
    text
}

fn doubts(report: &Report, style: Style) -> String {
    let doubts = summary::doubts(report);
    if doubts.is_empty() {
        return String::new();
    }
    let widest = doubts.iter().map(|doubt| summary::kind_name(doubt.kind).len()).max().unwrap_or(0);
    let mut text = format!("\n{}\n", style.paint(Tone::Strong, "Warnings"));
    let mut kind_before = None;
    for doubt in &doubts {
        let name = if kind_before == Some(doubt.kind) { "" } else { summary::kind_name(doubt.kind) };
        kind_before = Some(doubt.kind);
        let body = format!("{} ({})", doubt.detail.trim_end_matches('.'), doubt.scope());
        for line in labelled(name, &body, widest + GAP, style.width).iter().filter(|line| !line.is_empty()) {
            // The label is ASCII, so that its length is an offset too.
            let (label, rest) = line.split_at(if line.starts_with(name) { name.len() } else { 0 });
            push_line(&mut text, &format!("{}{rest}", style.paint(Tone::Bad, label)));
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
