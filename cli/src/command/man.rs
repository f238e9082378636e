//! `linerate man`: the manual pages, and the table of exit statuses, as the sources of this program have them.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Args;

use crate::{manual, output};

/// Arguments of `linerate man`.
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Write the pages to this directory
    #[arg(required_unless_present = "exit_status")]
    directory: Option<PathBuf>,
    /// Print the table of exit statuses instead
    #[arg(long, conflicts_with = "directory")]
    exit_status: bool,
}

impl ManArgs {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let Some(directory) = self.directory else {
            output::print(&manual::exit_status(&crate::tree()))?;
            return Ok(ExitCode::SUCCESS);
        };
        let pages = manual::pages(&crate::tree());
        fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
        for page in &pages {
            let path = directory.join(&page.file);
            fs::write(&path, &page.text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        let names: String = pages.iter().map(|page| format!("{}\n", page.file)).collect();
        output::print(&names)?;
        Ok(ExitCode::SUCCESS)
    }
}
