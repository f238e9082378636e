//! `linerate tune status` and `history`.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use linerate_host::Host;
use linerate_tune::status::{JournalStatus, TuneHistory};

use super::arguments::StateDirArgs;
use crate::command::results::write_result;
use crate::document::Document;
use crate::envelope::{CommandResult, Envelope};
use crate::origin::{self, HostSummary};
use crate::output::OutputTarget;
use crate::view;

#[derive(Debug, Args)]
pub(super) struct TuneStatusArgs {
    /// Print all settings, not only those that differ from the tune
    #[arg(long)]
    full: bool,
    #[command(flatten)]
    looking: TuneStatusReader,
}

#[derive(Debug, Args)]
pub(super) struct TuneHistoryArgs {
    #[command(flatten)]
    looking: TuneStatusReader,
}

#[derive(Debug, Args)]
struct TuneStatusReader {
    /// Write the result as JSON; - is standard output
    #[arg(short = 'j', long, value_name = "FILE")]
    json: Option<String>,
    #[command(flatten)]
    state_dir: StateDirArgs,
}

impl TuneStatusArgs {
    pub(super) fn run(self) -> Result<ExitCode> {
        let TuneStatusReader { json, state_dir } = &self.looking;
        let json = OutputTarget::from_option(json.as_deref())?;
        let host = Host::live();
        let status = JournalStatus::of(&state_dir.existing_store()?.read()?, &host);
        let needs_attention = status.needs_attention();
        print(json.as_ref(), &host, status, |envelope| {
            view::tune::status(envelope, &|subcommand| state_dir.command(subcommand), self.full)
        })?;
        Ok(ExitCode::from(u8::from(needs_attention)))
    }
}

impl TuneHistoryArgs {
    pub(super) fn run(self) -> Result<ExitCode> {
        let TuneStatusReader { json, state_dir } = &self.looking;
        let json = OutputTarget::from_option(json.as_deref())?;
        let history = TuneHistory::of(&state_dir.existing_store()?.read()?);
        print(json.as_ref(), &Host::live(), history, Envelope::document)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn print<T: CommandResult>(
    json: Option<&OutputTarget>,
    host: &Host,
    result: T,
    document: impl Fn(&Envelope<T>) -> Document,
) -> Result<()> {
    let envelope = Envelope::new(HostSummary::observe(host), origin::unix_seconds(), result);
    write_result(json, &envelope, || document(&envelope))
}
