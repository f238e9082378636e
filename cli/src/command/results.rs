//! Where a command's result goes beside the text.

use anyhow::{Result, ensure};
use clap::Args;

use crate::output::Target;

/// Options that commands with a report have in common.
#[derive(Debug, Args)]
pub(crate) struct Results {
    /// Write the result as JSON; - is standard output
    #[arg(long, value_name = "FILE")]
    json: Option<String>,
    /// Write the result as an HTML page; - is standard output
    #[arg(long, value_name = "FILE")]
    html: Option<String>,
}

/// Where the result is wanted.
#[derive(Debug)]
pub(crate) struct Targets {
    pub(crate) json: Option<Target>,
    pub(crate) html: Option<Target>,
    /// Whether standard output is left for text.
    pub(crate) text: bool,
}

impl Results {
    /// Where to, found out before the work.
    pub(crate) fn targets(&self) -> Result<Targets> {
        let json = Target::wanted(self.json.as_deref())?;
        let html = Target::wanted(self.html.as_deref())?;
        let on_stdout =
            [&json, &html].into_iter().flatten().filter(|target| **target == Target::Stdout).count();
        ensure!(on_stdout <= 1, "--json and --html cannot share standard output; give one of them a file");
        Ok(Targets { json, html, text: on_stdout == 0 })
    }
}
