//! Runs the mode that the arguments of `linerate load` name.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use linerate_host::Host;
use linerate_load::generator::LEAST_INTERVAL;
use linerate_load::{Generator, LoadSlot, PacingMode};

use super::arguments::{LimitArgs, PaceArgs, TimeArgs};
use super::outputs::LoadOutputs;
use crate::envelope::{CommandResult, Envelope};
use crate::interrupt::InterruptFlag;
use crate::origin::{HostSummary, Warning};

// Modest for any server; one second of it is enough for a 99.9th percentile.
const DEFAULT_RATE: f64 = 10_000.0;
const DEFAULT_DURATION: Duration = Duration::from_secs(10);
const DEFAULT_STEP: Duration = Duration::from_secs(2);
const STEP_INTERVALS: u32 = 8;

/// A generator with the parsed options.
pub(crate) struct LoadRun {
    pub(crate) generator: Box<dyn Generator>,
    pub(crate) outputs: LoadOutputs,
    pub(crate) interrupt: InterruptFlag,
    pub(crate) bounds: LimitArgs,
    pub(crate) times: TimeArgs,
    pub(crate) interval: Duration,
    pub(crate) start_at_realtime_ns: Option<u64>,
    /// Notes about the workload, for the reader of the result.
    pub(crate) notes: Vec<String>,
}

impl LoadRun {
    /// A slot of the whole run.
    pub(crate) fn whole_slot(&self, mode: PacingMode) -> LoadSlot {
        LoadSlot {
            drain: self.times.drain(),
            whole_drain: true,
            interval: Some(self.interval),
            start_at_realtime_ns: self.start_at_realtime_ns,
            ..LoadSlot::new(mode, self.times.duration.unwrap_or(DEFAULT_DURATION))
        }
    }

    /// One step of several; the first one begins at the requested time.
    pub(crate) fn step(&self, mode: PacingMode, is_first: bool) -> LoadSlot {
        let duration = self.times.duration.unwrap_or(DEFAULT_STEP);
        LoadSlot {
            // Comparisons require some intervals per step.
            interval: Some(self.interval.min((duration / STEP_INTERVALS).max(LEAST_INTERVAL))),
            start_at_realtime_ns: self.start_at_realtime_ns.filter(|_| is_first),
            duration,
            ..self.whole_slot(mode)
        }
    }

    /// Writes a result with its warnings, after those about the workload.
    pub(crate) fn finish<T: CommandResult>(
        &mut self,
        started_unix_seconds: Option<u64>,
        report: T,
        warnings: Vec<String>,
    ) -> Result<()> {
        let warnings = self.notes.iter().cloned().chain(warnings).map(Warning::remark);
        let host = HostSummary::observe(&Host::live());
        self.outputs.write_result(&Envelope::new(host, started_unix_seconds, report).with_warnings(warnings))
    }

    /// Runs the mode that the arguments name.
    pub(crate) fn execute(&mut self, pace: &PaceArgs) -> Result<ExitCode> {
        match pace {
            PaceArgs { rate: Some(per_second), .. } => {
                self.slot(PacingMode::Rate { per_second: *per_second })
            }
            PaceArgs { flood: true, .. } => self.slot(PacingMode::Flood),
            PaceArgs { search: true, .. } => self.search(),
            PaceArgs { ramp: Some(ramp), .. } => self.ramp(&ramp.0),
            PaceArgs { capacity: Some(capacity), .. } => self.overload(*capacity),
            PaceArgs { window: Some(outstanding), .. } => {
                self.slot(PacingMode::Window { outstanding: *outstanding })
            }
            _ => self.slot(PacingMode::Rate { per_second: DEFAULT_RATE }),
        }
    }
}

/// The exit status: success if all thresholds hold.
pub(crate) fn exit_code(is_success: bool) -> ExitCode {
    if is_success { ExitCode::SUCCESS } else { ExitCode::from(1) }
}
