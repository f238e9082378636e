//! `--overload`: the replies that a server still gives above its capacity.

use std::process::ExitCode;

use anyhow::Result;
use linerate_load::PacingMode;
use linerate_load::capacity::{self, OverloadResult};
use linerate_load::report::OverloadReport;

use super::run::{LoadRun, exit_code};
use crate::origin;

impl LoadRun {
    /// Offers multiples of a known capacity, and reports the share of answered requests.
    pub(crate) fn overload(&mut self, capacity: f64) -> Result<ExitCode> {
        self.outputs.write_start(&self.generator.describe())?;
        let started_unix_seconds = origin::unix_seconds();
        let overload = self.goodput(capacity)?;
        let has_replies =
            overload.iter().any(|result| result.goodput_ratio.value().is_some_and(|ratio| *ratio > 0.0));
        let generator = self.generator.describe();
        let report = OverloadReport { generator, capacity_per_second: capacity, overload };
        self.finish(started_unix_seconds, report, Vec::new())?;
        Ok(exit_code(has_replies))
    }

    /// Measures the replies at each requested multiple.
    pub(crate) fn goodput(&mut self, capacity: f64) -> Result<Vec<OverloadResult>> {
        let slot = self.times.step(PacingMode::Flood, false).duration;
        let mut results = Vec::new();
        for factor in &self.bounds.overload {
            results.extend(capacity::overload(&mut *self.generator, capacity, &[*factor], slot)?);
            if let Some(result) = results.last() {
                self.outputs.event("overload", result);
            }
        }
        Ok(results)
    }
}
