//! `linerate serve`: servers on the engine.

mod echo;
mod guard;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum Serve {
    /// Answer each datagram with itself
    Echo(Box<echo::Echo>),
}

impl Serve {
    pub(crate) fn run(self) -> Result<ExitCode> {
        match self {
            Serve::Echo(echo) => echo.run(),
        }
    }
}
