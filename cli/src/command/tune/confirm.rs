//! `linerate tune confirm`: a tune that would undo itself stays.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use linerate_host::Host;
use linerate_tune::transaction;

use super::arguments::{StateDirArgs, must_be_root};
use crate::output;

/// Arguments of `tune confirm`.
#[derive(Debug, Args)]
pub(super) struct TuneConfirmArgs {
    /// Number of the tune [default: the latest that waits for it]
    #[arg(value_name = "ID")]
    id: Option<u64>,
    #[command(flatten)]
    place: StateDirArgs,
}

impl TuneConfirmArgs {
    pub(super) fn run(self) -> Result<ExitCode> {
        must_be_root("confirm")?;
        let mut writer = self.place.existing()?.lock()?;
        let id = transaction::confirm(&mut writer, &Host::live(), self.id)?;
        drop(writer);
        let undo = self.place.command(&format!("undo {id}"));
        output::print(&format!("Tune {id} is confirmed and stays. To take it back: {undo}\n"))?;
        Ok(ExitCode::SUCCESS)
    }
}
