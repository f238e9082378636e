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

use arguments::{BoostApplyArgs, BoostTargetArgs};
pub(crate) use document::{
    ActiveBoost, BoostApplyDocument, BoostPlanDocument, BoostStatusDocument, BoostedServerState,
    DeliveryCounts, SteeredGroup,
};
pub(crate) use verification::BoostVerification;

/// Arguments of `linerate boost`.
#[derive(Debug, Args)]
pub(crate) struct BoostArgs {
    /// What to do
    #[arg(value_enum, default_value_t = BoostAction::Plan)]
    verb: BoostAction,
    #[command(flatten)]
    pub(super) netns: NetnsArgs,
    #[command(flatten)]
    asked: BoostTargetArgs,
    #[command(flatten)]
    making: BoostApplyArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum BoostAction {
    /// Show the server, where its packets land, and what would be changed; changes nothing
    Plan,
    /// Make these changes, each written down before, and look again
    Apply,
    /// Tell what boosts are in force, and where packets go now
    Status,
    /// Put everything back as it was before the boost
    Undo,
}

impl BoostArgs {
    pub(crate) fn run(self) -> Result<ExitCode> {
        match self.verb {
            BoostAction::Plan => {
                self.making.must_be_unused("plan")?;
                plan::run(&self.asked)
            }
            BoostAction::Apply => apply::run(self.asked, self.making),
            BoostAction::Status => {
                self.making.must_be_unused("status")?;
                status::run(&self.asked)
            }
            BoostAction::Undo => {
                self.making.must_be_unused("undo")?;
                undo::run(&self.asked)
            }
        }
    }
}
