//! What the charts of a run show, ready to be drawn: positions in per cent, texts as they are read.

use linerate_lab::ladder::report::{LadderReport, PublishedLadder, PublishedStep, StepReport};
use linerate_load::stats::ComparisonVerdict;

use super::axis::ValueAxis;
use super::{format, summary};
use crate::document::{self, MarkShape, Tone};

/// Rows over a common axis.
pub(crate) struct RangeChart {
    /// What the axis counts, and how.
    pub(crate) axis: String,
    /// Vertical lines; none where there is nothing to show.
    pub(crate) ticks: Vec<ChartTick>,
    /// From top to bottom.
    pub(crate) rows: Vec<ChartRow>,
}

/// A vertical line with its value.
pub(crate) struct ChartTick {
    /// In per cent from the left.
    pub(crate) at: String,
    pub(crate) label: String,
    /// The widths of the axis at which the label is shown: classes of figures.css, one of [`WIDTHS`] each.
    pub(crate) classes: String,
}

/// The least widths of an axis, rem, from which on a choice of its labels holds; a narrower one is taken for the first. figures.css
/// has a class for each.
const WIDTHS: [(f64, &str); 7] = [
    (3.0, "at-3"),
    (5.0, "at-5"),
    (8.0, "at-8"),
    (11.0, "at-11"),
    (15.0, "at-15"),
    (20.0, "at-20"),
    (28.0, "at-28"),
];

/// What a letter of a label takes at most, and what is to be between two labels, rem.
const LETTER: f64 = 0.45;
const BETWEEN: f64 = 0.4;

/// One row of a chart.
pub(crate) struct ChartRow {
    /// What the row is of.
    pub(crate) label: String,
    /// The row in one sentence, for those who hear or point at it.
    pub(crate) told: String,
    /// Why there is nothing to show.
    pub(crate) skipped: Option<String>,
    /// Ends of the horizontal line, in per cent.
    pub(crate) span: Option<(String, String)>,
    pub(crate) marks: Vec<ChartMark>,
    /// Lines to the rows above and below, met half way, in per cent at the edge.
    pub(crate) links: RowLinks,
    pub(crate) value: String,
    /// What goes with the figure: its doubt, or its unit.
    pub(crate) aside: String,
    /// Against the row compared with.
    pub(crate) badge: Option<VerdictBadge>,
}

/// Where the line through the points crosses the edges of a row.
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
    /// In per cent from the left.
    pub(crate) at: String,
    /// `dot`, `ring` or `bar`.
    pub(crate) shape: &'static str,
}

/// A verdict: never told by colour alone.
pub(crate) struct VerdictBadge {
    /// `better`, `worse` or `same`.
    pub(crate) class: &'static str,
    /// A sign for it.
    pub(crate) sign: &'static str,
    /// The verdict in words.
    pub(crate) words: String,
    pub(crate) ratio: String,
    pub(crate) interval: String,
    /// What it was compared with.
    pub(crate) against: String,
}

/// The chart with its values placed on the axis.
pub(crate) fn draw(chart: &document::RangeChart) -> RangeChart {
    let values = chart.rows.iter().flat_map(|row| {
        let ends = row.span.map_or(Vec::new(), |(low, high)| vec![low, high]);
        ends.into_iter().chain(row.marks.iter().map(|mark| mark.at)).chain(row.linked)
    });
    let values: Vec<f64> = values.chain(chart.include.iter().copied()).collect();
    let axis = ValueAxis::of_scale(chart.scale, &values);
    let rows = chart.rows.iter().map(|row| ChartRow {
        label: row.label.clone(),
        told: row.description.clone(),
        skipped: row.skipped.clone(),
        span: row.span.map(|(low, high)| (at(&axis, low), at(&axis, high))),
        marks: row
            .marks
            .iter()
            .map(|mark| ChartMark { at: at(&axis, mark.at), shape: shape_class(mark.shape) })
            .collect(),
        links: RowLinks::default(),
        value: row.value.clone(),
        aside: row.aside.clone(),
        badge: row.badge.as_ref().map(|badge| VerdictBadge {
            class: match badge.tone {
                Tone::Good => "better",
                Tone::Bad => "worse",
                _ => "same",
            },
            sign: badge.sign,
            words: badge.words.clone(),
            ratio: badge.ratio.clone(),
            interval: badge.interval.clone(),
            against: badge.against.clone(),
        }),
    });
    let mut rows: Vec<ChartRow> = rows.collect();
    let points: Vec<Option<f64>> =
        chart.rows.iter().map(|row| row.linked.map(|value| axis.position(value))).collect();
    link(&mut rows, &points);
    let scale = if axis.is_log() { ", logarithmic" } else { "" };
    RangeChart {
        axis: format!("{}{scale}", chart.axis),
        ticks: if values.is_empty() { Vec::new() } else { ticks(&axis, chart.ticks, chart.format) },
        rows,
    }
}

