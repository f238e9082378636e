//! What came of it.

use std::fmt;

use linerate_load::stats::{self, ConfidenceInterval};
use serde::Serialize;

use super::contender::GeneratorContender;
use super::{PAYLOAD, bare, ours};
use crate::bench::verdict::ThresholdVerdict;
use crate::machine;

/// All comparisons.
#[derive(Debug, Serialize)]
pub(super) struct GeneratorsReport {
    payload_bytes: usize,
    seconds_each: f64,
    /// Runnable tasks over the last minute, before: other work on the machine spoils figures.
    load_average: Option<f64>,
    comparisons: Vec<GeneratorComparison>,
    skipped: Vec<String>,
}

#[derive(Debug, Serialize)]
struct GeneratorComparison {
    what: &'static str,
    lines: Vec<GeneratorLine>,
    promises: Vec<ThresholdResult>,
}

/// One generator.
#[derive(Debug, Serialize)]
pub(super) struct GeneratorLine {
    name: &'static str,
    how: String,
    per_second: ConfidenceInterval,
    #[serde(skip)]
    samples: Vec<f64>,
}

/// How much faster than another we are to be.
pub(super) struct GeneratorThreshold {
    pub(super) than: &'static str,
    pub(super) at_least: f64,
}

#[derive(Debug, Serialize)]
struct ThresholdResult {
    than: &'static str,
    at_least: f64,
    ratio: ConfidenceInterval,
    verdict: ThresholdVerdict,
}

impl GeneratorLine {
    pub(super) fn new(contender: &dyn GeneratorContender, samples: &[f64]) -> anyhow::Result<Self> {
        Ok(Self {
            name: contender.name(),
            how: contender.how(),
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

    /// Adds a comparison, and holds our XDP generator to `promises`.
    pub(super) fn add(
        &mut self,
        what: &'static str,
        lines: Vec<GeneratorLine>,
        promises: &[GeneratorThreshold],
    ) -> anyhow::Result<()> {
        let find = |name| lines.iter().find(|line| line.name == name);
        let mut results = Vec::new();
        if let Some(us) = find(ours::XDP) {
            for &GeneratorThreshold { than, at_least } in promises {
                let Some(other) = find(than) else { continue };
                let times = |line: &GeneratorLine| stats::compare(&other.samples, &line.samples);
                let ratio = times(us)?.ratio;
                let bare_loop = find(bare::NAME).filter(|line| line.name != than);
                let reach = bare_loop.map(times).transpose()?.map(|bare| bare.ratio.median);
                let verdict = judge(ratio.median, at_least, reach);
                results.push(ThresholdResult { than, at_least, ratio, verdict });
            }
        }
        self.comparisons.push(GeneratorComparison { what, lines, promises: results });
        Ok(())
    }

    /// Whether no promise that could be looked at is missed.
    pub(super) fn kept(&self) -> bool {
        let mut promises = self.comparisons.iter().flat_map(|comparison| &comparison.promises);
        promises.all(|promise| promise.verdict != ThresholdVerdict::Miss)
    }
}

/// A ratio that a bare loop of the same run (`reach`, if one ran) does not have either is not missed.
fn judge(ratio: f64, at_least: f64, reach: Option<f64>) -> ThresholdVerdict {
    if ratio >= at_least {
        ThresholdVerdict::Pass
    } else if reach.is_some_and(|reach| reach < at_least) {
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
            writeln!(f, "  {:16} {} of {samples}", line.name, ShownMedian(&line.per_second, 0))?;
        }
        for line in &self.lines {
            writeln!(f, "  {}: {}", line.name, line.how)?;
        }
        for promise in &self.promises {
            let &ThresholdResult { than, at_least, ref ratio, verdict } = promise;
            let word = match verdict {
                ThresholdVerdict::Pass => "ok",
                ThresholdVerdict::Miss => "MISSED",
                ThresholdVerdict::NotHere => "not here (a bare loop is below it too)",
                ThresholdVerdict::Told => "told",
            };
            let ratio = ShownMedian(ratio, 2);
            writeln!(f, "  {word}: {} is {ratio} of {than}; promised at least {at_least}", ours::XDP)?;
        }
        Ok(())
    }
}

/// A median with its interval, to so many decimals.
struct ShownMedian<'a>(&'a ConfidenceInterval, usize);

impl fmt::Display for ShownMedian<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ShownMedian(interval, decimals) = self;
        write!(f, "{:.decimals$}", interval.median)?;
        match interval.low.zip(interval.high) {
            Some((low, high)) => write!(f, " ({low:.decimals$} to {high:.decimals$})"),
            None => write!(f, " (too few samples for an interval)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ThresholdVerdict, judge};

    #[test]
    fn what_a_bare_loop_does_not_reach_is_not_missed() {
        assert_eq!(judge(3.6, 4.0, Some(3.5)), ThresholdVerdict::NotHere);
        assert_eq!(judge(3.6, 4.0, Some(4.2)), ThresholdVerdict::Miss);
        assert_eq!(judge(3.6, 4.0, None), ThresholdVerdict::Miss);
        assert_eq!(judge(4.1, 4.0, Some(3.5)), ThresholdVerdict::Pass);
    }
}
