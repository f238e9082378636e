//! `--ramp`: one rate after the other, as it is typed and as it is done.

use std::process::ExitCode;
use std::str::FromStr;

use anyhow::{Result, bail};
use linerate_load::PacingMode;
use linerate_load::load_document::{RAMP_SCHEMA, RampDocument};

use super::run::{LoadRun, exit};
use super::slot::{nothing_sent, warnings};
use super::workload;
use crate::origin;
use crate::quantity;
use crate::render::format;
use crate::view;
use crate::view::load::live::{RAMP_HEADER, ramp_step};

/// Rates in rising order, requests a second.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RateRamp(pub(crate) Vec<f64>);

const DEFAULT_STEPS: u32 = 10;
const MOST_STEPS: u32 = 1_000;

impl FromStr for RateRamp {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let wrong = || {
            format!(
                "'{text}' is no ramp such as 10k-100k, 10k-100k:5k (steps of 5k) or 10k-100k/4 (four steps)"
            )
        };
        let (range, by_step) = match text.split_once(':') {
            Some((range, step)) => (range, Some(quantity::parse_rate(step).map_err(|_| wrong())?)),
            None => (text, None),
        };
        let (range, count) = match range.split_once('/') {
            Some(_) if by_step.is_some() => return Err(wrong()),
            Some((range, count)) => (range, count.parse::<u32>().map_err(|_| wrong())?),
            None => (range, DEFAULT_STEPS),
        };
        let (low, high) = range.split_once('-').ok_or_else(wrong)?;
        let (low, high) = (
            quantity::parse_rate(low).map_err(|_| wrong())?,
            quantity::parse_rate(high).map_err(|_| wrong())?,
        );
        if low >= high {
            return Err(wrong());
        }
        match by_step {
            Some(step) => by(low, high, step),
            None => evenly(low, high, count),
        }
    }
}

fn by(low: f64, high: f64, step: f64) -> std::result::Result<RateRamp, String> {
    // A hair over, so that the last step is not lost to rounding.
    let steps = ((high - low) / step + 1e-9).floor() + 1.0;
    if steps > f64::from(MOST_STEPS) {
        return Err(format!("a ramp of {steps:.0} steps: at most {MOST_STEPS}"));
    }
    Ok(RateRamp((0..steps as u32).map(|index| low + step * f64::from(index)).collect()))
}

fn evenly(low: f64, high: f64, count: u32) -> std::result::Result<RateRamp, String> {
    if !(2..=MOST_STEPS).contains(&count) {
        return Err(format!("a ramp of {count} steps: 2 to {MOST_STEPS}"));
    }
    let step = (high - low) / f64::from(count - 1);
    Ok(RateRamp((0..count).map(|index| low + step * f64::from(index)).collect()))
}

impl LoadRun {
    /// Offers one rate after the other, and reports all.
    pub(crate) fn ramp(&mut self, rates: &[f64]) -> Result<ExitCode> {
        for rate in rates {
            self.times.step(PacingMode::Rate { per_second: *rate }, true).check()?;
        }
        self.outputs.started(&self.generator.describe())?;
        self.outputs.live().note(RAMP_HEADER);
        let mut document = RampDocument {
            schema: RAMP_SCHEMA.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            argv: workload::argv(),
            host: origin::host_name(),
            generator: self.generator.describe(),
            steps: Vec::new(),
            warnings: self.notes.clone(),
        };
        // One way for all steps, so that they differ in nothing but the rate.
        let (highest, threads) = (rates.iter().copied().fold(0.0, f64::max), document.generator.threads);
        for (index, rate) in rates.iter().enumerate() {
            let mode = PacingMode::Rate { per_second: *rate };
            let slot = self.times.step(mode, index == 0).fast_enough(highest, threads);
            let outcome = self.generator.run(&slot)?;
            if outcome.duration < slot.duration || self.interrupt.is_raised() {
                let done = document.steps.len();
                document.warnings.push(format!("interrupted after {done} of {} steps", rates.len()));
                break;
            }
            if outcome.sent == 0 {
                bail!(nothing_sent(&outcome, &self.targets()));
            }
            let at = format::rate(*rate);
            document
                .warnings
                .extend(warnings(&outcome).iter().map(|warning| format!("at {at}/s: {warning}")));
            self.outputs.live().note(&ramp_step(&outcome));
            self.outputs.event("step", &outcome);
            document.steps.push(outcome);
        }
        self.outputs.finished(&document, &view::load::ramp(&document))?;
        Ok(exit(document.steps.iter().any(|step| step.answered > 0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_by_size_by_count_or_ten() {
        let steps = |text: &str| text.parse::<RateRamp>().map(|ramp| ramp.0);
        assert_eq!(steps("10k-40k:10k"), Ok(vec![10e3, 20e3, 30e3, 40e3]));
        assert_eq!(steps("10k-40k:25k"), Ok(vec![10e3, 35e3]));
        assert_eq!(steps("100-300/3"), Ok(vec![100.0, 200.0, 300.0]));
        assert_eq!(steps("10k-100k").map(|steps| steps.len()), Ok(10));
    }

    #[test]
    fn nonsense_is_refused() {
        for wrong in ["", "-", "10k", "9-8", "5-5", "1-2:0", "1-2/1", "1-2/x", "1-9/2:3", "1-1M:1", "a-b"] {
            assert!(wrong.parse::<RateRamp>().is_err(), "{wrong}");
        }
    }
}
