//! `linerate boost`: a server that is running, unmodified, steered, pinned and tuned from outside.

mod apply;
mod arguments;
mod boosts;
mod document;
mod plan;
mod restart;
mod sighting;
mod status;
mod undo;
mod verification;
mod watching;

use std::process::ExitCode;

use crate::command::netns::NetnsArgs;
use anyhow::Result;
use clap::{Args, ValueEnum};

use arguments::{Asked, Making};
pub(crate) use document::{Applied, Boosted, InForce, Landed, Now, Planned, SteeredGroup};
pub(crate) use verification::Verification;

/// Arguments of `linerate boost`.
#[derive(Debug, Args)]
pub(crate) struct Boost {
    /// What to do
    #[arg(value_enum, default_value_t = Verb::Plan)]
    verb: Verb,
    #[command(flatten)]
    pub(super) netns: NetnsArgs,
    #[command(flatten)]
    asked: Asked,
    #[command(flatten)]
    making: Making,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Verb {
    /// Show the server, where its packets land, and what would be changed; changes nothing
    Plan,
    /// Make these changes, each written down before, and look again
    Apply,
    /// Tell what boosts are in force, and where packets go now
    Status,
    /// Put everything back as it was before the boost
    Undo,
}

impl Boost {
    pub(crate) fn run(self) -> Result<ExitCode> {
        match self.verb {
            Verb::Plan => {
                self.making.must_be_unused("plan")?;
                plan::run(&self.asked)
            }
            Verb::Apply => apply::run(self.asked, self.making),
            Verb::Status => {
                self.making.must_be_unused("status")?;
                status::run(&self.asked)
            }
            Verb::Undo => {
                self.making.must_be_unused("undo")?;
                undo::run(&self.asked)
            }
        }
    }
}
