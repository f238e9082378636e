//! Documents as text for a terminal.

use super::column::{TextColumn, cut};
use super::format;
use super::style::{TextStyle, on_one_line, wrap};
use crate::document::{
    Align, Audience, BarChart, Block, Cell, Document, Fact, FlowGroup, LineChart, RangeChart, Table, Tone,
};

/// Longer lines are hard to read.
const WIDEST_PROSE: usize = 100;
// Indent of the blocks of a section.
const INDENT: usize = 2;

/// The reader of the text.
#[derive(Clone, Copy)]
pub(super) struct Reader {
    pub(super) style: TextStyle,
    /// Whether everything is printed.
    pub(super) full: bool,
}

impl Reader {
    fn audience(self) -> Audience {
        if self.full { Audience::FullText } else { Audience::ShortText }
    }
}

/// The document, without the tiles and the other parts that only pages have.
pub(crate) fn text(document: &Document, style: TextStyle) -> String {
    let reader = Reader { style, full: document.full };
    let mut lines = Vec::new();
    if !document.verdict.is_empty() {
        let tone = document.mark.as_ref().map_or(Tone::Strong, |mark| mark.tone);
        lines.extend(prose_lines(0, &document.verdict, tone, reader));
    }
    let (alarms, remarks): (Vec<_>, Vec<_>) =
        document.notes.iter().partition(|note| matches!(note.tone, Tone::Bad | Tone::Warn));
    for note in alarms {
        lines.extend(prose_lines(0, format!("{} {}", note.lead, note.text).trim(), note.tone, reader));
    }
    for section in &document.sections {
        let blocks: Vec<&Block> = section.blocks_for(reader.audience()).collect();
        if blocks.is_empty() {
            continue;
        }
        if !lines.is_empty() {
            lines.push(String::new());
        }
        let mark = section.mark.as_ref().map(|mark| (mark.tone, mark.words.clone()));
        let identifier = section.identifier.clone().map(|identifier| (Tone::Strong, identifier));
        let labels: Vec<String> = mark
            .into_iter()
            .chain(identifier)
            .map(|(tone, words)| reader.style.paint(tone, &words))
            .collect();
        let indent = if section.heading.is_empty() { 0 } else { INDENT };
        if !labels.is_empty() {
            lines.push(labels.join("  "));
        }
        if !section.heading.is_empty() {
            let heading_indent = if labels.is_empty() { 0 } else { INDENT };
            lines.extend(prose_lines(heading_indent, &section.heading, Tone::Strong, reader));
        }
        let mut follows_facts = false;
        for block in blocks {
            let is_facts = matches!(block, Block::Facts(_));
            let block = block_lines(block, indent, reader);
            // A blank line separates facts from the next block.
            if follows_facts && !is_facts && !block.is_empty() {
                lines.push(String::new());
            }
            follows_facts = is_facts && !block.is_empty();
            lines.extend(block);
        }
    }
    if !remarks.is_empty() {
        lines.push(String::new());
    }
    for note in remarks {
        lines.extend(prose_lines(0, &format!("note: {} {}", note.lead, note.text), Tone::Faint, reader));
    }
    lines.push(String::new());
    lines.join("\n")
}

fn block_lines(block: &Block, indent: usize, reader: Reader) -> Vec<String> {
    match block {
        Block::Paragraph(tone, text) => prose_lines(indent, text, *tone, reader),
        Block::Heading(text) => {
            vec![format!("{}{}", " ".repeat(indent), reader.style.paint(Tone::Strong, text))]
        }
        Block::List(items) => {
            items.iter().flat_map(|item| hanging_lines(indent, "- ", item, reader)).collect()
        }
        Block::Table(table) => table_lines(table, indent, reader),
        Block::Facts(facts) => fact_lines(facts, indent, reader),
        Block::Bars(chart) => bar_lines(chart, indent, reader),
        Block::Ranges(chart) => range_lines(chart, indent, reader),
        Block::Lines(chart) => line_chart_lines(chart, indent, reader),
        Block::Commands(commands) => {
            commands.iter().map(|command| format!("{}$ {command}", " ".repeat(indent))).collect()
        }
        Block::Details { summary, blocks, .. } => {
            let summary_lines = prose_lines(indent, summary, Tone::Plain, reader);
            let detail_lines = blocks.iter().flat_map(|block| block_lines(block, indent + INDENT, reader));
            summary_lines.into_iter().chain(detail_lines).collect()
        }
        Block::Picture(_) => Vec::new(),
        Block::Flows(groups) => flow_lines(groups, reader),
    }
}

