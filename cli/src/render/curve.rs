//! Curves over a common horizontal axis, ready to be drawn.

use std::fmt::Write as _;

use super::axis::ValueAxis;
use crate::document::{LineAxis, LineChart, LineStyle};

/// The plot's size and its place in the drawing. The space around it is for labels.
const LEFT: f64 = 58.0;
const TOP: f64 = 10.0;
const WIDTH: f64 = 592.0;
const HEIGHT: f64 = 190.0;

// More points are thinned out, and have no marks.
const MOST_POINTS: usize = 1_200;
const MOST_MARKED: usize = 150;

pub(crate) struct CurveChart {
    /// The label of the horizontal axis.
    pub(crate) across: &'static str,
    /// The label of the vertical axis.
    pub(crate) upward: &'static str,
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

/// A drawn series.
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

/// A series of values; `None` is a gap.
pub(crate) struct CurveSeries {
    /// As in [`DrawnSeries`].
    pub(crate) class: &'static str,
    pub(crate) name: &'static str,
    pub(crate) values: Vec<(f64, Option<f64>)>,
    /// Whether the values follow each other.
    pub(crate) joined: bool,
}

/// The horizontal or the vertical axis of a chart.
pub(crate) struct ChartAxis {
    pub(crate) name: &'static str,
    pub(crate) axis: ValueAxis,
    /// Prints a value.
    pub(crate) read: fn(f64) -> String,
}

/// The chart with its values placed on both axes.
pub(crate) fn draw(chart: &LineChart) -> CurveChart {
    let points = || chart.series.iter().flat_map(|series| &series.values);
    let axis = |axis: &LineAxis, values: Vec<f64>| {
        let values: Vec<f64> = values.into_iter().chain(axis.include.iter().copied()).collect();
        ChartAxis { name: axis.name, axis: ValueAxis::of_scale(axis.scale, &values), read: axis.format }
    };
    let across = axis(&chart.across, points().map(|(at, _)| *at).collect());
    let upward = axis(&chart.upward, points().filter_map(|(_, value)| *value).collect());
    let series: Vec<CurveSeries> = chart
        .series
        .iter()
        .map(|series| CurveSeries {
            class: match series.style {
                LineStyle::First => "one",
                LineStyle::Second => "two",
                LineStyle::Third => "three",
                LineStyle::Holds => "holds",
                LineStyle::Fails => "fails",
            },
            name: series.name,
            values: series.values.clone(),
            joined: series.joined,
        })
        .collect();
    self::chart(&across, &upward, &series, chart.marker.clone())
}

/// A chart of `series`, with a line at `mark` of the horizontal axis if it is given.
fn chart(
    across: &ChartAxis,
    upward: &ChartAxis,
    series: &[CurveSeries],
    mark: Option<(f64, String)>,
) -> CurveChart {
    let line = |at: f64, label: String| PlotLine { at: number(at), label };
    let verticals = across.axis.ticks(8).into_iter().map(|tick| line(x(across, tick), (across.read)(tick)));
    let horizontals = upward.axis.ticks(6).into_iter().map(|tick| line(y(upward, tick), (upward.read)(tick)));
    CurveChart {
        across: across.name,
        upward: upward.name,
        verticals: verticals.collect(),
        horizontals: horizontals.collect(),
        series: series.iter().map(|series| drawn(series, across, upward)).collect(),
        mark: mark.map(|(value, label)| {
            let at = x(across, value);
            AxisMarker { at: number(at), label, before: at > LEFT + WIDTH / 2.0 }
        }),
    }
}

fn x(across: &ChartAxis, value: f64) -> f64 {
    LEFT + across.axis.position(value) / 100.0 * WIDTH
}

fn y(upward: &ChartAxis, value: f64) -> f64 {
    TOP + (1.0 - upward.axis.position(value) / 100.0) * HEIGHT
}

fn drawn(series: &CurveSeries, across: &ChartAxis, upward: &ChartAxis) -> DrawnSeries {
    let mut paths = Vec::new();
    if series.joined {
        for stretch in series.values.split(|(_, value)| value.is_none()) {
            let values: Vec<(f64, f64)> =
                stretch.iter().filter_map(|(at, value)| Some((*at, (*value)?))).collect();
            let mut path = String::new();
            for (at, value) in thinned(&values) {
                // Writing to a string cannot fail.
                let _ = write!(path, "{},{} ", number(x(across, at)), number(y(upward, value)));
            }
            if values.len() > 1 {
                paths.push(path.trim_end().to_owned());
            }
        }
    }
    let marked = series.values.len() <= MOST_MARKED || !series.joined;
    let points = series.values.iter().filter(|_| marked).filter_map(|(at, value)| {
        let value = (*value)?;
        Some(CurvePoint {
            x: number(x(across, *at)),
            y: number(y(upward, value)),
            told: format!("{}: {} at {}", series.name, (upward.read)(value), (across.read)(*at)),
        })
    });
    DrawnSeries { class: series.class, name: series.name, paths, points: points.collect() }
}

/// Reduces many points but keeps the shape: of each run of points, the lowest and the highest stay.
fn thinned(values: &[(f64, f64)]) -> Vec<(f64, f64)> {
    if values.len() <= MOST_POINTS {
        return values.to_vec();
    }
    let run = values.len().div_ceil(MOST_POINTS / 2);
    let ends = values.chunks(run).flat_map(|chunk| {
        let by_value = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
        let (lowest, highest) = (chunk.iter().min_by(by_value), chunk.iter().max_by(by_value));
        let mut ends: Vec<(f64, f64)> = [lowest, highest].into_iter().flatten().copied().collect();
        // In the order of the horizontal axis, because the line must not go backwards.
        ends.sort_by(|a, b| a.0.total_cmp(&b.0));
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

    fn direction() -> ChartAxis {
        ChartAxis { name: "x", axis: ValueAxis::linear([10.0]), read: |value| value.to_string() }
    }

    #[test]
    fn a_gap_parts_the_line() {
        let values =
            vec![(0.0, Some(0.0)), (1.0, Some(10.0)), (2.0, None), (3.0, Some(1.0)), (4.0, Some(2.0))];
        let series = [CurveSeries { class: "one", name: "s", values, joined: true }];
        let curves = chart(&direction(), &direction(), &series, Some((5.0, "here".to_owned())));
        assert_eq!(curves.series[0].paths, ["58.0,200.0 117.2,10.0", "235.6,181.0 294.8,162.0"]);
        assert_eq!(curves.series[0].points.len(), 4);
        assert_eq!(curves.series[0].points[1].told, "s: 10 at 1");
        assert_eq!(curves.mark.map(|mark| mark.at), Some("354.0".to_owned()));
    }

    #[test]
    fn many_points_keep_their_extremes() {
        let values: Vec<(f64, f64)> =
            (0..100_000).map(|i| (f64::from(i), if i == 77_777 { 1e6 } else { f64::from(i % 7) })).collect();
        let thin = thinned(&values);
        assert!(thin.len() <= MOST_POINTS + 2 && thin.contains(&(77_777.0, 1e6)));
        assert!(thin.windows(2).all(|pair| pair[0].0 <= pair[1].0));
    }
}
