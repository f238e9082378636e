//! A stage of the path in `linerate top`: blocks of rows of cells, before column widths are known.

use linerate_host::Severity;
use linerate_host::live::{HistoryItem, HistoryMetric};

use crate::render::style::TextTone;

/// The stages with a panel, in the order in which a packet passes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PanelStage {
    Queues,
    Cpus,
    Sockets,
    Threads,
    Out,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TopPanel {
    pub(crate) stage: PanelStage,
    /// The columns of cells after the name.
    pub(crate) heads: Vec<PanelHead>,
    pub(crate) blocks: Vec<RowBlock>,
    /// Reason why there is nothing to show.
    pub(crate) unknown: Option<String>,
    // Whether no row matches the filter, so that all rows are shown.
    pub(crate) unfiltered: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PanelHead {
    pub(crate) title: &'static str,
    /// If the width is too small, columns of the highest rank are removed first.
    pub(crate) rank: u8,
    /// Whether text in the column begins at the left.
    pub(crate) left: bool,
}

/// Rows that belong together.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct RowBlock {
    // The item of the rows. `None` if it has no details to open.
    pub(crate) item: Option<HistoryItem>,
    pub(crate) title: String,
    /// Further words, which are cut first.
    pub(crate) facts: String,
    pub(crate) mark: Option<Severity>,
    pub(crate) gone: bool,
    pub(crate) rows: Vec<PanelRow>,
    /// A summary of the folded rows.
    pub(crate) folded: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PanelRow {
    pub(crate) item: HistoryItem,
    pub(crate) name: String,
    /// The text that a filter searches.
    pub(crate) words: String,
    pub(crate) mark: Option<Severity>,
    pub(crate) gone: bool,
    pub(crate) idle: bool,
    /// A cell for each head.
    pub(crate) cells: Vec<PanelCell>,
    /// Figures to sort by, in the order of [`PanelStage::sorts`] after the first.
    pub(crate) figures: [f64; 2],
    /// The metric of the row's curve.
    pub(crate) metric: HistoryMetric,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PanelCell {
    pub(crate) text: String,
    pub(crate) tone: TextTone,
}

/// The order and the selection of rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RowSelection {
    /// By stage, the index in [`PanelStage::sorts`].
    pub(crate) sorts: [usize; 5],
    /// Lower-case words that rows must contain; empty for all.
    pub(crate) filter: String,
    /// Whether idle rows are shown one by one.
    pub(crate) unfolded: bool,
}

// Blocks of no more rows than this are never folded.
const FEW: usize = 8;

impl PanelStage {
    pub(crate) const ALL: [PanelStage; 5] =
        [PanelStage::Queues, PanelStage::Cpus, PanelStage::Sockets, PanelStage::Threads, PanelStage::Out];

    pub(crate) fn title(self) -> &'static str {
        match self {
            PanelStage::Queues => "QUEUES",
            PanelStage::Cpus => "IRQ / CPU",
            PanelStage::Sockets => "SOCKETS",
            PanelStage::Threads => "THREADS",
            PanelStage::Out => "OUT",
        }
    }

    /// The sort orders of its rows; the first is their own order.
    pub(crate) fn sorts(self) -> [&'static str; 3] {
        match self {
            PanelStage::Queues | PanelStage::Out => ["queue", "packets", "drops"],
            PanelStage::Cpus => ["CPU", "softirq", "packets"],
            PanelStage::Sockets => ["socket", "fill", "drops"],
            PanelStage::Threads => ["thread", "time", "CPU"],
        }
    }

    pub(crate) fn index(self) -> usize {
        Self::ALL.iter().position(|stage| *stage == self).unwrap_or(0)
    }
}

impl PanelCell {
    pub(crate) fn new(text: impl Into<String>, tone: TextTone) -> Self {
        Self { text: text.into(), tone }
    }

    /// The cell of an unknown value.
    pub(crate) fn unknown() -> Self {
        Self::new("–", TextTone::Faint)
    }
}

impl TopPanel {
    /// The panel with the selected rows, in the selected order.
    pub(crate) fn with_selection(mut self, selection: &RowSelection) -> Self {
        self.filter(&selection.filter);
        let sort = selection.sorts.get(self.stage.index()).copied().unwrap_or(0);
        for block in &mut self.blocks {
            if let Some(figure) = sort.checked_sub(1) {
                let sort_value = |row: &PanelRow| {
                    let figure = row.figures.get(figure).copied().filter(|figure| !figure.is_nan());
                    figure.unwrap_or(f64::NEG_INFINITY)
                };
                // Descending; rows without a value come last.
                block.rows.sort_by(|left, right| sort_value(right).total_cmp(&sort_value(left)));
            }
            if !selection.unfolded {
                block.fold(self.stage);
            }
        }
        self
    }

    fn filter(&mut self, filter: &str) {
        if filter.is_empty() {
            return;
        }
        let is_match = |row: &PanelRow| row.words.to_lowercase().contains(filter);
        let matches_filter =
            |block: &RowBlock| block.title.to_lowercase().contains(filter) || block.rows.iter().any(is_match);
        if !self.blocks.iter().any(matches_filter) {
            self.unfiltered = true;
            return;
        }
        self.blocks.retain(matches_filter);
        for block in &mut self.blocks {
            if !block.title.to_lowercase().contains(filter) {
                block.rows.retain(is_match);
            }
        }
    }

    /// The items that can be selected, from top to bottom.
    pub(crate) fn items(&self) -> Vec<HistoryItem> {
        let mut items = Vec::new();
        for block in &self.blocks {
            items.extend(block.item.clone());
            items.extend(block.rows.iter().map(|row| row.item.clone()));
        }
        items
    }
}

impl RowBlock {
    fn fold(&mut self, stage: PanelStage) {
        if self.rows.len() <= FEW {
            return;
        }
        let is_kept =
            |row: &PanelRow| !row.idle || row.gone || row.mark.is_some_and(|mark| mark >= Severity::Medium);
        let row_count = self.rows.len();
        let unknown_count = self.rows.iter().filter(|row| !is_kept(row) && row.figures[0].is_nan()).count();
        self.rows.retain(is_kept);
        let folded_count = row_count - self.rows.len();
        if folded_count == 0 {
            return;
        }
        let noun = match stage {
            PanelStage::Queues | PanelStage::Out => "queues",
            PanelStage::Cpus => "CPUs",
            PanelStage::Sockets => "sockets",
            PanelStage::Threads => "threads",
        };
        self.folded = Some(match unknown_count == folded_count {
            true => format!("{folded_count} {noun} without figures"),
            false => format!("{folded_count} idle {noun}"),
        });
    }
}
