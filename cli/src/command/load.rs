//! `linerate load`: offers requests to a server and accounts for every one.

mod arguments;
mod destinations;
mod merge;
mod on_demand;
mod outputs;
pub(crate) mod overload;
pub(crate) mod ramp;
mod ranges;
mod run;
pub(crate) mod search;
mod slot;
mod start;
mod workload;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Result, ensure};
use clap::{Args, Subcommand};
use linerate_host::CpuSet;
use linerate_load::LoadWorkload;
use linerate_load::generator::{GeneratorOptions, LiveFrames};

use crate::command::compare::CompareArgs;
use crate::command::netns::NetnsArgs;
use crate::interrupt::InterruptFlag;
use arguments::{FlowArgs, LimitArgs, OutputArgs, PaceArgs, TimeArgs};
pub(crate) use outputs::EventStream;
use outputs::LoadOutputs;
use run::LoadRun;
use start::StartAt;
use workload::WorkloadArguments;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct LoadArgs {
    #[command(subcommand)]
    other: Option<LoadAction>,
    #[command(flatten)]
    pub(super) netns: NetnsArgs,
    /// Destination; the flows use several in turn
    #[arg(value_name = "ADDR:PORT", required_unless_present_any = ["targets_file", "compare"], conflicts_with_all = ["compare", "tolerance"])]
    targets: Vec<String>,
    #[command(flatten)]
    pace: PaceArgs,
    #[command(flatten)]
    times: TimeArgs,
    #[command(flatten)]
    workload: WorkloadArguments,
    #[command(flatten)]
    flows: FlowArgs,
    #[command(flatten)]
    bounds: LimitArgs,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    compare: CompareArgs,
}

#[derive(Debug, Subcommand)]
enum LoadAction {
    /// Merge what several generators found at the same time into one result
    Merge(merge::MergeArgs),
}

impl LoadArgs {
    pub(crate) fn run(self) -> Result<ExitCode> {
        if let Some(LoadAction::Merge(merge)) = self.other {
            return merge.run();
        }
        if let Some(paths) = self.compare.paths() {
            return paths.compare_loads(&self.output.results.targets()?);
        }
        if self.pace.on_demand {
            return self.on_demand();
        }
        ensure!(
            self.bounds.overload.is_empty() || self.pace.search || self.pace.capacity.is_some(),
            "--overload needs the capacity to exceed: find it with --search, or give it with --capacity"
        );
        let outputs = LoadOutputs::open(&self.output)?;
        ensure!(
            !self.pace.search || self.times.duration.is_none() || !self.bounds.overload.is_empty(),
            "--duration has no effect on a search without --overload: --slot is the time of one rate, --time of all"
        );
        let interrupt = InterruptFlag::install()?;
        let workload = self.workload.workload()?;
        let notes = match &workload {
            LoadWorkload::Exchange(exchange) => {
                let takes_order = exchange.tag.is_none() && !self.times.no_reply;
                let order_note = (takes_order && exchange.protocol == "raw").then(|| ORDER_NOTE.to_owned());
                exchange.notes.iter().cloned().chain(order_note).collect()
            }
            LoadWorkload::Echo { .. } => Vec::new(),
        };
        let options = GeneratorOptions { workload, ..self.generator_options(interrupt.flag())? };
        let start_at = self.times.start_at.map(StartAt::realtime_ns).transpose();
        let start_at_realtime_ns = start_at.map_err(anyhow::Error::msg)?;
        let generator = options.start()?;
        let mut run = LoadRun {
            generator,
            outputs,
            interrupt,
            bounds: self.bounds,
            notes,
            times: self.times,
            interval: self.output.interval,
            start_at_realtime_ns,
        };
        run.execute(&self.pace)
    }

    fn generator_options(&self, cancel: Arc<AtomicBool>) -> Result<GeneratorOptions> {
        let flows = &self.flows;
        let targets = destinations::targets(&self.targets, flows.targets_file.as_deref())?;
        let cpus = flows.cpus.as_ref();
        let threads = flows.threads.unwrap_or_else(|| cpus.map_or(1, CpuSet::len));
        Ok(GeneratorOptions {
            sources: destinations::sources(&flows.sources)?,
            allowed: flows.allow_destination.clone(),
            threads,
            flows: flows.flows.unwrap_or(threads.max(targets.len()).max(DEFAULT_FLOWS)),
            backend: flows.backend,
            live_frames: match (flows.live_frames, flows.no_live_frames) {
                (true, _) => LiveFrames::Always,
                (_, true) => LiveFrames::Never,
                _ => LiveFrames::Floods,
            },
            source_ports: flows.source_ports.as_ref().map(|ports| ports.0.clone()),
            cpus: cpus.map(|cpus| cpus.iter().collect()),
            no_fragment: flows.no_fragment,
            cancel,
            ..GeneratorOptions::new(targets)
        })
    }
}

const ORDER_NOTE: &str = "replies are taken in the order of the requests: after a lost reply, latency is an \
                          upper bound; give --tag if the protocol has one";

/// Least number of flows by default.
const DEFAULT_FLOWS: usize = 16;
