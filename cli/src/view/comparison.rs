//! Two runs compared: `--compare` of `load`, `lab`, `ladder` and `cost`.

use linerate_host::stats::{ComparisonVerdict, ConfidenceInterval, RunComparison, RunFigure};

use crate::document::{Cell, Document, Fact, Mark, Section, Table, Tone};
use crate::envelope::{CommandResult, Envelope};
use crate::render::format::{percent, ratio, significant};
use crate::view::ladder::verdict_name;

impl CommandResult for RunComparison {
    const SCHEMA: &'static str = "linerate.comparison/1";

    fn document(envelope: &Envelope<Self>) -> Document {
        let comparison = &envelope.result;
        let mut document = envelope.new_document("Comparison", sentence(comparison));
        document.mark = Some(mark(comparison.verdict));
        let names = ["old", "new"].into_iter().zip(&comparison.names);
        let names = names.map(|(label, name)| Fact::new(label, name.clone())).collect::<Vec<_>>();
        document.sections = vec![
            Section::new("Results").with(names),
            Section::new("Figures").with(figures(&comparison.figures)),
        ];
        document
    }
}

pub(crate) fn mark(verdict: ComparisonVerdict) -> Mark {
    Mark::new(tone(verdict), verdict_name(verdict))
}

fn tone(verdict: ComparisonVerdict) -> Tone {
    match verdict {
        ComparisonVerdict::Better => Tone::Good,
        ComparisonVerdict::Worse => Tone::Bad,
        ComparisonVerdict::NoDifferenceShown => Tone::Plain,
    }
}

/// The verdict with the figure that decides it.
pub(crate) fn sentence(comparison: &RunComparison) -> String {
    let deciding_figure = comparison.figures.iter().find(|figure| figure.verdict == comparison.verdict);
    let figure_text = deciding_figure.map_or_else(String::new, |figure| match figure.values[1].median {
        0.0 => format!(": {} is 0", figure.key),
        _ => format!(": {} is {} of the old one", figure.key, interval(&figure.ratio, ratio)),
    });
    match comparison.verdict {
        ComparisonVerdict::Better => format!("The new run is better{figure_text}."),
        ComparisonVerdict::Worse => format!("The new run is worse{figure_text}."),
        ComparisonVerdict::NoDifferenceShown => {
            format!("No difference beyond {} shown{figure_text}.", percent(comparison.tolerance_ratio))
        }
    }
}

/// A row per figure.
pub(crate) fn figures(figures: &[RunFigure]) -> Table {
    let rows = figures.iter().map(|figure| {
        [
            Cell::from(figure.key.clone()),
            Cell::from(significant(figure.values[0].median)),
            Cell::from(significant(figure.values[1].median)),
            Cell::from(interval(&figure.ratio, ratio)),
            Cell { text: verdict_name(figure.verdict).to_owned(), tone: tone(figure.verdict) },
        ]
    });
    Table::new(" | >old | >new | >new by old (95 %) | verdict").with_rows(rows)
}

/// `answered_ratio ×0.81`.
pub(crate) fn ratio_words(figure: &RunFigure) -> String {
    format!("{} {}", figure.key, ratio(figure.ratio.median))
}

/// `×0.98 (×0.97 to ×0.99)`.
fn interval(value: &ConfidenceInterval, to_text: fn(f64) -> String) -> String {
    match (value.low, value.high) {
        (Some(low), Some(high)) => {
            format!("{} ({} to {})", to_text(value.median), to_text(low), to_text(high))
        }
        _ => to_text(value.median),
    }
}
