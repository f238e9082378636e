//! `--ramp`: one rate after the other.

use std::process::ExitCode;

use anyhow::{Result, ensure};
use linerate_load::report::RampReport;
use linerate_load::{GeneratorError, PacingMode, SlotOutcome};

use super::run::{LoadRun, exit_code};
use super::slot::{no_requests_reason, replies_per_second, warnings};
use crate::render::format;
use crate::view::load::live::{RAMP_HEADER, ramp_step};

impl LoadRun {
    /// Offers one rate after the other, and reports all.
    pub(crate) fn ramp(&mut self, rates: &[f64]) -> Result<ExitCode> {
        for rate in rates {
            self.step(PacingMode::Rate { per_second: *rate }, true).check()?;
        }
        self.outputs.write_start(&self.generator.describe())?;
        self.outputs.live.note(RAMP_HEADER);
        let generator = self.generator.describe();
        let mut report = RampReport { generator, steps: Vec::new(), missed: Vec::new() };
        let mut notes = Vec::new();
        // All steps send in the same way, so that they differ only in their rate.
        let (max_rate, threads) = (rates.iter().copied().fold(0.0, f64::max), report.generator.threads);
        for (index, rate) in rates.iter().enumerate() {
            let mode = PacingMode::Rate { per_second: *rate };
            let slot = self.step(mode, index == 0).permit_live_frames(max_rate, threads);
            let outcome = match self.generator.run(&slot) {
                Err(GeneratorError::Cancelled) if index > 0 => {
                    notes.push(format!("interrupted after {index} of {} steps", rates.len()));
                    break;
                }
                outcome => outcome?,
            };
            if outcome.duration < slot.duration || self.interrupt.is_raised() {
                let completed = report.steps.len();
                notes.push(format!("interrupted after {completed} of {} steps", rates.len()));
                break;
            }
            let rate_text = format::rate(*rate);
            if outcome.sent == 0 {
                let reason = no_requests_reason(&outcome, &self.targets());
                ensure!(index > 0, reason);
                report.missed.push(format!("at {rate_text}/s: {reason}; the ramp ended there"));
                break;
            }
            notes.extend(warnings(&outcome).iter().map(|warning| format!("at {rate_text}/s: {warning}")));
            let missed_limits = self.bounds.missed_limits(&outcome);
            report.missed.extend(missed_limits.iter().map(|limit| format!("at {rate_text}/s: {limit}")));
            self.outputs.live.note(&ramp_step(&outcome));
            self.outputs.event("step", &outcome);
            report.steps.push(outcome);
        }
        // The lower rates of a ramp cannot reach the least rate, so the best step counts.
        if !report.steps.is_empty() {
            let best_rate = report.steps.iter().map(replies_per_second).fold(0.0, f64::max);
            report.missed.extend(self.bounds.missed_rate(best_rate));
        }
        // The first live frames may have added a fallback.
        report.generator = self.generator.describe();
        let has_replies = report.steps.iter().any(|step| step.answered > 0);
        let is_success = has_replies && report.missed.is_empty();
        let started_unix_seconds = report.steps.first().map(SlotOutcome::started_unix_seconds);
        self.finish(started_unix_seconds, report, notes)?;
        Ok(exit_code(is_success))
    }
}
