//! Computes the figures of a step from its samples.

use linerate_host::Known;
use linerate_host::stage::machine::CpuTime;
use linerate_load::Latency;
use linerate_load::stats::{self, RateComparison};

use crate::ladder::report::{
    LadderWarning, LatencyNs, RateEstimate, RatioInterval, StepReport, TestbedFacts, VersusPrevious,
    WarningKind,
};
use crate::ladder::testbed::{ConfigurationSamples, StepSample};

/// Share of CPU time stolen above which a step carries a warning.
const NOTABLE_STEAL: f64 = 0.01;
/// Width of the interval over the median above which a step carries a warning.
const NOISY_WIDTH: f64 = 0.25;

/// Writes the figures of `samples` into a step's report.
pub(crate) fn fill(report: &mut StepReport, samples: &ConfigurationSamples, testbed: &TestbedFacts) {
    let Some(estimate) = estimate(&samples.rates()) else { return };
    let samples = &samples.0;
    report.transactions_per_second = Some(estimate);
    if estimate.median > 0.0 && (estimate.high - estimate.low) / estimate.median > NOISY_WIDTH {
        let width = (estimate.high - estimate.low) / estimate.median * 100.0;
        let detail = format!("the interval is {width:.0} % of the median wide");
        report.warnings.push(LadderWarning::new(WarningKind::Noisy, detail));
    }
    report.loss_ratio =
        Some(samples.iter().map(|sample| sample.loss_ratio).sum::<f64>() / samples.len() as f64);
    report.latency_ns = latency(samples);
    report.cycles_per_transaction = median_known(
        "cycles per transaction",
        samples.iter().map(|sample| &sample.cycles_per_transaction),
        report,
    );
    report.instructions_per_transaction = median_known(
        "instructions per transaction",
        samples.iter().map(|sample| &sample.instructions_per_transaction),
        report,
    );
    let wire_rate = estimate.median * testbed.wire_bits_per_transaction as f64;
    report.wire_bits_per_second = Some(wire_rate);
    report.line_rate_ratio = Some(wire_rate / testbed.link_bits_per_second as f64);
    let bound_reasons: Vec<&str> =
        samples.iter().filter_map(|sample| sample.generator_bound.as_deref()).collect();
    if let Some(why) = bound_reasons.first() {
        let (count, total) = (bound_reasons.len(), samples.len());
        let detail = format!("in {count} of {total} samples the generator was the limit: {why}");
        report.warnings.push(LadderWarning::new(WarningKind::GeneratorBound, detail));
    }
    let unconfirmed_count = samples.iter().filter(|sample| sample.unconfirmed).count();
    if unconfirmed_count > 0 {
        let total = samples.len();
        let detail = format!(
            "in {unconfirmed_count} of {total} samples the time was over before a rate was confirmed"
        );
        report.warnings.push(LadderWarning::new(WarningKind::Unconfirmed, detail));
    }
    let mut fallbacks: Vec<&String> = samples.iter().flat_map(|sample| &sample.fallbacks).collect();
    fallbacks.sort();
    fallbacks.dedup();
    report.warnings.extend(
        fallbacks.into_iter().map(|detail| LadderWarning::new(WarningKind::Fallback, detail.as_str())),
    );
}

/// `None` without samples.
pub(crate) fn estimate(rates: &[f64]) -> Option<RateEstimate> {
    let interval = stats::interval(rates).ok()?;
    Some(RateEstimate {
        median: interval.median,
        low: interval.low.unwrap_or(interval.median),
        high: interval.high.unwrap_or(interval.median),
        samples: u32::try_from(rates.len()).unwrap_or(u32::MAX),
    })
}

pub(crate) fn versus(id: &str, comparison: &RateComparison) -> VersusPrevious {
    VersusPrevious {
        id: id.to_owned(),
        ratio: RatioInterval {
            median: comparison.ratio.median,
            low: comparison.ratio.low,
            high: comparison.ratio.high,
        },
        verdict: comparison.verdict,
    }
}

/// A warning if the hypervisor took notable CPU time between the two readings.
pub(crate) fn steal(before: Known<CpuTime>, after: Known<CpuTime>) -> Option<LadderWarning> {
    let (before, after) = (before.into_value()?, after.into_value()?);
    let total = after.total.saturating_sub(before.total);
    let steal = after.steal.saturating_sub(before.steal);
    let ratio = (total > 0).then(|| steal as f64 / total as f64)?;
    (ratio > NOTABLE_STEAL).then(|| {
        let detail = format!("the hypervisor took {:.1} % of the CPU time", ratio * 100.0);
        LadderWarning::new(WarningKind::CpuSteal, detail)
    })
}

fn latency(samples: &[StepSample]) -> Option<LatencyNs> {
    let mut merged = Latency::new();
    for sample in samples {
        merged.merge(&sample.latency);
    }
    LatencyNs::from_samples(&merged)
}

fn median_known<'a>(
    figure: &str,
    values: impl Iterator<Item = &'a Known<f64>>,
    report: &mut StepReport,
) -> Option<f64> {
    let mut known_values = Vec::new();
    let mut reason = None;
    for value in values {
        match value {
            Known::Value(value) => known_values.push(*value),
            Known::Unknown { why } => reason = Some(why),
        }
    }
    if let (Some(why), true) = (reason, known_values.is_empty()) {
        report.warnings.push(LadderWarning::new(WarningKind::Unknown, format!("{figure}: {why}")));
    }
    stats::median(&known_values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_notable_steal_time_causes_a_warning() {
        let time = |total, steal| Known::Value(CpuTime { total, steal });
        assert_eq!(steal(time(0, 0), time(1000, 5)), None);
        let warning = steal(time(0, 0), time(1000, 50)).expect("a warning");
        assert_eq!(warning.detail, "the hypervisor took 5.0 % of the CPU time");
        assert_eq!(steal(Known::unknown("no"), time(1, 1)), None);
    }
}
