//! `linerate boost`: steers, pins and tunes a running server from outside.

mod apply;
mod arguments;
mod attach;
mod boosts;
mod observation;
mod plan;
mod restart;
mod run;
mod status;
mod undo;
mod unit;
mod watch_loop;

use std::process::ExitCode;

use crate::command::netns::NetnsArgs;
use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};

use arguments::{BoostApplyArgs, BoostTargetArgs};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct BoostArgs {
    #[command(subcommand)]
    replicas: Option<ReplicaAction>,
    /// What to do
    #[arg(value_enum, default_value_t = BoostAction::Plan)]
    verb: BoostAction,
    #[command(flatten)]
    pub(super) netns: NetnsArgs,
    #[command(flatten)]
    target: BoostTargetArgs,
    #[command(flatten)]
    making: BoostApplyArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum BoostAction {
    /// Show the server, the delivery of its packets, and the changes; changes nothing
    Plan,
    /// Make the changes; each is journaled before; then observe again
    Apply,
    /// List the boosts in effect, and the delivery of packets now
    Status,
    /// Restore the original values
    Undo,
}

/// Copies of servers with one socket.
#[derive(Debug, Subcommand)]
enum ReplicaAction {
    /// Run copies of a server that share its port, without changing the server
    Run(run::BoostRunArgs),
    /// Replace the server that has the port by copies of a new server, without losing a request
    Replace(run::BoostReplaceArgs),
    /// Have systemd start copies of a service's server, by a drop-in
    Unit(unit::BoostUnitArgs),
    /// Let processes of a control group share ports, for supervisors that start the copies
    Attach(attach::BoostAttachArgs),
    /// Print lines after a prefix
    #[command(hide = true)]
    PrefixLines(run::PrefixLinesArgs),
}

impl BoostArgs {
    pub(crate) fn run(self) -> Result<ExitCode> {
        match self.replicas {
            Some(ReplicaAction::Run(run)) => return run.run(),
            Some(ReplicaAction::Replace(replace)) => return replace.run(),
            Some(ReplicaAction::Unit(unit)) => return unit.run(),
            Some(ReplicaAction::Attach(attach)) => return attach.run(),
            Some(ReplicaAction::PrefixLines(lines)) => return lines.run(),
            None => {}
        }
        match self.verb {
            BoostAction::Plan => {
                self.making.check_no_apply_options("plan", &self.target)?;
                plan::run(&self.target)
            }
            BoostAction::Apply => apply::run(self.target, self.making),
            BoostAction::Status => {
                self.making.check_no_apply_options("status", &self.target)?;
                status::run(&self.target)
            }
            BoostAction::Undo => {
                self.making.check_no_apply_options("undo", &self.target)?;
                undo::run(&self.target)
            }
        }
    }
}
