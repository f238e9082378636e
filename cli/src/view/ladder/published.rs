//! Published ladders, for comparison of the shape.

use linerate_lab::ladder::report::{LadderReport, PublishedLadder};

use crate::document::{
    Audience, Block, ChartScale, MarkShape, RangeChart, RangeLayout, RangeMark, RangeRow, Section,
};
use crate::render::format::{rate, rate_range, ratio};

pub(super) fn section(report: &LadderReport) -> Section {
    let mut section =
        Section::new("Published ladders: other hardware, not measured here").only_for(Audience::Page);
    for ladder in &report.published {
        let host = ladder.host.as_ref().map_or_else(String::new, |host| format!(" {host}."));
        let about = format!(
            "{}.{host} {} B payload, {} per second.",
            ladder.source, ladder.payload_bytes, ladder.counts
        );
        let comparisons: Vec<String> = ladder
            .comparisons
            .iter()
            .map(|comparison| {
                let (from_rate, to_rate) = (comparison.from_per_second, comparison.to_per_second);
                format!(
                    "{}: {}, from {} to {}",
                    comparison.id,
                    ratio(to_rate / from_rate),
                    rate(from_rate),
                    rate(to_rate)
                )
            })
            .collect();
        section = section
            .with(Block::Heading(ladder.id.clone()))
            .with(Block::faint(about))
            .with(published_chart(ladder, &report.published))
            .with(Block::List(comparisons));
    }
    section
}

/// The rates as multiples of the ladder's first step. All ladders have the same axis.
fn published_chart(ladder: &PublishedLadder, ladders: &[PublishedLadder]) -> RangeChart {
    let rows = ladder.steps.iter().zip(multiples(ladder)).map(|(step, (low, high))| {
        let multiple = (low * high).sqrt();
        RangeRow {
            label: step.id.clone(),
            description: format!(
                "{}: {} {} per second, {} its own first step; published, not measured here",
                step.id,
                rate_range(step.low_per_second, step.high_per_second),
                ladder.counts,
                ratio(multiple),
            ),
            span: (low < high).then_some((low, high)),
            marks: vec![RangeMark { at: multiple, shape: MarkShape::Ring }],
            linked: Some(multiple),
            value: ratio(multiple),
            ..RangeRow::default()
        }
    });
    RangeChart {
        axis: "multiples of its own first step",
        scale: ChartScale::Logarithmic,
        include: ladders.iter().flat_map(multiples).flat_map(|(low, high)| [low, high]).collect(),
        ticks: 4,
        // Round values, apart from the error of powers of ten.
        format: |value| format!("×{}", (value * 1e6).round() / 1e6),
        layout: RangeLayout::Published,
        legend: Vec::new(),
        rows: rows.collect(),
    }
}

fn multiples(ladder: &PublishedLadder) -> Vec<(f64, f64)> {
    let midpoint = |low: f64, high: f64| (low * high).sqrt();
    let first_step = ladder.steps.first();
    let base_rate = first_step.map_or(f64::NAN, |step| midpoint(step.low_per_second, step.high_per_second));
    ladder
        .steps
        .iter()
        .map(|step| (step.low_per_second / base_rate, step.high_per_second / base_rate))
        .collect()
}
