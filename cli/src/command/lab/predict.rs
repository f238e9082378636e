//! `linerate lab predict`: the ladder of a machine that is not here.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Args;
use linerate_lab::ladder::predict::{LadderPrediction, PredictedMachine};
use linerate_lab::ladder::report::LadderReport;

use crate::command::results::ResultArgs;
use crate::envelope::Envelope;
use crate::origin;

/// Predict the ladder of a machine with other CPUs and queues from a result of `linerate lab`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example: linerate lab --json lab.json; linerate lab predict lab.json --cpus 20 --queues 20"
)]
pub(super) struct LabPredictArgs {
    /// Result of `linerate lab --json`
    file: PathBuf,
    /// CPUs of the other machine
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    cpus: u32,
    /// Receive and transmit queues of its interface [default: one per CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    queues: Option<u32>,
    /// Time that a transaction holds the lock of its socket or queue without contention, ns
    #[arg(long, value_name = "NS", default_value_t = 150, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    lock_ns: u32,
    /// Additional time for each further CPU that takes the lock, ns
    #[arg(long, value_name = "NS", default_value_t = 180, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    contention_ns: u32,
    /// Additional time if a datagram is read on another CPU than it arrived on, ns
    #[arg(long, value_name = "NS", default_value_t = 3_300, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    remote_ns: u32,
    #[command(flatten)]
    results: ResultArgs,
}

impl LabPredictArgs {
    pub(super) fn run(self) -> Result<ExitCode> {
        let targets = self.results.targets()?;
        let ladder = Envelope::<LadderReport>::read(&self.file)?;
        let machine = PredictedMachine {
            cpus: self.cpus,
            queues: self.queues.unwrap_or(self.cpus),
            lock_ns: f64::from(self.lock_ns),
            contention_ns: f64::from(self.contention_ns),
            remote_ns: f64::from(self.remote_ns),
            has_generator: false,
        };
        let prediction = LadderPrediction::new(&ladder.result, machine)
            .with_context(|| format!("cannot predict from {}", self.file.display()))?;
        targets.write(&Envelope::new(ladder.host, origin::unix_seconds(), prediction))?;
        Ok(ExitCode::SUCCESS)
    }
}
