//! `--ramp`: one rate after the other.

use std::process::ExitCode;

use anyhow::{Result, bail};
use linerate_load::PacingMode;
use linerate_load::load_document::{RAMP_SCHEMA, RampDocument};

use super::run::{LoadRun, exit};
use super::slot::{nothing_sent, warnings};
use crate::origin;
use crate::output;
use crate::render::format;
use crate::view;
use crate::view::load::live::{RAMP_HEADER, ramp_step};

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
            argv: output::argv(),
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