/// Class of figures.css.
pub(crate) fn shape_class(shape: MarkShape) -> &'static str {
    match shape {
        MarkShape::Dot => "dot",
        MarkShape::Ring => "ring",
        MarkShape::Bar => "bar",
    }
}

/// The ladder: capacity of each step with its interval; skipped steps with their reason.
pub(crate) fn ladder(report: &LadderReport) -> RangeChart {
    let rates = || report.steps.iter().filter_map(|step| step.transactions_per_second);
    let ends: Vec<f64> = rates().flat_map(|rate| [rate.low, rate.median, rate.high]).collect();
    let axis = ValueAxis::auto_scaled(&ends);
    let mut rows: Vec<ChartRow> = report.steps.iter().map(|step| ladder_row(report, step, &axis)).collect();
    let points: Vec<Option<f64>> = report
        .steps
        .iter()
        .map(|step| {
            step.transactions_per_second.filter(|_| step.applied).map(|rate| axis.position(rate.median))
        })
        .collect();
    link(&mut rows, &points);
    RangeChart {
        axis: format!("transactions a second, {}", if axis.is_log() { "logarithmic" } else { "from zero" }),
        ticks: if ends.is_empty() { Vec::new() } else { ticks(&axis, 7, format::rate) },
        rows,
    }
}

/// Latency percentiles of each measured step.
pub(crate) fn latency(report: &LadderReport) -> Option<RangeChart> {
    let measured: Vec<_> =
        report.steps.iter().filter_map(|step| step.latency_ns.map(|latency| (step, latency))).collect();
    if measured.is_empty() {
        return None;
    }
    let axis =
        ValueAxis::log(measured.iter().flat_map(|(_, latency)| [latency.p50 as f64, latency.p999 as f64]));
    let rows = measured.iter().map(|(step, latency)| {
        let [p50, p99, p999] = [latency.p50, latency.p99, latency.p999];
        let [a, b, c] = [p50, p99, p999].map(format::microseconds);
        ChartRow {
            label: step.id.clone(),
            told: format!("{}: half within {a} us, 99 % within {b} us, 99.9 % within {c} us", step.id),
            skipped: None,
            span: Some((at(&axis, p50 as f64), at(&axis, p999 as f64))),
            marks: vec![
                ChartMark { at: at(&axis, p50 as f64), shape: "dot" },
                ChartMark { at: at(&axis, p99 as f64), shape: "ring" },
                ChartMark { at: at(&axis, p999 as f64), shape: "bar" },
            ],
            links: RowLinks::default(),
            value: format!("{a} · {b} · {c}"),
            aside: String::new(),
            badge: None,
        }
    });
    let rows = rows.collect();
    Some(RangeChart {
        axis: "microseconds from the intended send time, logarithmic".to_owned(),
        ticks: ticks(&axis, 5, |nanoseconds| format::microseconds(nanoseconds as u64)),
        rows,
    })
}

