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

pub(crate) use arguments::{Lasting, Place};
pub(crate) use ask::Agreement;
pub(crate) use choice::named as profile_named;
pub(crate) use planning::host_name;
pub(crate) use undo::take_back;

/// Arguments of `linerate tune`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Tune {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    pub(super) netns: NetnsArgs,
    #[command(flatten)]
    plan: plan::Show,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show what would be changed, and why; changes nothing
    Plan(Box<plan::Show>),
    /// Make the changes of a plan, each written down before and read back after
    Apply(Box<apply::Apply>),
    /// Tell what tunes are in force, and what of them somebody else changed since
    Status(status::Status),
    /// Put every setting of a tune back to what it was
    Undo(undo::Undo),
    /// Have a tune stay that would undo itself (apply --until-confirmed)
    Confirm(confirm::Confirm),
    /// Have what is in force be made again at boot
    Persist(persist::Persist),
    /// Remove the files that persist wrote
    Unpersist(persist::Unpersist),
    /// List all tunes that were ever made
    History(status::Past),
    /// List what there is to tune for, or print a profile
    Profiles(profiles::Profiles),
    /// Wait for a tune to be confirmed, and undo it if it is not
    #[command(hide = true)]
    Guard(guard::Watch),
    /// Put in force again what persist wrote
    #[command(hide = true)]
    Reapply(reapply::Reapply),
}

impl Tune {
    pub(crate) fn run(self) -> Result<ExitCode> {
        match self.verb {
            None => self.plan.run(),
            Some(Verb::Plan(plan)) => plan.run(),
            Some(Verb::Apply(apply)) => apply.run(),
            Some(Verb::Status(status)) => status.run(),
            Some(Verb::Undo(undo)) => undo.run(),
            Some(Verb::Confirm(confirm)) => confirm.run(),
            Some(Verb::History(history)) => history.run(),
            Some(Verb::Profiles(profiles)) => profiles.run(),
            Some(Verb::Guard(watch)) => watch.run(),
            Some(Verb::Persist(persist)) => persist.run(),
            Some(Verb::Unpersist(unpersist)) => unpersist.run(),
            Some(Verb::Reapply(reapply)) => reapply.run(),
        }
    }
}
