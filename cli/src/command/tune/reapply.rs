//! `linerate tune reapply`: what `persist` wrote, put in force again. For units and boot scripts.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use linerate_host::Host;
use linerate_tune::persist::{self, DOCUMENT_FILE};

use super::arguments::{StateDirArgs, must_be_root};
use crate::interrupt::InterruptFlag;
use crate::output;

/// Arguments of `tune reapply`.
#[derive(Debug, Args)]
pub(super) struct TuneReapplyArgs {
    /// The file with the settings
    #[arg(long, value_name = "FILE", default_value = DOCUMENT_FILE)]
    file: PathBuf,
    /// Only the settings of this interface
    #[arg(short = 'i', long, value_name = "IF")]
    interface: Option<String>,
    #[command(flatten)]
    place: StateDirArgs,
}

impl TuneReapplyArgs {
    pub(super) fn run(self) -> Result<ExitCode> {
        must_be_root("reapply")?;
        // Between two changes is no place to end: systemd's stop ends it at the second signal.
        let _interrupt = InterruptFlag::install_ignoring_hangup()?;
        let file = self.file.display().to_string();
        let text = std::fs::read_to_string(&self.file).with_context(|| format!("cannot read {file}"))?;
        let document = persist::PersistedSettings::parse(&text, &file)?;
        let only = self.interface.as_deref();
        let done = persist::reapply(&self.place.store(), &Host::live(), &document, only, output::argv())?;
        let lines: Vec<String> = done.settings.iter().map(|setting| format!("{setting}\n")).collect();
        output::print(&lines.concat())?;
        Ok(ExitCode::from(u8::from(done.has_failures())))
    }
}
