//! `linerate lab`: the ladder between two throw-away hosts, and the hosts for other uses.

mod climb;
mod hosts;

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use linerate_host::{Host, Setting, SettingValue};
use linerate_lab::userns::{self, LabPrivilege};

/// Climb the ladder between two throw-away hosts on this machine, and report.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    action: Option<LabAction>,
    #[command(flatten)]
    climb: climb::LabRunArgs,
}

#[derive(Debug, Subcommand)]
enum LabAction {
    /// Make throw-away hosts and keep them, for a server of your own
    Up(hosts::LabUpArgs),
    /// Remove hosts made with 'up'
    Down(hosts::LabDownArgs),
    /// List labs, their hosts and addresses
    List(hosts::LabListArgs),
    /// Run a command on a host of a lab
    Exec(hosts::LabExecArgs),
    /// Remove what labs that died left behind
    Clean(hosts::LabCleanArgs),
    /// Hold the hosts of 'up'
    #[command(hide = true)]
    Hold(hosts::LabHoldArgs),
}

impl LabArgs {
    pub(crate) fn run(self) -> Result<ExitCode> {
        match self.action {
            None => self.climb.run(),
            Some(LabAction::Up(up)) => up.run(),
            Some(LabAction::Down(down)) => down.run(),
            Some(LabAction::List(list)) => list.run(),
            Some(LabAction::Exec(exec)) => exec.run(),
            Some(LabAction::Clean(clean)) => clean.run(),
            Some(LabAction::Hold(hold)) => hold.run(),
        }
    }
}

/// Enters a user namespace where the process is not root. To be called before any thread is made.
fn enter() -> Result<LabPrivilege> {
    match userns::enter_if_needed() {
        LabPrivilege::Forbidden { why, how_to_allow } => {
            bail!("a lab needs root or an unprivileged user namespace, and {why}; {how_to_allow}")
        }
        allowed => Ok(allowed),
    }
}

/// Puts back a host-wide setting that a lab recorded before it changed it.
fn restore(key: &str, value: &serde_json::Value) -> Result<(), String> {
    let setting: Setting =
        serde_json::from_str(key).map_err(|error| format!("'{key}' is no setting: {error}"))?;
    let value: SettingValue =
        serde_json::from_value(value.clone()).map_err(|error| format!("'{value}' is no value: {error}"))?;
    setting.write(&Host::live(), &value).map_err(|error| error.to_string())
}