/// Share of capacity still answered under overload, of each step where it is known.
pub(crate) fn goodput(report: &LadderReport) -> Option<RangeChart> {
    let share = |step: &StepReport, factor: &str| step.goodput_at_overload.get(factor).copied().flatten();
    let measured: Vec<_> = report
        .steps
        .iter()
        .map(|step| (step, share(step, "2"), share(step, "5")))
        .filter(|(_, twice, five)| twice.is_some() || five.is_some())
        .collect();
    if measured.is_empty() {
        return None;
    }
    let shares = measured.iter().flat_map(|&(_, twice, five)| [twice, five]).flatten();
    let axis = ValueAxis::linear(shares.chain([1.0]));
    let rows = measured.iter().map(|&(step, twice, five)| {
        let read = |share: Option<f64>| share.map_or_else(|| format::UNKNOWN.to_owned(), format::percent);
        let mark = |share: Option<f64>, shape| share.map(|share| ChartMark { at: at(&axis, share), shape });
        ChartRow {
            label: step.id.clone(),
            told: format!(
                "{}: {} of capacity answered at twice the load it holds, {} at five times",
                step.id,
                read(twice),
                read(five)
            ),
            skipped: None,
            span: twice.zip(five).map(|(twice, five)| (at(&axis, five), at(&axis, twice))),
            marks: [mark(twice, "dot"), mark(five, "ring")].into_iter().flatten().collect(),
            links: RowLinks::default(),
            value: format!("{} · {}", read(twice), read(five)),
            aside: String::new(),
            badge: None,
        }
    });
    let rows = rows.collect();
    Some(RangeChart { axis: "share of capacity".to_owned(), ticks: ticks(&axis, 7, format::percent), rows })
}

/// Published ladders on one logarithmic axis, each as multiples of its own first step.
pub(crate) fn published(ladders: &[PublishedLadder]) -> Vec<(&PublishedLadder, RangeChart)> {
    let multiples = |ladder: &PublishedLadder| -> Vec<(f64, f64)> {
        let first = ladder.steps.first().map_or(f64::NAN, geometric_midpoint);
        ladder.steps.iter().map(|step| (step.low_per_second / first, step.high_per_second / first)).collect()
    };
    let axis = ValueAxis::log(ladders.iter().flat_map(multiples).flat_map(|(low, high)| [low, high]));
    ladders
        .iter()
        .map(|ladder| {
            let mut points = Vec::new();
            let mut rows: Vec<ChartRow> = Vec::new();
            for (step, (low, high)) in ladder.steps.iter().zip(multiples(ladder)) {
                let multiple = (low * high).sqrt();
                points.push(Some(axis.position(multiple)));
                rows.push(ChartRow {
                    label: step.id.clone(),
                    told: format!(
                        "{}: {} {} a second, {} its own first step; published, not measured here",
                        step.id,
                        format::rate_range(step.low_per_second, step.high_per_second),
                        ladder.counts,
                        format::ratio(multiple),
                    ),
                    skipped: None,
                    span: (low < high).then(|| (at(&axis, low), at(&axis, high))),
                    marks: vec![ChartMark { at: at(&axis, multiple), shape: "ring" }],
                    links: RowLinks::default(),
                    value: format::ratio(multiple),
                    aside: String::new(),
                    badge: None,
                });
            }
            link(&mut rows, &points);
            let axis_text = "multiples of its own first step, logarithmic".to_owned();
            (ladder, RangeChart { axis: axis_text, ticks: ticks(&axis, 4, multiple), rows })
        })
        .collect()
}

/// A step's verdict against the step it was compared with.
pub(crate) fn badge(report: &LadderReport, step: &StepReport) -> Option<VerdictBadge> {
    let versus = step.versus_previous.as_ref()?;
    let (class, sign) = match versus.verdict {
        ComparisonVerdict::Better => ("better", "▲"),
        ComparisonVerdict::Worse => ("worse", "▼"),
        ComparisonVerdict::NoDifferenceShown => ("same", "≈"),
    };
    let reverted = if summary::was_reverted(report, step) { ", undone" } else { "" };
    Some(VerdictBadge {
        class,
        sign,
        words: format!("{}{reverted}", summary::verdict_name(versus.verdict)),
        ratio: format::ratio(versus.ratio.median),
        interval: summary::ratio_interval(&versus.ratio).unwrap_or_default(),
        against: versus.id.clone(),
    })
}

