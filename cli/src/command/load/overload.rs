//! `--overload`: the replies that a server still gives above its capacity.

use std::process::ExitCode;

use anyhow::Result;
use linerate_load::capacity::{self, OverloadResult};
use linerate_load::report::OverloadReport;
use linerate_load::{GeneratorError, LoadSlot, PacingMode};

use super::run::{LoadRun, exit_code};
use crate::origin;

impl LoadRun {
    /// Offers multiples of a known capacity, and reports the share of answered requests.
    pub(crate) fn overload(&mut self, capacity: f64) -> Result<ExitCode> {
        self.outputs.write_start(&self.generator.describe())?;
        let started_unix_seconds = origin::unix_seconds();
        let (overload, warnings) = self.goodput(capacity)?;
        // Too little was offered or received to judge an unknown ratio.
        let has_replies =
            overload.iter().any(|result| result.goodput_ratio.value().is_none_or(|ratio| *ratio > 0.0));
        let generator = self.generator.describe();
        let report = OverloadReport { generator, capacity_per_second: capacity, overload };
        self.finish(started_unix_seconds, report, warnings)?;
        Ok(exit_code(has_replies))
    }

    /// Measures the replies at each requested multiple. An interrupt ends it with the results so far
    /// and a warning.
    pub(crate) fn goodput(&mut self, capacity: f64) -> Result<(Vec<OverloadResult>, Vec<String>)> {
        let LoadSlot { duration, drain, .. } = self.step(PacingMode::Flood, false);
        let factors = &self.bounds.overload;
        let (mut results, mut warnings) = (Vec::new(), Vec::new());
        for factor in factors {
            match capacity::overload(&mut *self.generator, capacity, &[*factor], duration, drain) {
                Err(GeneratorError::Cancelled) => {
                    let (completed, requested) = (results.len(), factors.len());
                    warnings
                        .push(format!("interrupted after {completed} of {requested} factors of --overload"));
                    break;
                }
                new_results => results.extend(new_results?),
            }
            if let Some(result) = results.last() {
                self.outputs.event("overload", result);
            }
        }
        Ok((results, warnings))
    }
}
