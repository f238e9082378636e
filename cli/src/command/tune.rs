//! `linerate tune`: changes to the packet path that are shown, journalled, verified and can be undone.

pub(crate) mod apply;
mod arguments;
pub(crate) mod confirm;
mod flow;
pub(crate) mod generated_load;
pub(crate) mod measure_args;
pub(crate) mod persist;
mod plan;
mod profiles;
mod status;
mod undo;

use std::process::ExitCode;

use crate::command::netns::NetnsArgs;
use anyhow::Result;
use clap::{Args, Subcommand};

pub(crate) use arguments::{AutoUndoArgs, ConsentMode, StateDirArgs};
pub(crate) use plan::{host_name, measured_tunes};
pub(crate) use profiles::load_profile as profile_named;
pub(crate) use undo::undo_and_print;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct TuneArgs {
    #[command(subcommand)]
    verb: Option<TuneAction>,
    #[command(flatten)]
    pub(super) netns: NetnsArgs,
    #[command(flatten)]
    plan: plan::TunePlanArgs,
}

#[derive(Debug, Subcommand)]
enum TuneAction {
    /// Show the changes and their reasons; changes nothing
    Plan(Box<plan::TunePlanArgs>),
    /// Make the changes of a plan; each is journaled before and read back after
    Apply(Box<apply::TuneApplyArgs>),
    /// Give the packets of one service or virtual machine a queue and a CPU of their own
    Flow(Box<flow::TuneFlowArgs>),
    /// List the tunes in effect, and settings that were changed by others since
    Status(status::TuneStatusArgs),
    /// Restore the original values of a tune
    Undo(undo::TuneUndoArgs),
    /// Keep a tune that would undo itself (apply --until-confirmed)
    Confirm(confirm::TuneConfirmArgs),
    /// Apply the tunes in effect again at boot
    Persist(persist::TunePersistArgs),
    /// Remove the files that persist wrote
    Unpersist(persist::TuneUnpersistArgs),
    /// List all tunes
    History(status::TuneHistoryArgs),
    /// List the profiles, or print one
    Profiles(profiles::TuneProfilesArgs),
    /// Wait for a tune to be confirmed, and undo it if it is not
    #[command(hide = true)]
    Guard(confirm::TuneGuardArgs),
    /// Apply the settings that persist wrote
    #[command(hide = true)]
    Reapply(persist::TuneReapplyArgs),
}

impl TuneArgs {
    pub(crate) fn run(self) -> Result<ExitCode> {
        match self.verb {
            None => self.plan.run(),
            Some(TuneAction::Plan(plan)) => plan.run(),
            Some(TuneAction::Apply(apply)) => apply.run(),
            Some(TuneAction::Flow(flow)) => apply::TuneApplyArgs::from(*flow).run(),
            Some(TuneAction::Status(status)) => status.run(),
            Some(TuneAction::Undo(undo)) => undo.run(),
            Some(TuneAction::Confirm(confirm)) => confirm.run(),
            Some(TuneAction::History(history)) => history.run(),
            Some(TuneAction::Profiles(profiles)) => profiles.run(),
            Some(TuneAction::Guard(watch)) => watch.run(),
            Some(TuneAction::Persist(persist)) => persist.run(),
            Some(TuneAction::Unpersist(unpersist)) => unpersist.run(),
            Some(TuneAction::Reapply(reapply)) => reapply.run(),
        }
    }
}
