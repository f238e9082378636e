//! A panel fitted into a width: lines of painted pieces, aligned.

use linerate_host::Severity;
use linerate_host::live::{HistoryItem, SnapshotHistory};

use super::panel::{PanelRow, RowBlock, TopPanel};
use super::spark::spark;
use crate::render::style::TextTone;

/// A piece of text and its tone.
pub(crate) type StyledSpan = (String, TextTone);

// Narrowest and widest curve, in columns.
const LEAST_CURVE: usize = 6;
const MOST_CURVE: usize = 30;

/// Columns of this rank and above are removed for a curve.
const FOR_CURVE: u8 = 3;
// Added to the rank of a column that has no values, so that it is removed first.
const UNTOLD: u8 = 10;

/// The columns that fit into the width.
struct ColumnLayout {
    name: usize,
    // Width by column; `None` for a removed column.
    cells: Vec<Option<usize>>,
    /// By head, whether its text begins at the left.
    left: Vec<bool>,
    curve: usize,
    width: usize,
}

/// A panel that is fitted into a width, with only the visible lines made.
pub(crate) struct PanelFit<'p> {
    panel: &'p TopPanel,
    history: Option<&'p SnapshotHistory>,
    layout: ColumnLayout,
    lines: Vec<FittedLine<'p>>,
}

enum FittedLine<'p> {
    Block(&'p RowBlock),
    Row(&'p PanelRow),
    Folded(&'p str),
}

impl<'p> PanelFit<'p> {
    /// Adds curves if there is a history.
    pub(crate) fn new(panel: &'p TopPanel, history: Option<&'p SnapshotHistory>, width: usize) -> Self {
        let block_lines = |block: &'p RowBlock| {
            let rows = block.rows.iter().map(FittedLine::Row);
            std::iter::once(FittedLine::Block(block))
                .chain(rows)
                .chain(block.folded.as_deref().map(FittedLine::Folded))
        };
        let lines = panel.blocks.iter().flat_map(block_lines).collect();
        Self { panel, history, layout: ColumnLayout::for_panel(panel, history.is_some(), width), lines }
    }

    pub(crate) fn heads(&self) -> Vec<StyledSpan> {
        self.layout.heads(self.panel)
    }

    /// Number of lines.
    pub(crate) fn len(&self) -> usize {
        self.lines.len()
    }

    /// The line of an item.
    pub(crate) fn position(&self, item: &HistoryItem) -> Option<usize> {
        self.lines.iter().position(|line| match line {
            FittedLine::Block(block) => block.item.as_ref() == Some(item),
            FittedLine::Row(row) => row.item == *item,
            FittedLine::Folded(_) => false,
        })
    }

    pub(crate) fn lines(&self, first_index: usize) -> impl Iterator<Item = Vec<StyledSpan>> + '_ {
        self.lines.iter().skip(first_index).map(|line| match line {
            FittedLine::Block(block) => self.layout.block(block),
            FittedLine::Row(row) => self.layout.row(row, self.history),
            FittedLine::Folded(folded) => {
                vec![cut(&format!("    {folded}"), self.layout.width, TextTone::Faint)]
            }
        })
    }
}

// The sign of a finding's severity, readable without colour.
pub(crate) fn severity_sign(mark: Option<Severity>) -> StyledSpan {
    match mark {
        Some(Severity::High) => ("▲".to_owned(), TextTone::Bad),
        Some(Severity::Medium) => ("◆".to_owned(), TextTone::Warn),
        Some(Severity::Low) => ("•".to_owned(), TextTone::Warn),
        Some(Severity::Note) => ("·".to_owned(), TextTone::Faint),
        None => (" ".to_owned(), TextTone::Plain),
    }
}

