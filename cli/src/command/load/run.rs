//! What a command line asks for, and how it is carried out.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use linerate_load::{Generator, Mode, Slot};

use super::arguments::{Bounds, Output, Pace, Times};
use super::outputs::Outputs;
use crate::interrupt::Interrupt;

/// Modest for any server, and enough for a 99.9th percentile in a second.
const DEFAULT_RATE: f64 = 10_000.0;
const DEFAULT_DURATION: Duration = Duration::from_secs(10);
const DEFAULT_STEP: Duration = Duration::from_secs(2);

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Plan {
    /// One stretch of load.
    Slot(Mode),
    /// One rate after the other.
    Ramp(Vec<f64>),
    /// The highest rate that holds.
    Search,
    /// Multiples of a known capacity.
    Overload(f64),
}

/// How long everything takes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timing {
    /// As asked for.
    duration: Option<Duration>,
    pub(crate) drain: Duration,
    interval: Duration,
    start_at_realtime_ns: Option<u64>,
}

/// A generator with all that is asked of it.
pub(crate) struct Run {
    pub(crate) generator: Box<dyn Generator>,
    pub(crate) outputs: Outputs,
    pub(crate) interrupt: Interrupt,
    pub(crate) bounds: Bounds,
    pub(crate) times: Timing,
    /// What a reader has to know of the workload.
    pub(crate) notes: Vec<String>,
}

impl Pace {
    /// What is asked for, if it can be done.
    pub(crate) fn plan(&self, times: &Times) -> Result<Plan> {
        let plan = match self {
            Pace { rate: Some(per_second), .. } => Plan::Slot(Mode::Rate { per_second: *per_second }),
            Pace { flood: true, .. } => Plan::Slot(Mode::Flood),
            Pace { search: true, .. } => Plan::Search,
            Pace { ramp: Some(ramp), .. } => Plan::Ramp(ramp.0.clone()),
            Pace { capacity: Some(capacity), .. } => Plan::Overload(*capacity),
            Pace { window: Some(outstanding), .. } => Plan::Slot(Mode::Window { outstanding: *outstanding }),
            _ => Plan::Slot(Mode::Rate { per_second: DEFAULT_RATE }),
        };
        ensure!(
            plan != Plan::Search || times.duration.is_none(),
            "--duration says nothing to a search: --slot is the time of one rate, --time of all"
        );
        Ok(plan)
    }
}

impl Timing {
    pub(crate) fn new(times: &Times, output: &Output, start_at_realtime_ns: Option<u64>) -> Result<Self> {
        Ok(Self {
            duration: times.duration.map(|value| seconds("duration", value)).transpose()?,
            drain: seconds("drain", times.drain)?,
            interval: seconds("interval", output.interval)?,
            start_at_realtime_ns,
        })
    }

    /// A slot of the whole run.
    pub(crate) fn slot(&self, mode: Mode) -> Slot {
        Slot {
            drain: self.drain,
            interval: Some(self.interval),
            start_at_realtime_ns: self.start_at_realtime_ns,
            ..Slot::new(mode, self.duration.unwrap_or(DEFAULT_DURATION))
        }
    }

    /// One step of many; the first begins when it was asked to.
    pub(crate) fn step(&self, mode: Mode, first: bool) -> Slot {
        Slot {
            drain: self.drain,
            start_at_realtime_ns: self.start_at_realtime_ns.filter(|_| first),
            ..Slot::new(mode, self.duration.unwrap_or(DEFAULT_STEP))
        }
    }
}

impl Run {
    pub(crate) fn carry_out(&mut self, plan: &Plan) -> Result<ExitCode> {
        match plan {
            Plan::Slot(mode) => self.slot(*mode),
            Plan::Ramp(rates) => self.ramp(rates),
            Plan::Overload(capacity) => self.overload(*capacity),
            Plan::Search => self.search(),
        }
    }
}

/// The exit status by whether all that was asked for is so.
pub(crate) fn exit(fine: bool) -> ExitCode {
    if fine { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

/// An option's seconds.
pub(crate) fn seconds(option: &str, value: f64) -> Result<Duration> {
    Duration::try_from_secs_f64(value).with_context(|| format!("--{option} {value}"))
}
