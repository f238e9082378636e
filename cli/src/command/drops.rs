//! `linerate drops`: where packets are lost, and why.

mod generator;
mod session;
mod workload;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use linerate_host::Host;
use linerate_trace::drops::{DropsResult, DropsWatch, GeneratorSaid, PacketAccounting};

use crate::envelope::Envelope;
use crate::interrupt::InterruptFlag;
use crate::origin::{self, HostSummary};
use crate::output;
use crate::render::style::TextStyle;
use crate::view::drops::PrintedDrops;
use generator::LoadFile;
use session::DropsTargetArgs;
use workload::{ConcurrentWorkload, EndedCommand};

use super::netns::NetnsArgs;
use super::results::ResultArgs;

#[derive(Debug, Args)]
pub(crate) struct DropsArgs {
    #[command(flatten)]
    target: DropsTargetArgs,
    #[command(flatten)]
    pub(super) netns: NetnsArgs,
    #[command(flatten)]
    results: ResultArgs,
}

impl DropsArgs {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let targets = self.results.targets()?;
        let interrupt = InterruptFlag::install()?;
        let load = self.target.load.as_deref().map(LoadFile::expected).transpose()?;
        let started_unix_seconds = origin::unix_seconds();
        let host = Host::live();
        let mut drops = self.target.start(&host)?;
        let mut workload = ConcurrentWorkload::begin(&self.target)?;
        let style = if targets.text { TextStyle::stdout() } else { TextStyle::stderr() };
        let ended_command = if self.target.watch {
            watch(&host, &mut drops, &mut workload, &interrupt, (targets.text, style))?
        } else {
            loop {
                let ended_command = workload.wait(&interrupt, drops.turn(&host)?)?;
                if ended_command.is_some() || interrupt.is_raised() || workload.is_over() {
                    break ended_command;
                }
            }
        };
        let mut evidence = drops.total(&host)?;
        evidence.generator = read_generator_counts(load.as_ref(), ended_command.as_ref())?;
        let result = DropsResult {
            load: load.as_ref().map(|load| load.name.clone()),
            command: ended_command.as_ref().map(|ended_command| ended_command.command.clone()),
            full: self.target.full,
            ..DropsResult::new(PacketAccounting::make(&evidence))
        };
        let envelope = Envelope::new(HostSummary::observe(&host), started_unix_seconds, result);
        targets.write(&envelope)?;
        if let Some(ended_command) = &ended_command {
            ended_command.check_success()?;
        }
        Ok(ExitCode::from(u8::from(!envelope.result.clean)))
    }
}

// The generator's counts. If they are missing because the command that should write them failed,
// returns the error of the command.
fn read_generator_counts(
    load: Option<&LoadFile>,
    ended_command: Option<&EndedCommand>,
) -> Result<Option<GeneratorSaid>> {
    let counts = load.map(LoadFile::read).transpose();
    if let (Err(_), Some(ended_command)) = (&counts, ended_command) {
        ended_command.check_success()?;
    }
    counts
}

const WATCH_INTERVAL: Duration = Duration::from_secs(1);

// Prints the losses of each second until the workload ends: on standard output if it is for text,
// otherwise on standard error.
fn watch(
    host: &Host,
    drops: &mut DropsWatch,
    workload: &mut ConcurrentWorkload,
    interrupt: &InterruptFlag,
    (to_stdout, style): (bool, TextStyle),
) -> Result<Option<EndedCommand>> {
    let mut printed = PrintedDrops::default();
    let mut interval_end = Instant::now() + WATCH_INTERVAL;
    let mut next_turn = Instant::now() + drops.turn(host)?;
    loop {
        let wait = next_turn.min(interval_end).saturating_duration_since(Instant::now());
        let ended_command = workload.wait(interrupt, wait)?;
        let is_over = ended_command.is_some() || interrupt.is_raised() || workload.is_over();
        if !is_over && next_turn <= Instant::now() {
            next_turn = Instant::now() + drops.turn(host)?;
        }
        // The last interval may be shorter.
        if is_over || interval_end <= Instant::now() {
            if let Some(evidence) = drops.lap(host)? {
                let line = printed.interval_line(&PacketAccounting::make(&evidence), style);
                if to_stdout {
                    output::print_live(&line)?;
                } else {
                    status!("{line}");
                }
            }
            interval_end += WATCH_INTERVAL;
        }
        if is_over {
            return Ok(ended_command);
        }
    }
}
