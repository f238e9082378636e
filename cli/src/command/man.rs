//! `linerate man`: writes the manual pages.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Args;

use crate::manual;
use crate::output::{self, OutputTarget};

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Write the pages to this directory
    directory: PathBuf,
}

impl ManArgs {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let Self { directory } = self;
        let pages = manual::pages(&crate::tree());
        fs::create_dir_all(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
        for page in &pages {
            OutputTarget::File(directory.join(&page.file)).write(&page.text)?;
        }
        let names: String = pages.iter().map(|page| format!("{}\n", page.file)).collect();
        output::print(&names)?;
        Ok(ExitCode::SUCCESS)
    }
}