fn prose_lines(indent: usize, text: &str, tone: Tone, reader: Reader) -> Vec<String> {
    let width = reader.style.width.min(WIDEST_PROSE).saturating_sub(indent).max(20);
    let margin = " ".repeat(indent);
    wrap(text, width).iter().map(|line| format!("{margin}{}", reader.style.paint(tone, line))).collect()
}

/// Prose after a label. Further lines begin below the first word.
fn hanging_lines(indent: usize, label: &str, text: &str, reader: Reader) -> Vec<String> {
    TextColumn { style: reader.style, before: indent, label: label.chars().count() }.labelled(label, text)
}

fn fact_lines(facts: &[Fact], indent: usize, reader: Reader) -> Vec<String> {
    let label = facts.iter().map(|fact| fact.name.chars().count()).max().unwrap_or(0) + 2;
    let column = TextColumn { style: reader.style, before: indent, label };
    let mut lines = Vec::new();
    for fact in facts {
        let value = format!("{} {}", fact.value, fact.detail);
        let value = match fact.text_lines.filter(|_| !reader.full) {
            Some(max_lines) => column.shortened(value.trim(), max_lines),
            None => value.trim().to_owned(),
        };
        lines.extend(column.labelled(&fact.name, &value));
        let mut commands = fact.commands.as_slice();
        if let ("", [first, further_commands @ ..]) = (&*value, commands) {
            lines.extend(column.labelled(&fact.name, "$").iter().map(|label| format!("{label} {first}")));
            commands = further_commands;
        }
        lines.extend(commands.iter().map(|command| column.whole_command(command)));
    }
    lines
}

fn bar_lines(chart: &BarChart, indent: usize, reader: Reader) -> Vec<String> {
    let name_width = chart.bars.iter().map(|bar| bar.name.chars().count()).max().unwrap_or(0);
    let margin = " ".repeat(indent);
    let mut lines = Vec::new();
    for bar in &chart.bars {
        let name = on_one_line(&bar.name);
        lines.push(format!("{margin}{name:<name_width$}  {}", bar.value).trim_end().to_owned());
        for (tone, lead, text) in &bar.details {
            lines.extend(prose_lines(indent + INDENT, format!("{lead} {text}").trim(), *tone, reader));
        }
    }
    lines.extend(caption_lines(&chart.caption, indent, reader));
    lines
}

fn range_lines(chart: &RangeChart, indent: usize, reader: Reader) -> Vec<String> {
    let mut table = Table::with_columns(["", ">", "", ""]);
    for row in &chart.rows {
        let skip_text = row.skipped.as_ref().map(|reason| format!("skipped: {reason}"));
        let badge = row.badge.as_ref().map(|badge| {
            let words = format!("{} {} {}", badge.sign, badge.ratio, badge.words);
            Cell::toned(words.trim(), badge.tone)
        });
        table.row([
            row.label.clone().into(),
            row.value.clone().into(),
            skip_text.unwrap_or_else(|| row.detail.clone()).into(),
            badge.unwrap_or_default(),
        ]);
    }
    let mut lines = prose_lines(indent, chart.axis, Tone::Faint, reader);
    lines.extend(table_lines(&table, indent, reader));
    lines
}

const ARROW: &str = " → ";

