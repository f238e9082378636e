//! Curves over a common horizontal axis, ready to be drawn.

use std::fmt::Write as _;

use super::axis::ValueAxis;
use crate::document::{LineAxis, LineChart, LineSeries, LineStyle};

/// The plot's size and its place in the drawing. The space around it is for labels.
const LEFT: f64 = 58.0;
const TOP: f64 = 10.0;
const WIDTH: f64 = 592.0;
const HEIGHT: f64 = 190.0;

// More points are thinned out, and have no marks.
const MOST_POINTS: usize = 1_200;
const MOST_MARKED: usize = 150;

pub(crate) struct CurveChart {
    /// Lines at round values of the horizontal axis.
    pub(crate) verticals: Vec<PlotLine>,
    /// Lines at round values of the vertical axis.
    pub(crate) horizontals: Vec<PlotLine>,
    /// From back to front.
    pub(crate) series: Vec<DrawnSeries>,
    /// A value of the horizontal axis to mark.
    pub(crate) mark: Option<AxisMarker>,
}

/// A marked value of the horizontal axis.
pub(crate) struct AxisMarker {
    /// Position in units of the drawing.
    pub(crate) at: String,
    pub(crate) label: String,
    /// Whether the label is to the left, because there is more space.
    pub(crate) before: bool,
}

/// A line across the plot, with its label.
pub(crate) struct PlotLine {
    /// Position in units of the drawing.
    pub(crate) at: String,
    pub(crate) label: String,
}

pub(crate) struct DrawnSeries {
    // The style: `one` to `three` by rank, `holds`, `fails`.
    pub(crate) class: &'static str,
    pub(crate) name: &'static str,
    /// Parts of the line without a gap.
    pub(crate) paths: Vec<String>,
    /// Points with their labels.
    pub(crate) points: Vec<CurvePoint>,
}

pub(crate) struct CurvePoint {
    pub(crate) x: String,
    pub(crate) y: String,
    pub(crate) told: String,
}

/// The horizontal or the vertical axis of a chart, with its scale.
struct ChartAxis<'a> {
    axis: &'a LineAxis,
    scale: ValueAxis,
}

impl<'a> ChartAxis<'a> {
    fn new(axis: &'a LineAxis, values: impl Iterator<Item = f64>) -> Self {
        let values: Vec<f64> = values.chain(axis.include.iter().copied()).collect();
        Self { axis, scale: ValueAxis::of_scale(axis.scale, &values) }
    }
}

/// The chart with its values placed on both axes.
pub(crate) fn draw(chart: &LineChart) -> CurveChart {
    let points = || chart.series.iter().flat_map(|series| &series.values);
    let x_axis = ChartAxis::new(&chart.across, points().map(|(x_value, _)| *x_value));
    let y_axis = ChartAxis::new(&chart.upward, points().filter_map(|(_, value)| *value));
    let line = |offset: f64, label: String| PlotLine { at: number(offset), label };
    let verticals = x_axis.scale.ticks(8).into_iter();
    let horizontals = y_axis.scale.ticks(6).into_iter();
    CurveChart {
        verticals: verticals.map(|tick| line(x(&x_axis, tick), (x_axis.axis.format)(tick))).collect(),
        horizontals: horizontals.map(|tick| line(y(&y_axis, tick), (y_axis.axis.format)(tick))).collect(),
        series: chart.series.iter().map(|series| draw_series(series, &x_axis, &y_axis)).collect(),
        mark: chart.marker.as_ref().map(|(value, label)| {
            let offset = x(&x_axis, *value);
            AxisMarker { at: number(offset), label: label.clone(), before: offset > LEFT + WIDTH / 2.0 }
        }),
    }
}

fn line_class(style: LineStyle) -> &'static str {
    match style {
        LineStyle::First => "one",
        LineStyle::Second => "two",
        LineStyle::Third => "three",
        LineStyle::Holds => "holds",
        LineStyle::Fails => "fails",
    }
}

fn x(x_axis: &ChartAxis<'_>, value: f64) -> f64 {
    LEFT + x_axis.scale.position(value) / 100.0 * WIDTH
}

