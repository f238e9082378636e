//! `linerate tune guard`: the process that undoes a tune when its time is over. Not for people to start.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use linerate_host::Host;
use linerate_tune::guard::{self, TuneGuard};

use super::arguments::StateDirArgs;

/// Arguments of `tune guard`.
#[derive(Debug, Args)]
pub(super) struct TuneGuardArgs {
    /// Number of the tune
    #[arg(value_name = "ID")]
    id: u64,
    #[command(flatten)]
    place: StateDirArgs,
}

impl TuneGuardArgs {
    pub(super) fn run(self) -> Result<ExitCode> {
        guard::run(&self.place.store(), self.id, &Host::live())?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Starts it for a tune that has begun.
pub(crate) fn start(place: &StateDirArgs, tune: u64) -> Result<TuneGuard> {
    // It leaves this directory.
    let directory = place.store().directory().canonicalize().context("the journal's directory is gone")?;
    let words = ["tune", "guard", &tune.to_string(), "--state-dir"].map(OsString::from);
    Ok(guard::start(words.into_iter().chain([directory.into_os_string()]))?)
}
