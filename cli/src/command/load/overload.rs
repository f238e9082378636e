//! `--overload`: the replies that a server still gives above its capacity.

use std::process::ExitCode;

use anyhow::Result;
use linerate_load::PacingMode;
use linerate_load::capacity::{self, OverloadResult};
use linerate_load::report::OverloadReport;

use super::run::{LoadRun, exit};
use crate::origin;

impl LoadRun {
    /// Offers multiples of a known capacity, and reports the share of answered requests.
    pub(crate) fn overload(&mut self, capacity: f64) -> Result<ExitCode> {
        self.outputs.started(&self.generator.describe())?;
        let started = origin::unix_seconds();
        let overload = self.goodput(capacity)?;
        let answered = overload.iter().any(|one| one.goodput_ratio.value().is_some_and(|ratio| *ratio > 0.0));
        let generator = self.generator.describe();
        let report = OverloadReport { generator, capacity_per_second: capacity, overload };
        self.finish(started, report, Vec::new())?;
        Ok(exit(answered))
    }

    /// Measures the replies at each requested multiple.
    pub(crate) fn goodput(&mut self, capacity: f64) -> Result<Vec<OverloadResult>> {
        let slot = self.times.step(PacingMode::Flood, false).duration;
        let mut all = Vec::new();
        for factor in &self.bounds.overload {
            all.extend(capacity::overload(&mut *self.generator, capacity, &[*factor], slot)?);
            if let Some(one) = all.last() {
                self.outputs.event("overload", one);
            }
        }
        Ok(all)
    }
}
