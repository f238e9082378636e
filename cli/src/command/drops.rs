//! `linerate drops`: where packets are lost, and why.

mod generator;
mod session;
mod workload;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use linerate_host::Host;
use linerate_trace::drops::{DropsResult, GeneratorSaid};

use crate::envelope::Envelope;
use crate::interrupt::InterruptFlag;
use crate::origin::{self, HostSummary};
use crate::output;
use crate::render::style::TextStyle;
use crate::view::drops::PrintedDrops;
use generator::LoadFile;
use session::{DropsSession, DropsTargetArgs};
use workload::{ConcurrentWorkload, EndedCommand};

use super::netns::NetnsArgs;
use super::results::ResultArgs;

/// Arguments of `linerate drops`.
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
        let started = origin::unix_seconds();
        let mut session = DropsSession::start(&self.target)?;
        let workload = ConcurrentWorkload::begin(&self.target)?;
        let style = if targets.text { TextStyle::stdout() } else { TextStyle::stderr() };
        let ended = if self.target.watch {
            watch(&mut session, &workload, &interrupt, (targets.text, style))?
        } else {
            loop {
                let ended = workload.wait(&interrupt, session.turn()?)?;
                if ended.is_some() || interrupt.is_raised() || workload.is_over() {
                    break ended;
                }
            }
        };
        let accounting = session.end(|| said(load.as_ref(), ended.as_ref()))?;
        let result = DropsResult {
            load: load.as_ref().map(|load| load.name().to_owned()),
            command: ended.as_ref().map(|ended| ended.command.clone()),
            full: self.target.full,
            ..DropsResult::new(accounting)
        };
        let envelope = Envelope::new(HostSummary::observe(&Host::live()), started, result);
        targets.write(&envelope)?;
        if let Some(ended) = &ended {
            ended.must_have_succeeded()?;
        }
        Ok(ExitCode::from(u8::from(!envelope.result.clean)))
    }
}

// The generator's counts. If they are missing because the command that should write them failed,
// returns the error of the command.
fn said(load: Option<&LoadFile>, ended: Option<&EndedCommand>) -> Result<Option<GeneratorSaid>> {
    let said = load.map(LoadFile::read).transpose();
    if let (Err(_), Some(ended)) = (&said, ended) {
        ended.must_have_succeeded()?;
    }
    said
}

const WATCH_INTERVAL: Duration = Duration::from_secs(1);

// Prints the losses of each second until the workload ends: on standard output if it is for text,
// otherwise on standard error.
fn watch(
    session: &mut DropsSession,
    workload: &ConcurrentWorkload,
    interrupt: &InterruptFlag,
    (on_stdout, style): (bool, TextStyle),
) -> Result<Option<EndedCommand>> {
    let begun = Instant::now();
    let mut printed = PrintedDrops::default();
    let mut turn = session.turn()?.map(|after| Instant::now() + after);
    for number in 1_u32.. {
        let second = begun + WATCH_INTERVAL.saturating_mul(number);
        loop {
            let until = turn.map_or(second, |turn| turn.min(second));
            let ended = workload.wait(interrupt, Some(until.saturating_duration_since(Instant::now())))?;
            if ended.is_some() || interrupt.is_raised() || workload.is_over() {
                return Ok(ended);
            }
            if turn.is_some_and(|turn| turn <= Instant::now()) {
                turn = session.turn()?.map(|after| Instant::now() + after);
            }
            if second <= Instant::now() {
                break;
            }
        }
        let Some(accounting) = session.lap()? else { continue };
        let line = printed.second(&accounting, style);
        if on_stdout {
            output::print(&line)?;
        } else {
            eprint!("{line}");
        }
    }
    Ok(None)
}
