//! `linerate tune`: settings of the packet path as one step that is shown, journalled, verified and can be undone.

pub(crate) mod apply;
mod arguments;
mod ask;
mod choice;
mod confirm;
pub(crate) mod guard;
mod persist;
mod plan;
mod planning;
mod profiles;
mod reapply;
mod status;
mod undo;

use std::process::ExitCode;

use crate::command::netns::NetnsArgs;
use anyhow::Result;
use clap::{Args, Subcommand};

pub(crate) use arguments::{AutoUndoArgs, StateDirArgs};
pub(crate) use ask::ConsentMode;
pub(crate) use choice::named as profile_named;
pub(crate) use planning::host_name;
pub(crate) use undo::take_back;

/// Arguments of `linerate tune`.
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
    /// Show what would be changed, and why; changes nothing
    Plan(Box<plan::TunePlanArgs>),
    /// Make the changes of a plan, each written down before and read back after
    Apply(Box<apply::TuneApplyArgs>),
    /// Tell what tunes are in force, and what of them somebody else changed since
    Status(status::TuneStatusArgs),
    /// Put every setting of a tune back to what it was
    Undo(undo::TuneUndoArgs),
    /// Have a tune stay that would undo itself (apply --until-confirmed)
    Confirm(confirm::TuneConfirmArgs),
    /// Have what is in force be made again at boot
    Persist(persist::TunePersistArgs),
    /// Remove the files that persist wrote
    Unpersist(persist::TuneUnpersistArgs),
    /// List all tunes that were ever made
    History(status::TuneHistoryArgs),
    /// List what there is to tune for, or print a profile
    Profiles(profiles::TuneProfilesArgs),
    /// Wait for a tune to be confirmed, and undo it if it is not
    #[command(hide = true)]
    Guard(guard::TuneGuardArgs),
    /// Put in force again what persist wrote
    #[command(hide = true)]
    Reapply(reapply::TuneReapplyArgs),
}

impl TuneArgs {
    pub(crate) fn run(self) -> Result<ExitCode> {
        match self.verb {
            None => self.plan.run(),
            Some(TuneAction::Plan(plan)) => plan.run(),
            Some(TuneAction::Apply(apply)) => apply.run(),
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