fn ladder_row(report: &LadderReport, step: &StepReport, axis: &ValueAxis) -> ChartRow {
    let mut row = ChartRow {
        label: step.id.clone(),
        told: String::new(),
        skipped: None,
        span: None,
        marks: Vec::new(),
        links: RowLinks::default(),
        value: format::UNKNOWN.to_owned(),
        aside: String::new(),
        badge: badge(report, step),
    };
    if !step.applied {
        let reason = step.skipped_because.as_deref().unwrap_or("no reason recorded");
        row.told = format!("{}: skipped, {reason}", step.id);
        row.skipped = Some(reason.to_owned());
        return row;
    }
    let Some(rate) = step.transactions_per_second else {
        row.told = format!("{}: capacity unknown", step.id);
        return row;
    };
    let bound = if summary::is_lower_bound(step) { "≥" } else { "" };
    row.value = format!("{bound}{}", format::rate(rate.median));
    row.aside = match rate.samples {
        0 | 1 => "n=1".to_owned(),
        _ => format::plus_minus(rate.median, rate.low, rate.high),
    };
    row.span = Some((at(axis, rate.low), at(axis, rate.high)));
    row.marks.push(ChartMark { at: at(axis, rate.median), shape: "dot" });
    row.told = format!(
        "{}: {} transactions a second, interval {}{}",
        step.id,
        row.value,
        format::rate_range(rate.low, rate.high),
        row.badge
            .as_ref()
            .map(|badge| format!("; {} the rate of {}, {}", badge.ratio, badge.against, badge.words))
            .unwrap_or_default(),
    );
    row
}

/// Joins each row's point with those of the rows beside it that have one.
fn link(rows: &mut [ChartRow], points: &[Option<f64>]) {
    let half_way = |a: Option<f64>, b: Option<f64>| a.zip(b).map(|(a, b)| percent((a + b) / 2.0));
    for (index, row) in rows.iter_mut().enumerate() {
        let own = points[index];
        let above = index.checked_sub(1).and_then(|above| points[above]);
        let below = points.get(index + 1).copied().flatten();
        row.links = RowLinks {
            own: own.map(percent).unwrap_or_default(),
            above: half_way(own, above),
            below: half_way(own, below),
        };
    }
}

/// A round multiple: `×0.1`, `×30`.
fn multiple(value: f64) -> String {
    // Fewer digits than a ratio has: ticks lie on round values, but for the error of powers of ten.
    format!("×{}", (value * 1e6).round() / 1e6)
}

fn geometric_midpoint(step: &PublishedStep) -> f64 {
    (step.low_per_second * step.high_per_second).sqrt()
}

/// At most `most` lines. At each width every one, every second, every third and so on is labelled, as many as do not run into each
/// other.
fn ticks(axis: &ValueAxis, most: usize, label: impl Fn(f64) -> String) -> Vec<ChartTick> {
    let values = axis.ticks(most);
    let labels: Vec<(f64, String)> =
        values.into_iter().map(|value| (axis.position(value), label(value))).collect();
    let every = WIDTHS.map(|(width, _)| labelled(&labels, width));
    let shown = |index: usize| {
        let wide = WIDTHS.iter().zip(every).filter(move |(_, every)| index.is_multiple_of(*every));
        wide.map(|((_, class), _)| *class).collect::<Vec<_>>().join(" ")
    };
    let classes: Vec<String> = (0..labels.len()).map(shown).collect();
    let ticks = labels.into_iter().zip(classes);
    ticks.map(|((position, label), classes)| ChartTick { at: percent(position), label, classes }).collect()
}

/// Every how many labels there is room for one on an axis of so many rem.
fn labelled(labels: &[(f64, String)], width: f64) -> usize {
    let half = |label: &str| label.chars().count() as f64 * LETTER / 2.0;
    let apart = |every: usize| {
        let shown: Vec<&(f64, String)> = labels.iter().step_by(every).collect();
        shown.windows(2).all(|pair| {
            let distance = (pair[1].0 - pair[0].0) / 100.0 * width;
            distance >= half(&pair[0].1) + half(&pair[1].1) + BETWEEN
        })
    };
    (1..labels.len()).find(|&every| apart(every)).unwrap_or(labels.len().max(1))
}

fn at(axis: &ValueAxis, value: f64) -> String {
    percent(axis.position(value))
}

fn percent(value: f64) -> String {
    format!("{value:.2}%")
}