impl ColumnLayout {
    fn for_panel(panel: &TopPanel, has_curves: bool, width: usize) -> Self {
        let rows = || panel.blocks.iter().flat_map(|block| &block.rows);
        // A long name must leave space for the figures.
        let name = rows().map(|row| length(&row.name)).max().unwrap_or(4).clamp(3, (width * 2 / 5).max(3));
        let mut cells: Vec<Option<usize>> = panel
            .heads
            .iter()
            .enumerate()
            .map(|(index, heading)| {
                let widest =
                    rows().filter_map(|row| row.cells.get(index)).map(|cell| length(&cell.text)).max();
                Some(widest.unwrap_or(0).max(length(heading.title)).min(12))
            })
            .collect();
        // The sign and a blank, the name, and two blanks before each cell.
        let used_width =
            |cells: &[Option<usize>]| 2 + name + cells.iter().flatten().map(|width| width + 2).sum::<usize>();
        // Columns without values are removed first; a column of high rank stays even before a
        // curve.
        let is_unknown =
            |index: usize| rows().all(|row| row.cells.get(index).is_none_or(|cell| cell.text == "–"));
        let rank = |index: usize| {
            let rank = panel.heads.get(index).map_or(0, |heading| heading.rank);
            if is_unknown(index) { rank + UNTOLD } else { rank }
        };
        let curve_width = if has_curves { LEAST_CURVE + 2 } else { 0 };
        loop {
            let kept_columns =
                (0..cells.len()).filter(|index| cells.get(*index).is_some_and(Option::is_some));
            let Some(lowest) = kept_columns.max_by_key(|index| (rank(*index), *index)) else { break };
            let needed_width = used_width(&cells) + if rank(lowest) >= FOR_CURVE { curve_width } else { 0 };
            if needed_width <= width {
                break;
            }
            if let Some(cell) = cells.get_mut(lowest) {
                *cell = None;
            }
        }
        let spare_width = width.saturating_sub(used_width(&cells) + 2);
        let curve = if has_curves && spare_width >= LEAST_CURVE { spare_width.min(MOST_CURVE) } else { 0 };
        let left = panel.heads.iter().map(|heading| heading.left).collect();
        Self { name, cells, left, curve, width }
    }

    fn heads(&self, panel: &TopPanel) -> Vec<StyledSpan> {
        let mut text = " ".repeat(2 + self.name);
        for (heading, width) in panel.heads.iter().zip(&self.cells) {
            let Some(width) = width else { continue };
            let title = if heading.left {
                format!("  {:<width$}", heading.title)
            } else {
                format!("  {:>width$}", heading.title)
            };
            text.push_str(&title);
        }
        vec![cut(&text, self.width, TextTone::Faint)]
    }

    fn block(&self, block: &RowBlock) -> Vec<StyledSpan> {
        let tone = if block.gone { TextTone::Faint } else { TextTone::Strong };
        let title: String = block.title.chars().take(self.width.saturating_sub(2)).collect();
        let facts_width = self.width.saturating_sub(2 + length(&title) + 2);
        let mut spans = vec![severity_sign(block.mark), (" ".to_owned(), TextTone::Plain), (title, tone)];
        if facts_width >= 4 && !block.facts.is_empty() {
            spans.push(("  ".to_owned(), TextTone::Plain));
            spans.push(cut(&block.facts, facts_width, TextTone::Faint));
        }
        spans
    }

    fn row(&self, row: &PanelRow, history: Option<&SnapshotHistory>) -> Vec<StyledSpan> {
        let tone_of = |tone: TextTone| if row.gone { TextTone::Faint } else { tone };
        let name = cut(&row.name, self.name, TextTone::Plain).0;
        let mut spans = vec![
            severity_sign(row.mark),
            (format!(" {name:<width$}", width = self.name), tone_of(TextTone::Plain)),
        ];
        if row.gone {
            spans.push(("  gone".to_owned(), TextTone::Faint));
            return spans;
        }
        for (cell, (width, is_left_aligned)) in row.cells.iter().zip(self.cells.iter().zip(&self.left)) {
            let Some(width) = width else { continue };
            let text = cut(&cell.text, *width, cell.tone).0;
            spans.push(match is_left_aligned {
                true => (format!("  {text:<width$}"), cell.tone),
                false => (format!("  {text:>width$}"), cell.tone),
            });
        }
        if let Some(history) = history.filter(|_| self.curve > 0) {
            let figures: Vec<Option<f64>> = history.values(&row.item, row.metric).collect();
            spans.push((format!("  {}", spark(&figures, self.curve)), TextTone::Faint));
        }
        spans
    }
}

/// Width of a text in columns. No character here is wider than one column.
fn length(text: &str) -> usize {
    text.chars().count()
}

fn cut(text: &str, width: usize, tone: TextTone) -> StyledSpan {
    if length(text) <= width {
        return (text.to_owned(), tone);
    }
    let prefix: String = text.chars().take(width.saturating_sub(1)).collect();
    (format!("{prefix}…"), tone)
}
