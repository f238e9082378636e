//! One finding as a block: of a few lines, or with everything.

use linerate_host::{Finding, Severity};

use crate::render::column::{TextColumn, cut};
use crate::render::doctor_value::value;
use crate::render::style::{TextStyle, TextTone};

const INDENT: usize = 8;

/// The block in a few lines: what the longest texts say beyond is in the full one.
pub(super) fn short(finding: &Finding, style: TextStyle) -> Vec<String> {
    let column = column(style);
    let mut lines = heading(finding, style);
    lines.extend(column.labelled("seen", &column.limit_lines(&seen(finding), 2)));
    lines.extend(column.labelled_short("effect", finding.effect));
    match (finding.first, finding.commands.split_first()) {
        (Some(first), _) => lines.extend(column.labelled_short("first", &fix_first(first))),
        (None, Some((first, rest))) => lines.push(column.command("do", first, rest.len())),
        (None, None) => lines.extend(column.labelled_short("remedy", finding.remedy)),
    }
    lines.extend(column.labelled_short("not if", finding.caveats));
    lines
}

/// The block with all evidence, commands and sources.
pub(super) fn full(finding: &Finding, style: TextStyle) -> Vec<String> {
    let column = column(style);
    let mut lines = heading(finding, style);
    for (index, item) in finding.evidence.iter().enumerate() {
        let text = format!("{}: {} ({})", item.what, value(&item.value), item.read_from);
        lines.extend(column.labelled(if index == 0 { "seen" } else { "" }, &text));
    }
    lines.extend(column.labelled("effect", finding.effect));
    lines.extend(column.labelled("source", finding.source));
    lines.extend(column.labelled("kernels", finding.kernels));
    lines.extend(column.labelled("remedy", finding.remedy));
    if let Some(first) = finding.first {
        lines.extend(column.labelled("first", &fix_first(first)));
    }
    lines.extend(finding.commands.iter().map(|command| column.whole_command(command)));
    lines.extend(column.labelled("not if", finding.caveats));
    lines
}

fn fix_first(id: &str) -> String {
    format!("Fix {id}, then run doctor again: with packets on more CPUs before that, fewer are answered.")
}

fn column(style: TextStyle) -> TextColumn {
    TextColumn { style, before: 0, label: INDENT }
}

fn heading(finding: &Finding, style: TextStyle) -> Vec<String> {
    let severity = style.paint(tone(finding.severity), &format!("{:<INDENT$}", finding.severity.name()));
    let mut lines = vec![format!("{severity}{}", style.paint(tone(finding.severity), finding.id))];
    lines.extend(column(style).labelled("", &finding.title));
    for line in lines.iter_mut().skip(1) {
        *line = style.paint(TextTone::Strong, line);
    }
    lines
}

fn seen(finding: &Finding) -> String {
    /// A value longer than this says more in the full form.
    const LONGEST: usize = 48;
    let Some(first) = finding.evidence.first() else { return String::new() };
    let more = match finding.evidence.len() - 1 {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{}: {} ({}){more}", first.what, cut(&value(&first.value), LONGEST), first.read_from)
}

fn tone(severity: Severity) -> TextTone {
    match severity {
        Severity::High => TextTone::Bad,
        Severity::Medium => TextTone::Warn,
        Severity::Low => TextTone::Strong,
        Severity::Note => TextTone::Faint,
    }
}
