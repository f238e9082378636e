//! Charts of a document as values, which the renderer places.

/// Bars of segments next to each other, over a common scale.
#[derive(Debug, Clone, Default)]
pub(crate) struct BarChart {
    /// The meaning of the fills; may be empty.
    pub(crate) legend: Vec<(SegmentFill, &'static str)>,
    /// The meaning of a bar's tick, for the legend.
    pub(crate) tick_legend: Option<&'static str>,
    pub(crate) bars: Vec<StackedBar>,
    /// Text below the chart; may be empty.
    pub(crate) caption: String,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct StackedBar {
    pub(crate) name: String,
    /// Small print below the name; may be empty.
    pub(crate) name_aside: String,
    /// The figure in words, to the right.
    pub(crate) value: String,
    /// The bar in one sentence, for screen readers and tooltips.
    pub(crate) description: String,
    pub(crate) segments: Vec<BarSegment>,
    /// A second figure of the same scale, 0 to 1, as a tick.
    pub(crate) tick: Option<f64>,
    /// Lines below the bar: a figure or name in bold, then words.
    pub(crate) details: Vec<(super::Tone, String, String)>,
}

/// A part of a bar.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BarSegment {
    pub(crate) fill: SegmentFill,
    /// Share of the whole width, 0 to 1.
    pub(crate) share: f64,
}

/// The part of a bar that a segment shows; it determines the colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SegmentFill {
    Receive,
    Transmit,
    Interrupt,
    Other,
    Tasks,
    Idle,
    Passed,
    Lost,
    Waiting,
}

/// How an axis spreads its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum ChartScale {
    /// From zero.
    #[default]
    Linear,
    /// Between lowest and highest value.
    LinearZoomed,
    Logarithmic,
    // Linear if the values allow it, else logarithmic.
    Automatic,
}

/// Rows over a common axis: a horizontal line, marks on it, the figure in words.
#[derive(Debug, Clone)]
pub(crate) struct RangeChart {
    /// The quantity on the axis: `transactions per second`.
    pub(crate) axis: &'static str,
    pub(crate) scale: ChartScale,
    /// Values that the axis must include besides those in the rows.
    pub(crate) include: Vec<f64>,
    // Ticks of a logarithmic axis at most.
    pub(crate) ticks: usize,
    /// How a tick is printed.
    pub(crate) format: fn(f64) -> String,
    pub(crate) layout: RangeLayout,
    /// The meaning of the marks' shapes; may be empty.
    pub(crate) legend: Vec<(MarkShape, &'static str)>,
    pub(crate) rows: Vec<RangeRow>,
}

/// The space for words next to a chart's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RangeLayout {
    /// A value with its uncertainty, and a badge.
    Comparison,
    /// Several figures.
    Figures,
    // One short figure; drawn in another colour, because other people measured it.
    Published,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct RangeRow {
    pub(crate) label: String,
    /// The row in one sentence, for screen readers and tooltips.
    pub(crate) description: String,
    /// Reason why there is nothing to show.
    pub(crate) skipped: Option<String>,
    /// Ends of the line.
    pub(crate) span: Option<(f64, f64)>,
    pub(crate) marks: Vec<RangeMark>,
    /// A point that is joined with those of the neighbouring rows.
    pub(crate) linked: Option<f64>,
    pub(crate) value: String,
    /// Next to the value: its uncertainty, or its unit.
    pub(crate) detail: String,
    pub(crate) badge: Option<Badge>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct RangeMark {
    pub(crate) at: f64,
    pub(crate) shape: MarkShape,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MarkShape {
    Dot,
    Ring,
    Bar,
}

/// A comparison's verdict. A sign and words carry it, not the colour alone.
#[derive(Debug, Clone)]
pub(crate) struct Badge {
    pub(crate) tone: super::Tone,
    pub(crate) sign: &'static str,
    pub(crate) words: String,
    pub(crate) ratio: String,
    /// Interval of the ratio; may be empty.
    pub(crate) interval: String,
    /// The name of the compared row.
    pub(crate) against: String,
}

/// Series over a common horizontal axis.
#[derive(Debug, Clone)]
pub(crate) struct LineChart {
    /// Its heading, if it is one of several in a section; may be empty.
    pub(crate) title: String,
    pub(crate) across: LineAxis,
    pub(crate) upward: LineAxis,
    pub(crate) series: Vec<LineSeries>,
    /// A value of the horizontal axis that matters, with its label.
    pub(crate) marker: Option<(f64, String)>,
}

#[derive(Debug, Clone)]
pub(crate) struct LineAxis {
    pub(crate) name: &'static str,
    pub(crate) scale: ChartScale,
    /// Values that the axis must include besides those of the series.
    pub(crate) include: Vec<f64>,
    pub(crate) format: fn(f64) -> String,
}

#[derive(Debug, Clone)]
pub(crate) struct LineSeries {
    pub(crate) style: LineStyle,
    pub(crate) name: &'static str,
    /// `None` is a gap.
    pub(crate) values: Vec<(f64, Option<f64>)>,
    /// Whether lines join the points.
    pub(crate) joined: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineStyle {
    First,
    Second,
    Third,
    /// Points that meet a condition.
    Holds,
    /// Points that do not meet the condition.
    Fails,
}

impl BarChart {
    // Segments of these shares, cut so that they fit the bar.
    pub(crate) fn segments(shares: impl IntoIterator<Item = (SegmentFill, f64)>) -> Vec<BarSegment> {
        let mut remaining = 1.0;
        shares
            .into_iter()
            .map(|(fill, share)| {
                let share = if share.is_finite() { share.clamp(0.0, remaining) } else { 0.0 };
                remaining -= share;
                BarSegment { fill, share }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bar_segments_are_limited_to_the_whole_bar() {
        use SegmentFill::{Idle, Receive, Transmit};
        let all = BarChart::segments([(Receive, 0.7), (Transmit, 0.6), (Idle, 0.1), (Idle, f64::NAN)]);
        let shares: Vec<String> = all.iter().map(|segment| format!("{:.1}", segment.share)).collect();
        assert_eq!(shares, ["0.7", "0.3", "0.0", "0.0"]);
    }
}
