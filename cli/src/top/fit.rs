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
        let of_block = |block: &'p RowBlock| {
            let rows = block.rows.iter().map(FittedLine::Row);
            std::iter::once(FittedLine::Block(block))
                .chain(rows)
                .chain(block.folded.as_deref().map(FittedLine::Folded))
        };
        let lines = panel.blocks.iter().flat_map(of_block).collect();
        Self { panel, history, layout: ColumnLayout::of(panel, history.is_some(), width), lines }
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

    /// The lines from index `from` on.
    pub(crate) fn lines(&self, from: usize) -> impl Iterator<Item = Vec<StyledSpan>> + '_ {
        self.lines.iter().skip(from).map(|line| match line {
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
    fn of(panel: &TopPanel, curves: bool, width: usize) -> Self {
        let rows = || panel.blocks.iter().flat_map(|block| &block.rows);
        // A long name must leave space for the figures.
        let name = rows().map(|row| length(&row.name)).max().unwrap_or(4).clamp(3, (width * 2 / 5).max(3));
        let mut cells: Vec<Option<usize>> = panel
            .heads
            .iter()
            .enumerate()
            .map(|(index, head)| {
                let widest =
                    rows().filter_map(|row| row.cells.get(index)).map(|cell| length(&cell.text)).max();
                Some(widest.unwrap_or(0).max(length(head.title)).min(12))
            })
            .collect();
        // The sign and a blank, the name, and two blanks before each cell.
        let used =
            |cells: &[Option<usize>]| 2 + name + cells.iter().flatten().map(|width| width + 2).sum::<usize>();
        // Columns without values are removed first; a column of high rank stays even before a
        // curve.
        let untold =
            |index: usize| rows().all(|row| row.cells.get(index).is_none_or(|cell| cell.text == "–"));
        let rank = |index: usize| {
            let rank = panel.heads.get(index).map_or(0, |head| head.rank);
            if untold(index) { rank + UNTOLD } else { rank }
        };
        let curve = if curves { LEAST_CURVE + 2 } else { 0 };
        loop {
            let kept = (0..cells.len()).filter(|index| cells.get(*index).is_some_and(Option::is_some));
            let Some(last) = kept.max_by_key(|index| (rank(*index), *index)) else { break };
            let needed = used(&cells) + if rank(last) >= FOR_CURVE { curve } else { 0 };
            if needed <= width {
                break;
            }
            if let Some(cell) = cells.get_mut(last) {
                *cell = None;
            }
        }
        let over = width.saturating_sub(used(&cells) + 2);
        let curve = if curves && over >= LEAST_CURVE { over.min(MOST_CURVE) } else { 0 };
        let left = panel.heads.iter().map(|head| head.left).collect();
        Self { name, cells, left, curve, width }
    }

    fn heads(&self, panel: &TopPanel) -> Vec<StyledSpan> {
        let mut text = " ".repeat(2 + self.name);
        for (head, width) in panel.heads.iter().zip(&self.cells) {
            let Some(width) = width else { continue };
            let title = if head.left {
                format!("  {:<width$}", head.title)
            } else {
                format!("  {:>width$}", head.title)
            };
            text.push_str(&title);
        }
        vec![cut(&text, self.width, TextTone::Faint)]
    }

    fn block(&self, block: &RowBlock) -> Vec<StyledSpan> {
        let tone = if block.gone { TextTone::Faint } else { TextTone::Strong };
        let title: String = block.title.chars().take(self.width.saturating_sub(2)).collect();
        let left = self.width.saturating_sub(2 + length(&title) + 2);
        let mut pieces = vec![severity_sign(block.mark), (" ".to_owned(), TextTone::Plain), (title, tone)];
        if left >= 4 && !block.facts.is_empty() {
            pieces.push(("  ".to_owned(), TextTone::Plain));
            pieces.push(cut(&block.facts, left, TextTone::Faint));
        }
        pieces
    }

    fn row(&self, row: &PanelRow, history: Option<&SnapshotHistory>) -> Vec<StyledSpan> {
        let faint = |tone: TextTone| if row.gone { TextTone::Faint } else { tone };
        let name = cut(&row.name, self.name, TextTone::Plain).0;
        let mut pieces = vec![
            severity_sign(row.mark),
            (format!(" {name:<width$}", width = self.name), faint(TextTone::Plain)),
        ];
        if row.gone {
            pieces.push(("  gone".to_owned(), TextTone::Faint));
            return pieces;
        }
        for (cell, (width, left)) in row.cells.iter().zip(self.cells.iter().zip(&self.left)) {
            let Some(width) = width else { continue };
            let text = cut(&cell.text, *width, cell.tone).0;
            pieces.push(match left {
                true => (format!("  {text:<width$}"), cell.tone),
                false => (format!("  {text:>width$}"), cell.tone),
            });
        }
        if let Some(history) = history.filter(|_| self.curve > 0) {
            let figures: Vec<Option<f64>> = history.of(&row.item, row.metric).collect();
            pieces.push((format!("  {}", spark(&figures, self.curve)), TextTone::Faint));
        }
        pieces
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
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    (format!("{kept}…"), tone)
}
