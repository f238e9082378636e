//! `linerate boost undo`: restores the original values of a boost.

use std::process::ExitCode;

use anyhow::{Context, Result};

use super::apply::must_be_root;
use super::arguments::BoostTargetArgs;
use super::boosts;
use crate::command::tune;

pub(super) fn run(asked: &BoostTargetArgs) -> Result<ExitCode> {
    must_be_root("undo")?;
    let journal = asked.place.existing()?.read()?;
    let number = boosts::latest(&journal, asked).with_context(|| match (asked.port, asked.pid) {
        (None, None) => "no boost is in effect: there is nothing to undo".to_owned(),
        (Some(port), _) => {
            format!("no boost of a server on port {port} is in effect: there is nothing to undo")
        }
        (None, Some(pid)) => {
            format!("no boost of the server of process {pid} is in effect: there is nothing to undo")
        }
    })?;
    tune::undo_and_print(&asked.place, Some(number), asked.full, asked.json.as_deref())
}