fn y(y_axis: &ChartAxis<'_>, value: f64) -> f64 {
    TOP + (1.0 - y_axis.scale.position(value) / 100.0) * HEIGHT
}

fn draw_series(series: &LineSeries, x_axis: &ChartAxis<'_>, y_axis: &ChartAxis<'_>) -> DrawnSeries {
    let mut paths = Vec::new();
    if series.joined {
        for segment in series.values.split(|(_, value)| value.is_none()) {
            let values: Vec<(f64, f64)> =
                segment.iter().filter_map(|(x_value, value)| Some((*x_value, (*value)?))).collect();
            let mut path = String::new();
            for (x_value, value) in thinned(&values) {
                // Writing to a string cannot fail.
                let _ = write!(path, "{},{} ", number(x(x_axis, x_value)), number(y(y_axis, value)));
            }
            if values.len() > 1 {
                paths.push(path.trim_end().to_owned());
            }
        }
    }
    let has_points = series.values.len() <= MOST_MARKED || !series.joined;
    let points = series.values.iter().filter(|_| has_points).filter_map(|(x_value, value)| {
        let value = (*value)?;
        Some(CurvePoint {
            x: number(x(x_axis, *x_value)),
            y: number(y(y_axis, value)),
            told: format!(
                "{}: {} at {}",
                series.name,
                (y_axis.axis.format)(value),
                (x_axis.axis.format)(*x_value)
            ),
        })
    });
    DrawnSeries { class: line_class(series.style), name: series.name, paths, points: points.collect() }
}

/// Reduces many points but keeps the shape: of each run of points, the lowest and the highest stay.
fn thinned(values: &[(f64, f64)]) -> Vec<(f64, f64)> {
    if values.len() <= MOST_POINTS {
        return values.to_vec();
    }
    let run = values.len().div_ceil(MOST_POINTS / 2);
    let ends = values.chunks(run).flat_map(|chunk| {
        let by_value = |left: &&(f64, f64), right: &&(f64, f64)| left.1.total_cmp(&right.1);
        let (low, high) = (chunk.iter().min_by(by_value), chunk.iter().max_by(by_value));
        let mut ends: Vec<(f64, f64)> = [low, high].into_iter().flatten().copied().collect();
        // In the order of the horizontal axis, because the line must not go backwards.
        ends.sort_by(|left, right| left.0.total_cmp(&right.0));
        ends
    });
    ends.collect()
}

fn number(value: f64) -> String {
    format!("{value:.1}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::ChartScale;

    fn axis() -> LineAxis {
        let format = |value: f64| value.to_string();
        LineAxis { name: "x", scale: ChartScale::Linear, include: vec![10.0], format }
    }

    #[test]
    fn a_missing_value_splits_the_curve() {
        let values =
            vec![(0.0, Some(0.0)), (1.0, Some(10.0)), (2.0, None), (3.0, Some(1.0)), (4.0, Some(2.0))];
        let curves = draw(&LineChart {
            title: String::new(),
            across: axis(),
            upward: axis(),
            series: vec![LineSeries { style: LineStyle::First, name: "s", values, joined: true }],
            marker: Some((5.0, "here".to_owned())),
        });
        assert_eq!(curves.series[0].paths, ["58.0,200.0 117.2,10.0", "235.6,181.0 294.8,162.0"]);
        assert_eq!(curves.series[0].points.len(), 4);
        assert_eq!(curves.series[0].points[1].told, "s: 10 at 1");
        assert_eq!(curves.mark.map(|mark| mark.at), Some("354.0".to_owned()));
    }

    #[test]
    fn thinning_keeps_extreme_points_in_order() {
        let values: Vec<(f64, f64)> =
            (0..100_000).map(|i| (f64::from(i), if i == 77_777 { 1e6 } else { f64::from(i % 7) })).collect();
        let points = thinned(&values);
        assert!(points.len() <= MOST_POINTS + 2 && points.contains(&(77_777.0, 1e6)));
        assert!(points.windows(2).all(|pair| pair[0].0 <= pair[1].0));
    }
}
