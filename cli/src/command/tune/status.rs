//! `linerate tune status` and `history`.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use linerate_host::Host;
use linerate_tune::status::{JournalStatus, TuneHistory};

use super::arguments::StateDirArgs;
use crate::command::results::write_state;
use crate::envelope::Envelope;
use crate::output::OutputTarget;
use crate::view;

#[derive(Debug, Args)]
pub(super) struct TuneStatusArgs {
    /// Print all settings, not only those that differ from the tune
    #[arg(long)]
    full: bool,
    #[command(flatten)]
    history: TuneHistoryArgs,
}

#[derive(Debug, Args)]
pub(super) struct TuneHistoryArgs {
    /// Write the result as JSON; - is standard output
    #[arg(short = 'j', long, value_name = "FILE")]
    json: Option<String>,
    #[command(flatten)]
    state_dir: StateDirArgs,
}

impl TuneStatusArgs {
    pub(super) fn run(self) -> Result<ExitCode> {
        let TuneHistoryArgs { json, state_dir } = &self.history;
        let json = OutputTarget::from_option(json.as_deref())?;
        let host = Host::live();
        let status = JournalStatus::of(&state_dir.existing_store()?.read()?, &host);
        let needs_attention = status.needs_attention();
        write_state(json.as_ref(), &host, status, |envelope| {
            view::tune::status(envelope, &|subcommand| state_dir.command(subcommand), self.full)
        })?;
        Ok(ExitCode::from(u8::from(needs_attention)))
    }
}

impl TuneHistoryArgs {
    pub(super) fn run(self) -> Result<ExitCode> {
        let json = OutputTarget::from_option(self.json.as_deref())?;
        let history = TuneHistory::of(&self.state_dir.existing_store()?.read()?);
        write_state(json.as_ref(), &Host::live(), history, Envelope::document)?;
        Ok(ExitCode::SUCCESS)
    }
}
