//! The charts of a run, ready to be drawn: positions in per cent, texts in their final form.

use super::axis::ValueAxis;
use crate::document::{self, MarkShape, RangeRow};

/// Rows over a common axis.
pub(crate) struct RangeChart<'a> {
    /// The quantity, with its unit.
    pub(crate) axis: String,
    /// Vertical lines. Empty for an empty chart.
    pub(crate) ticks: Vec<ChartTick>,
    /// From top to bottom.
    pub(crate) rows: Vec<ChartRow<'a>>,
}

/// A vertical line with its value.
pub(crate) struct ChartTick {
    /// Position in per cent from the left.
    pub(crate) at: String,
    pub(crate) label: String,
    /// The widths of the axis at which the label is shown: classes of figures.css, one of [`WIDTHS`] each.
    pub(crate) classes: String,
}

/// The least widths of an axis, rem, for each choice of labels. A narrower axis uses the first
/// choice. figures.css has a class for each width.
const WIDTHS: [(f64, &str); 7] = [
    (3.0, "at-3"),
    (5.0, "at-5"),
    (8.0, "at-8"),
    (11.0, "at-11"),
    (15.0, "at-15"),
    (20.0, "at-20"),
    (28.0, "at-28"),
];

// The greatest width of a letter of a label, and the gap between two labels, in rem.
const LETTER: f64 = 0.45;
const BETWEEN: f64 = 0.4;

pub(crate) struct ChartRow<'a> {
    pub(crate) row: &'a RangeRow,
    /// Ends of the horizontal line, in per cent.
    pub(crate) span: Option<(String, String)>,
    pub(crate) marks: Vec<ChartMark>,
    /// Lines to the rows above and below, which meet half way; position in per cent at the edge.
    pub(crate) links: RowLinks,
}

/// Positions where the line through the points crosses the edges of a row.
#[derive(Default)]
pub(crate) struct RowLinks {
    /// The row's own point.
    pub(crate) own: String,
    /// At the upper edge.
    pub(crate) above: Option<String>,
    /// At the lower edge.
    pub(crate) below: Option<String>,
}

pub(crate) struct ChartMark {
    /// Position in per cent from the left.
    pub(crate) at: String,
    pub(crate) shape: MarkShape,
}

/// The chart with its values placed on the axis.
pub(crate) fn draw(chart: &document::RangeChart) -> RangeChart<'_> {
    let values = chart.rows.iter().flat_map(|row| {
        let ends = row.span.map_or(Vec::new(), |(low, high)| vec![low, high]);
        ends.into_iter().chain(row.marks.iter().map(|mark| mark.at)).chain(row.linked)
    });
    let values: Vec<f64> = values.chain(chart.include.iter().copied()).collect();
    let axis = ValueAxis::of_scale(chart.scale, &values);
    let rows = chart.rows.iter().map(|row| ChartRow {
        row,
        span: row.span.map(|(low, high)| (position_text(&axis, low), position_text(&axis, high))),
        marks: row
            .marks
            .iter()
            .map(|mark| ChartMark { at: position_text(&axis, mark.at), shape: mark.shape })
            .collect(),
        links: RowLinks::default(),
    });
    let mut rows: Vec<ChartRow<'_>> = rows.collect();
    let points: Vec<Option<f64>> =
        chart.rows.iter().map(|row| row.linked.map(|value| axis.position(value))).collect();
    link_rows(&mut rows, &points);
    let scale = if axis.is_log { ", logarithmic" } else { "" };
    RangeChart {
        axis: format!("{}{scale}", chart.axis),
        ticks: if values.is_empty() { Vec::new() } else { ticks(&axis, chart.ticks, chart.format) },
        rows,
    }
}

// Joins each row's point with the points of its neighbours, if they have one.
fn link_rows(rows: &mut [ChartRow<'_>], points: &[Option<f64>]) {
    let midpoint = |upper: Option<f64>, lower: Option<f64>| {
        upper.zip(lower).map(|(upper, lower)| percent((upper + lower) / 2.0))
    };
    for (index, row) in rows.iter_mut().enumerate() {
        let own_point = points[index];
        let previous_point = index.checked_sub(1).and_then(|previous| points[previous]);
        let next_point = points.get(index + 1).copied().flatten();
        row.links = RowLinks {
            own: own_point.map(percent).unwrap_or_default(),
            above: midpoint(own_point, previous_point),
            below: midpoint(own_point, next_point),
        };
    }
}

// At most `max_ticks` lines. At each width, every n-th line has a label, with the smallest n at which
// labels do not overlap.
fn ticks(axis: &ValueAxis, max_ticks: usize, label: impl Fn(f64) -> String) -> Vec<ChartTick> {
    let values = axis.ticks(max_ticks);
    let labels: Vec<(f64, String)> =
        values.into_iter().map(|value| (axis.position(value), label(value))).collect();
    let strides = WIDTHS.map(|(width, _)| label_stride(&labels, width));
    let classes_of = |index: usize| {
        let matching = WIDTHS.iter().zip(strides).filter(move |(_, stride)| index.is_multiple_of(*stride));
        matching.map(|((_, class), _)| *class).collect::<Vec<_>>().join(" ")
    };
    let classes: Vec<String> = (0..labels.len()).map(classes_of).collect();
    let ticks = labels.into_iter().zip(classes);
    ticks.map(|((position, label), classes)| ChartTick { at: percent(position), label, classes }).collect()
}

// The least n for which every n-th label has enough space, on an axis of `width` rem.
fn label_stride(labels: &[(f64, String)], width: f64) -> usize {
    let half_width = |label: &str| label.chars().count() as f64 * LETTER / 2.0;
    let has_room = |stride: usize| {
        let kept_labels: Vec<&(f64, String)> = labels.iter().step_by(stride).collect();
        kept_labels.windows(2).all(|pair| {
            let distance = (pair[1].0 - pair[0].0) / 100.0 * width;
            distance >= half_width(&pair[0].1) + half_width(&pair[1].1) + BETWEEN
        })
    };
    (1..labels.len()).find(|&stride| has_room(stride)).unwrap_or(labels.len().max(1))
}

fn position_text(axis: &ValueAxis, value: f64) -> String {
    percent(axis.position(value))
}

fn percent(value: f64) -> String {
    format!("{value:.2}%")
}
