//! `linerate cost`: what packet processing takes from each CPU, and from each process.

mod compare;
mod document;
mod live;
mod looking;
mod scope;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, anyhow};
use clap::{Args, ValueEnum};

use super::netns::NetnsArgs;
use super::results::ResultArgs;
pub(crate) use compare::CostComparison;
pub(crate) use document::{CostDocument, SCHEMA};

/// How long it looks where nothing else is asked for.
const DEFAULT: Duration = Duration::from_secs(10);

/// Arguments of `linerate cost`.
#[derive(Debug, Args)]
pub(crate) struct CostArgs {
    #[command(flatten)]
    pub(super) netns: NetnsArgs,
    /// Duration, seconds [default: 10; with --watch until Ctrl-C]
    #[arg(long, value_name = "S", value_parser = seconds)]
    duration: Option<Duration>,
    /// Only these CPUs, such as 0-3,8 [default: all]
    #[arg(long, value_name = "LIST", conflicts_with = "interface")]
    cpus: Option<String>,
    /// Only the CPUs that process packets of this interface
    #[arg(short = 'i', long, value_name = "IF")]
    interface: Option<String>,
    /// Group by process, thread or cgroup
    #[arg(long, value_name = "WHO", value_enum, default_value_t = VictimGrouping::Process)]
    by: VictimGrouping,
    /// Number of rows
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..))]
    top: u16,
    /// Print the last second once per second
    #[arg(long, conflicts_with_all = ["calibrate", "json", "html"])]
    watch: bool,
    /// Measure all the time [default: in windows, if measuring would take more than 1 % of a CPU]
    #[arg(long)]
    exact: bool,
    /// Check the result with a user-space loop of known speed, which occupies this CPU [default:
    /// the CPU with most packets]
    #[arg(long, value_name = "CPU", num_args = 0..=1, require_equals = true, default_missing_value = "busiest")]
    calibrate: Option<CalibrationCpu>,
    /// Compare two results that were written by --json
    #[arg(long, num_args = 2, value_names = ["A.json", "B.json"],
          conflicts_with_all = ["duration", "cpus", "interface", "by", "watch", "exact", "calibrate", "html"])]
    compare: Vec<PathBuf>,
    #[command(flatten)]
    results: ResultArgs,
}

/// Whom packets take time from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum VictimGrouping {
    /// Processes
    Process,
    /// Threads
    Thread,
    /// Control groups: containers, services
    Cgroup,
}

/// Which CPU the inference method takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CalibrationCpu {
    /// The one that has most packets.
    Busiest,
    /// This one.
    Cpu(u32),
}

impl std::str::FromStr for CalibrationCpu {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "busiest" => Ok(Self::Busiest),
            number => number.parse().map(Self::Cpu).map_err(|_| format!("'{number}' is no number of a CPU")),
        }
    }
}

impl CostArgs {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let targets = self.results.targets()?;
        match self.compare.as_slice() {
            [before, after] => compare::compare(before, after, &targets)?,
            _ => looking::look(&self, &targets)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Some time, but no longer than a day.
fn seconds(text: &str) -> Result<Duration> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.1..=86_400.0).contains(seconds));
    seconds
        .map(Duration::from_secs_f64)
        .ok_or_else(|| anyhow!("'{text}' is no number of seconds from 0.1 to 86400"))
}
