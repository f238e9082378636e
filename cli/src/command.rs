//! The commands, one file each.

pub(crate) mod calc;
pub(crate) mod doctor;
mod lab;
pub(crate) mod load;
mod serve;

use std::process::ExitCode;

use clap::Subcommand;

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Climb the ladder between two throw-away hosts on this machine, and report
    Lab(Box<lab::Lab>),
    /// Run a server on the engine
    #[command(subcommand)]
    Serve(serve::Serve),
    /// Generate, match and time transactions with a server
    Load(Box<load::Load>),
    /// Find what is wrong along the packet path; changes nothing
    Doctor(Box<doctor::Doctor>),
    /// Wire arithmetic: what a link can carry
    Calc(calc::Calc),
}

impl Command {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        match self {
            Command::Lab(lab) => lab.run(),
            Command::Serve(serve) => serve.run(),
            Command::Load(load) => load.run(),
            Command::Doctor(doctor) => doctor.run(),
            Command::Calc(calc) => calc.run(),
        }
    }
}
