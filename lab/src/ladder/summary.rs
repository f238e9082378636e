//! From samples to the figures of a step.

use linerate_host::Known;
use linerate_host::stage::machine::CpuTime;
use linerate_load::Latency;
use linerate_load::stats::{self, RateComparison};

use crate::ladder::bench::StepSample;
use crate::ladder::climb::StepOptions;
use crate::ladder::report::{
    LadderWarning, LatencyNs, RateEstimate, RatioInterval, RungReport, VersusPrevious, WarningKind,
};

/// Share of CPU time stolen above which a step carries a warning.
const STEAL_WORTH_TELLING: f64 = 0.01;
/// Width of the interval over the median above which a step carries a warning.
const NOISY_WIDTH: f64 = 0.25;

/// Writes the figures of `samples` into a step's report.
pub(crate) fn fill(report: &mut RungReport, samples: &[StepSample], options: &StepOptions) {
    let rates: Vec<f64> = samples.iter().map(|sample| sample.transactions_per_second).collect();
    let Ok(interval) = stats::interval(&rates) else {
        return;
    };
    let estimate = RateEstimate {
        median: interval.median,
        low: interval.low.unwrap_or(interval.median),
        high: interval.high.unwrap_or(interval.median),
        samples: u32::try_from(samples.len()).unwrap_or(u32::MAX),
    };
    report.transactions_per_second = Some(estimate);
    if estimate.median > 0.0 && (estimate.high - estimate.low) / estimate.median > NOISY_WIDTH {
        report.warnings.push(LadderWarning {
            kind: WarningKind::Noisy,
            detail: format!(
                "the interval is {:.0} % of the median wide",
                (estimate.high - estimate.low) / estimate.median * 100.0
            ),
        });
    }
    report.loss_ratio =
        Some(samples.iter().map(|sample| sample.loss_ratio).sum::<f64>() / samples.len() as f64);
    report.latency_ns = latency(samples);
    report.cycles_per_transaction = median_known(
        "cycles a transaction",
        samples.iter().map(|sample| &sample.cycles_per_transaction),
        report,
    );
    report.instructions_per_transaction = median_known(
        "instructions a transaction",
        samples.iter().map(|sample| &sample.instructions_per_transaction),
        report,
    );
    let wire = estimate.median * options.wire_bits_per_transaction as f64;
    report.wire_bits_per_second = Some(wire);
    report.line_rate_ratio = Some(wire / options.link_bits_per_second as f64);
    let bound: Vec<&str> = samples.iter().filter_map(|sample| sample.generator_bound.as_deref()).collect();
    if let Some(why) = bound.first() {
        report.warnings.push(LadderWarning {
            kind: WarningKind::GeneratorBound,
            detail: format!(
                "in {} of {} samples the generator was the limit: {why}",
                bound.len(),
                samples.len()
            ),
        });
    }
    let unconfirmed = samples.iter().filter(|sample| sample.unconfirmed).count();
    if unconfirmed > 0 {
        report.warnings.push(LadderWarning {
            kind: WarningKind::Unconfirmed,
            detail: format!(
                "in {unconfirmed} of {} samples the time was over before a rate was confirmed",
                samples.len()
            ),
        });
    }
    let mut fallbacks: Vec<&String> = samples.iter().flat_map(|sample| &sample.fallbacks).collect();
    fallbacks.sort();
    fallbacks.dedup();
    report.warnings.extend(
        fallbacks
            .into_iter()
            .map(|detail| LadderWarning { kind: WarningKind::Fallback, detail: detail.clone() }),
    );
}

/// The comparison as the report has it.
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

/// A warning when the hypervisor took time away between the two readings.
pub(crate) fn steal(before: Known<CpuTime>, after: Known<CpuTime>) -> Option<LadderWarning> {
    let (before, after) = (before.into_value()?, after.into_value()?);
    let total = after.total.saturating_sub(before.total);
    let steal = after.steal.saturating_sub(before.steal);
    let ratio = (total > 0).then(|| steal as f64 / total as f64)?;
    (ratio > STEAL_WORTH_TELLING).then(|| LadderWarning {
        kind: WarningKind::CpuSteal,
        detail: format!("the hypervisor took {:.1} % of the CPU time", ratio * 100.0),
    })
}

fn latency(samples: &[StepSample]) -> Option<LatencyNs> {
    let mut all = Latency::new();
    for sample in samples {
        all.merge(&sample.latency);
    }
    Some(LatencyNs { p50: all.quantile(0.5)?, p99: all.quantile(0.99)?, p999: all.quantile(0.999)? })
}

fn median_known<'a>(
    what: &str,
    values: impl Iterator<Item = &'a Known<f64>>,
    report: &mut RungReport,
) -> Option<f64> {
    let mut known = Vec::new();
    let mut unknown = None;
    for value in values {
        match value {
            Known::Value(value) => known.push(*value),
            Known::Unknown { why } => unknown = Some(why),
        }
    }
    if let (Some(why), true) = (unknown, known.is_empty()) {
        report.warnings.push(LadderWarning { kind: WarningKind::Unknown, detail: format!("{what}: {why}") });
    }
    stats::median(&known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_is_told_only_where_it_counts() {
        let time = |total, steal| Known::Value(CpuTime { total, steal });
        assert_eq!(steal(time(0, 0), time(1000, 5)), None);
        let warning = steal(time(0, 0), time(1000, 50)).expect("a warning");
        assert_eq!(warning.detail, "the hypervisor took 5.0 % of the CPU time");
        assert_eq!(steal(Known::unknown("no"), time(1, 1)), None);
    }
}