/// Groups in one frame, a path per line.
fn flow_lines(groups: &[FlowGroup], reader: Reader) -> Vec<String> {
    let mut widths: Vec<usize> = Vec::new();
    for cells in groups.iter().flat_map(|group| &group.rows) {
        widths.resize(cells.len().max(widths.len()), 0);
        for (width, cell) in widths.iter_mut().zip(cells) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut lines = Vec::new();
    for (index, group) in groups.iter().enumerate() {
        let corner = if index == 0 { "┌" } else { "├" };
        lines.push(format!("{corner} {}", reader.style.paint(Tone::Strong, &group.heading)));
        if group.rows.is_empty() && !group.empty.is_empty() {
            lines.push(format!("│ {}", reader.style.paint(Tone::Faint, group.empty)));
        }
        lines.extend(group.rows.iter().flat_map(|cells| flow_row(cells, &widths, reader)));
    }
    lines.push("└".to_owned());
    lines
}

// A path in one line, or broken before an arrow into several lines.
fn flow_row(cells: &[String], widths: &[usize], reader: Reader) -> Vec<String> {
    let max_width = reader.style.width.saturating_sub(2).max(30);
    let arrows_width = ARROW.chars().count() * cells.len().saturating_sub(1);
    let fits = widths.iter().sum::<usize>() + arrows_width <= max_width;
    let mut lines = Vec::new();
    let mut line = String::new();
    for (index, cell) in cells.iter().enumerate() {
        let width = if fits { widths.get(index).copied().unwrap_or(0) } else { 0 };
        let cell = format!("{cell:<width$}");
        if line.is_empty() {
            line = cell;
        } else if line.chars().count() + ARROW.chars().count() + cell.trim_end().chars().count() > max_width {
            lines.push(std::mem::replace(&mut line, format!("   {}{cell}", ARROW.trim_start())));
        } else {
            line = format!("{line}{ARROW}{cell}");
        }
    }
    lines.push(line);
    lines.iter().map(|line| format!("│ {}", line.trim_end())).collect()
}

// Few points as a table; a long series needs a page.
fn line_chart_lines(chart: &LineChart, indent: usize, reader: Reader) -> Vec<String> {
    const MOST_POINTS: usize = 40;
    let mut lines = Vec::new();
    for series in chart.series.iter().filter(|series| series.values.len() <= MOST_POINTS) {
        let mut table = Table::with_columns([">", ">"]);
        for (x_value, value) in &series.values {
            let value = format::known_text(*value, chart.upward.format);
            table.row([(chart.across.format)(*x_value), value]);
        }
        lines.extend(prose_lines(
            indent,
            &format!("{}, {}", series.name, chart.upward.name),
            Tone::Faint,
            reader,
        ));
        lines.extend(table_lines(&table, indent, reader));
    }
    lines
}

fn caption_lines(caption: &str, indent: usize, reader: Reader) -> Vec<String> {
    if caption.is_empty() { Vec::new() } else { prose_lines(indent, caption, Tone::Plain, reader) }
}

// Each column is as wide as its widest cell. The last cell of a line that is too long is cut.
pub(super) fn table_lines(table: &Table, indent: usize, reader: Reader) -> Vec<String> {
    let columns: Vec<usize> =
        (0..table.columns.len()).filter(|&column| table.shows(column, reader.audience())).collect();
    let text_limit = table.text_limit.filter(|_| !reader.full);
    let limit = text_limit.map_or(usize::MAX, |(rows, _)| rows);
    let heading_row: Vec<Cell> =
        table.columns.iter().map(|column| Cell::toned(column.heading, Tone::Faint)).collect();
    let heading_row = table.has_headings().then_some(&heading_row);
    let rows: Vec<&Vec<Cell>> = heading_row.into_iter().chain(table.rows.iter().take(limit)).collect();
    let cell_text = |row: &[Cell], column: usize| {
        let cell = row.get(column).map(|cell| on_one_line(&cell.text)).unwrap_or_default();
        table.columns[column].text_width.map_or_else(|| cell.clone(), |width| cut(&cell, width))
    };
    let widths: Vec<usize> = columns
        .iter()
        .map(|&column| rows.iter().map(|row| cell_text(row, column).chars().count()).max().unwrap_or(0))
        .collect();
    let mut lines = Vec::new();
    for row in rows {
        let (mut line, mut used_width) = (" ".repeat(indent), indent);
        let mut continuation_lines = Vec::new();
        for (index, (&column, &width)) in columns.iter().zip(&widths).enumerate() {
            if index > 0 {
                line.push_str("  ");
                used_width += 2;
            }
            let is_last = index + 1 == columns.len();
            let cell = cell_text(row, column);
            let tone = row.get(column).map_or(Tone::Plain, |cell| cell.tone);
            if is_last && table.wraps && table.columns[column].align == Align::Left {
                let mut cell = wrap(&cell, reader.style.width.saturating_sub(used_width).max(24)).into_iter();
                line.push_str(&reader.style.paint(tone, &cell.next().unwrap_or_default()));
                let margin = " ".repeat(used_width);
                continuation_lines
                    .extend(cell.map(|cell| format!("{margin}{}", reader.style.paint(tone, &cell))));
                continue;
            }
            let cell = match table.columns[column].align {
                Align::Right => format!("{cell:>width$}"),
                Align::Left if is_last => cut(&cell, reader.style.width.saturating_sub(used_width).max(12)),
                Align::Left => format!("{cell:<width$}"),
            };
            used_width += cell.chars().count();
            // Blanks at the end of a line are not worth a colour.
            let cell = if is_last { cell.trim_end() } else { &cell };
            line.push_str(&reader.style.paint(tone, cell));
        }
        lines.push(line.trim_end().to_owned());
        lines.extend(continuation_lines);
    }
    if let Some((limit, words)) = text_limit {
        let hidden_rows = table.rows.len().saturating_sub(limit);
        if hidden_rows > 0 {
            lines.extend(prose_lines(indent, &format!("and {hidden_rows} {words}"), Tone::Faint, reader));
        }
    }
    lines.extend(caption_lines(&table.caption, indent, reader));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{Mark, Note, Section};

    #[test]
    fn columns_fit_their_content_and_long_lines_are_cut() {
        let table = Table::new("># | name | what")
            .with_rows([["1", "n\nd", "reads"], ["10", "n", "a text that is too long for the line"]]);
        let reader = Reader { style: TextStyle { width: 30, colour: false }, full: false };
        let expected = ["    #  name  what", "    1  n d   reads", "   10  n     a text that is t…"];
        assert_eq!(table_lines(&table, 3, reader), expected);
        let limited = table.with_text_limit(1, "that read less");
        assert_eq!(
            table_lines(&limited, 0, reader),
            ["#  name  what", "1  n d   reads", "and 1 that read less"]
        );
    }

    #[test]
    fn text_has_verdict_sections_and_notes_in_order() {
        let mut document = Document {
            verdict: "One is bad.".to_owned(),
            mark: Some(Mark::new(Tone::Bad, "1 finding")),
            notes: vec![Note::new("a remark"), Note::alarm("Stopped.", "Half of it is missing.")],
            ..Document::default()
        };
        let commands = vec!["ls".to_owned(), "ps".to_owned()];
        document.sections = vec![
            Section::new("Empty").with(Table::new("a")),
            Section::new("For pages").only_for(Audience::Page).with("text"),
            Section::new("Facts")
                .with(vec![Fact::new("kernel", "6.18"), Fact { commands, ..Fact::new("do", "") }])
                .with("text"),
        ];
        let expected = "One is bad.\nStopped. Half of it is missing.\n\nFacts\n  kernel  6.18\n  do      $ ls\n          $ ps\n\n  \
                        text\n\nnote: a remark\n";
        assert_eq!(text(&document, TextStyle { width: 80, colour: false }), expected);
    }
}
