//! One finding as a block: of a few lines, or with everything.

use linerate_host::{Finding, Severity};

use crate::render::doctor_value::value;
use crate::render::style::{Style, Tone, wrap};

/// Lines longer than this are hard to read.
const WIDEST: usize = 110;
const INDENT: usize = 8;
/// A label's lines in the short form.
const MOST_LINES: usize = 2;

/// The block in a few lines: what the longest texts say beyond is in the full one.
pub(super) fn short(finding: &Finding, style: Style) -> Vec<String> {
    let mut lines = heading(finding, style);
    lines.extend(labelled("seen", &capped(&seen(finding), style), style));
    lines.extend(labelled("effect", &capped(&sentences(finding.effect, style), style), style));
    match finding.commands.split_first() {
        Some((first, rest)) => lines.push(command(first, rest.len(), style)),
        None => lines.extend(labelled("remedy", &capped(&sentences(finding.remedy, style), style), style)),
    }
    lines.extend(labelled("unless", &capped(&sentences(finding.unless, style), style), style));
    lines
}

/// The block with all evidence, commands and sources.
pub(super) fn full(finding: &Finding, style: Style) -> Vec<String> {
    let mut lines = heading(finding, style);
    for (index, item) in finding.evidence.iter().enumerate() {
        let text = format!("{}: {} ({})", item.what, value(&item.value), item.read_from);
        lines.extend(labelled(if index == 0 { "seen" } else { "" }, &text, style));
    }
    lines.extend(labelled("effect", finding.effect, style));
    lines.extend(labelled("source", finding.source, style));
    lines.extend(labelled("kernels", finding.kernels, style));
    lines.extend(labelled("remedy", finding.remedy, style));
    // A command is not broken: it is there to be copied.
    lines.extend(finding.commands.iter().map(|command| format!("{}$ {command}", " ".repeat(INDENT))));
    lines.extend(labelled("unless", finding.unless, style));
    lines
}

fn heading(finding: &Finding, style: Style) -> Vec<String> {
    let severity = style.paint(tone(finding.severity), &format!("{:<INDENT$}", finding.severity.name()));
    let mut lines = vec![format!("{severity}{}", style.paint(tone(finding.severity), finding.id))];
    lines.extend(labelled("", &finding.title, style));
    for line in lines.iter_mut().skip(1) {
        *line = style.paint(Tone::Strong, line);
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

/// A command in one line, and how many more there are.
fn command(first: &str, more: usize, style: Style) -> String {
    let more = match more {
        0 => String::new(),
        1 => "  and one more".to_owned(),
        more => format!("  and {more} more"),
    };
    let label = style.paint(Tone::Faint, &format!("{:<INDENT$}", "do"));
    let room = width(style).saturating_sub(more.chars().count()).max(20);
    format!("{label}{}{}", cut(first, room), style.paint(Tone::Faint, &more))
}

/// As many sentences as fit, but at least one.
fn sentences(text: &str, style: Style) -> String {
    let room = width(style) * MOST_LINES;
    let mut end = 0;
    for (index, _) in text.match_indices(". ") {
        if end > 0 && index + 1 > room {
            return text.get(..end).unwrap_or(text).to_owned();
        }
        end = index + 1;
    }
    let all = text.chars().count() <= room || end == 0;
    text.get(..if all { text.len() } else { end }).unwrap_or(text).to_owned()
}

/// At most so many lines.
fn capped(text: &str, style: Style) -> String {
    let lines = wrap(text, width(style));
    if lines.len() <= MOST_LINES {
        return text.to_owned();
    }
    let kept: Vec<String> = lines.into_iter().take(MOST_LINES).collect();
    cut(&format!("{} …", kept.join(" ")), width(style) * MOST_LINES - 4)
}

fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let kept: String = text.chars().take(most.saturating_sub(1)).collect();
    format!("{}…", kept.trim_end_matches([' ', ',', '…']))
}

fn width(style: Style) -> usize {
    style.width.min(WIDEST).saturating_sub(INDENT).max(20)
}

fn labelled(label: &str, text: &str, style: Style) -> Vec<String> {
    if text.is_empty() {
        return Vec::new();
    }
    let label = style.paint(Tone::Faint, &format!("{label:<INDENT$}"));
    let mut labels = vec![label];
    wrap(text, width(style))
        .into_iter()
        .map(|line| format!("{}{line}", labels.pop().unwrap_or_else(|| " ".repeat(INDENT))))
        .collect()
}

fn tone(severity: Severity) -> Tone {
    match severity {
        Severity::High => Tone::Bad,
        Severity::Medium => Tone::Warn,
        Severity::Low => Tone::Strong,
        Severity::Note => Tone::Faint,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NARROW: Style = Style { width: 48, colour: false };

    #[test]
    fn sentences_end_where_they_end() {
        let text =
            "One sentence of some length, as they are. Another one that is longer than the first. A third.";
        assert_eq!(sentences(text, NARROW), "One sentence of some length, as they are.");
        assert_eq!(sentences("Short. And 4.6.3 too.", NARROW), "Short. And 4.6.3 too.");
        assert_eq!(sentences("no end", NARROW), "no end");
    }

    #[test]
    fn what_is_cut_says_so() {
        assert_eq!(cut("abcdef", 6), "abcdef");
        assert_eq!(cut("abc, def", 5), "abc…");
        let long = "word ".repeat(60);
        let lines = wrap(&capped(&long, NARROW), width(NARROW));
        assert!(
            lines.len() <= MOST_LINES && lines.last().is_some_and(|last| last.ends_with('…')),
            "{lines:?}"
        );
    }
}
