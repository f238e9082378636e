//! The result of a comparison of generators.

use std::fmt;

use linerate_load::stats::{self, ConfidenceInterval};
use serde::Serialize;

use super::contender::GeneratorContender;
use super::{PAYLOAD, bare_loop, own_generators};
use crate::bench::threshold::{JudgedThreshold, ThresholdVerdict, interval_text, none_missed};
use crate::machine;

#[derive(Debug, Serialize)]
pub(super) struct GeneratorsReport {
    payload_bytes: usize,
    seconds_each: f64,
    /// Runnable tasks over the last minute before the run: other work on the machine spoils
    /// figures.
    load_average: Option<f64>,
    comparisons: Vec<GeneratorComparison>,
    skipped: Vec<String>,
}

#[derive(Debug, Serialize)]
struct GeneratorComparison {
    what: &'static str,
    lines: Vec<GeneratorLine>,
    thresholds: Vec<JudgedThreshold>,
}

#[derive(Debug, Serialize)]
pub(super) struct GeneratorLine {
    name: &'static str,
    how: String,
    per_second: ConfidenceInterval,
    #[serde(skip)]
    samples: Vec<f64>,
}

impl GeneratorLine {
    pub(super) fn new(contender: &dyn GeneratorContender, samples: &[f64]) -> anyhow::Result<Self> {
        Ok(Self {
            name: contender.name(),
            how: contender.describe(),
            per_second: stats::interval(samples)?,
            samples: samples.to_vec(),
        })
    }
}

impl GeneratorsReport {
    pub(super) fn new(seconds_each: f64) -> Self {
        Self {
            payload_bytes: PAYLOAD,
            seconds_each,
            load_average: machine::load_average(),
            comparisons: Vec::new(),
            skipped: Vec::new(),
        }
    }

    pub(super) fn skip(&mut self, line: String) {
        self.skipped.push(line);
    }

    /// Adds a comparison. Each threshold is the least ratio of our XDP generator to another one.
    pub(super) fn add(
        &mut self,
        title: &'static str,
        lines: Vec<GeneratorLine>,
        thresholds: &[(&str, f64)],
    ) -> anyhow::Result<()> {
        let find = |name| lines.iter().find(|line| line.name == name);
        let mut results = Vec::new();
        if let Some(xdp_line) = find(own_generators::XDP) {
            for &(other_name, min_ratio) in thresholds {
                let Some(other_line) = find(other_name) else { continue };
                let compare_with = |line: &GeneratorLine| stats::compare(&other_line.samples, &line.samples);
                let ratio = compare_with(xdp_line)?.ratio;
                let bare_loop = find(bare_loop::NAME).filter(|line| line.name != other_name);
                let bare_ratio =
                    bare_loop.map(compare_with).transpose()?.map(|comparison| comparison.ratio.median);
                let verdict = judge(ratio.median, min_ratio, bare_ratio);
                let remark = "the bare loop is below it, too".to_owned();
                results.push(JudgedThreshold {
                    what: format!(
                        "{} has at least {min_ratio} times the rate of {other_name}",
                        own_generators::XDP
                    ),
                    verdict,
                    ratio: Some(ratio),
                    remarks: (verdict == ThresholdVerdict::NotHere).then_some(remark).into_iter().collect(),
                });
            }
        }
        self.comparisons.push(GeneratorComparison { what: title, lines, thresholds: results });
        Ok(())
    }

    /// Whether no threshold is missed.
    pub(super) fn passes(&self) -> bool {
        none_missed(self.comparisons.iter().flat_map(|comparison| &comparison.thresholds))
    }
}

// A ratio that a bare loop of the same run (`bare_ratio`, if one ran) misses too is not counted as
// missed.
fn judge(ratio: f64, min_ratio: f64, bare_ratio: Option<f64>) -> ThresholdVerdict {
    if ratio >= min_ratio {
        ThresholdVerdict::Pass
    } else if bare_ratio.is_some_and(|ratio_of_bare| ratio_of_bare < min_ratio) {
        ThresholdVerdict::NotHere
    } else {
        ThresholdVerdict::Miss
    }
}

impl fmt::Display for GeneratorsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "one core, UDP payload {} bytes, {} s each", self.payload_bytes, self.seconds_each)?;
        if let Some(load) = self.load_average {
            write!(f, ", load average before {load:.1}")?;
        }
        writeln!(f, "; median and 95 % interval")?;
        for comparison in &self.comparisons {
            write!(f, "\n{comparison}")?;
        }
        for line in &self.skipped {
            writeln!(f, "{line}")?;
        }
        Ok(())
    }
}

impl fmt::Display for GeneratorComparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}, packets a second:", self.what)?;
        for line in &self.lines {
            let ConfidenceInterval { samples, .. } = line.per_second;
            writeln!(f, "  {:16} {} of {samples}", line.name, interval_text(&line.per_second, 1.0, 0))?;
        }
        for line in &self.lines {
            writeln!(f, "  {}: {}", line.name, line.how)?;
        }
        self.thresholds.iter().try_for_each(|threshold| writeln!(f, "  {threshold}"))
    }
}

#[cfg(test)]
mod tests {
    use super::{ThresholdVerdict, judge};

    #[test]
    fn threshold_is_not_judged_if_the_bare_loop_misses_it() {
        assert_eq!(judge(3.6, 4.0, Some(3.5)), ThresholdVerdict::NotHere);
        assert_eq!(judge(3.6, 4.0, Some(4.2)), ThresholdVerdict::Miss);
        assert_eq!(judge(3.6, 4.0, None), ThresholdVerdict::Miss);
        assert_eq!(judge(4.1, 4.0, Some(3.5)), ThresholdVerdict::Pass);
    }
}
