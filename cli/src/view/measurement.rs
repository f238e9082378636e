//! The effect of changes on a service: part of the documents of `tune apply` and `boost apply`.

use linerate_host::Known;
use linerate_host::stats::ComparisonVerdict;
use linerate_tune::measure::{ChangeMeasurement, WindowOrder};
use linerate_tune::plan::ChangeBenefit;

use crate::document::{Block, Section};
use crate::render::format::{comma_list, count_with_noun, rate, ratio};
use crate::view::comparison;
use crate::view::ladder::verdict_name;

/// The section of a measured service; one sentence if it was not measured.
pub(crate) fn section(measurement: &Known<ChangeMeasurement>) -> Section {
    let section = Section::new("The service before and after");
    let change_measurement = match measurement {
        Known::Value(value) => value,
        Known::Unknown { why } => return section.with(Block::faint(format!("Not measured: {why}."))),
    };
    section
        .with(sentence(change_measurement))
        .with(comparison::figures(&change_measurement.figures))
        .with(Block::List(change_measurement.caveats.clone()))
}

/// The verdict as a sentence.
fn sentence(measurement: &ChangeMeasurement) -> String {
    let verdict = match measurement.verdict {
        ComparisonVerdict::Better => "better than before",
        ComparisonVerdict::Worse => "worse than before",
        ComparisonVerdict::NoDifferenceShown => "no difference shown",
    };
    let order = match measurement.order {
        WindowOrder::Once => "one window before and one after",
        WindowOrder::Alternate => "windows before, with the changes twice, and after an undo",
    };
    let [answered_text, offered_text] = [measurement.answered_per_second, measurement.offered_per_second]
        .map(|[before, after]| format!("{}/s and {}/s", rate(before), rate(after)));
    let generated_rate = measurement.generated_per_second;
    let load = generated_rate
        .map_or_else(String::new, |rate_per_second| format!(", load generated: {}/s", rate(rate_per_second)));
    format!("The service: {verdict}. It answered {answered_text} of {offered_text} offered ({order}{load}).")
}

/// The figures that decide the verdict, for the journal: `answered_ratio ×0.81`.
pub(crate) fn summary(measurement: &ChangeMeasurement) -> String {
    let deciding_figures = measurement.figures.iter().filter(|figure| figure.verdict == measurement.verdict);
    match measurement.verdict {
        ComparisonVerdict::NoDifferenceShown => "no difference shown".to_owned(),
        _ if measurement.offered_per_second[1] == 0.0 => "no datagram arrived".to_owned(),
        _ => comma_list(deciding_figures.map(comparison::ratio_words)),
    }
}

/// The place where the benefit of a change was measured.
pub(crate) fn benefit_words(benefit: &ChangeBenefit) -> String {
    match benefit {
        ChangeBenefit::Here { tune, verdict, summary, others } => {
            let others_text = match others {
                0 => String::new(),
                others => format!(", with {}", count_with_noun(*others, "other change")),
            };
            let figures = match verdict {
                ComparisonVerdict::NoDifferenceShown => String::new(),
                _ => format!(" ({summary})"),
            };
            format!("measured on this host by tune {tune}{others_text}: {}{figures}", verdict_name(*verdict))
        }
        ChangeBenefit::Published { percent } => {
            let ratio = ratio(*percent as f64 / 100.0);
            format!("published: {ratio} the throughput; not measured on this host")
        }
        ChangeBenefit::Unmeasured => "not measured".to_owned(),
    }
}
