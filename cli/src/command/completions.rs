//! `linerate completions`: shell functions that complete command lines.

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use clap_complete::Shell;
use clap_complete::env::{CompleteEnv, Shells};

use crate::output;

/// The variable with which the shell functions request the matching words from this program.
const REQUEST_VARIABLE: &str = "LINERATE_COMPLETE";

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

impl CompletionsArgs {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let shells = Shells::builtins();
        let shell = shells.completer(&self.shell.to_string()).context("no completions for this shell")?;
        let mut script = Vec::new();
        shell.write_registration(REQUEST_VARIABLE, "linerate", "linerate", "linerate", &mut script)?;
        output::print(&String::from_utf8(script)?)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Prints the matching words and exits, if a shell function requests them.
pub(crate) fn complete_for_shell() {
    CompleteEnv::with_factory(crate::tree).var(REQUEST_VARIABLE).complete();
}
