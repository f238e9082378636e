//! `linerate boost undo`: restores the original values of a boost.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use linerate_host::Host;
use linerate_tune::boost::replicas::{self, ReplicaError};

use super::apply::must_be_root;
use super::arguments::BoostTargetArgs;
use super::boosts;
use crate::command::tune;
use crate::output;
use crate::view;

pub(super) fn run(target: &BoostTargetArgs) -> Result<ExitCode> {
    must_be_root("undo")?;
    let journal = target.state_dir.existing_store().and_then(|store| Ok(store.read()?));
    let latest_boost = journal.as_ref().ok().and_then(|journal| boosts::latest(journal, target));
    let has_ended_copies = target.pid.is_none() && end_leftovers(target.port, latest_boost.is_some())?;
    journal?;
    // The copies are all there was to undo. No boost, so no document of its undo.
    if latest_boost.is_none() && has_ended_copies {
        return Ok(ExitCode::SUCCESS);
    }
    let number = latest_boost.with_context(|| match (target.port, target.pid) {
        (None, None) => "no boost is in effect: there is nothing to undo".to_owned(),
        (Some(port), _) => {
            format!("no boost of a server on port {port} is in effect: there is nothing to undo")
        }
        (None, Some(pid)) => {
            format!("no boost of the server of process {pid} is in effect: there is nothing to undo")
        }
    })?;
    tune::undo_and_print(&target.state_dir, Some(number), target.full, target.json.as_deref())
}

/// Ends the copies that a killed `boost run` left, unless they may be of another server than the
/// boost. Returns whether there were any. Fails if there is nothing to undo but the copies of a
/// running `boost run`.
fn end_leftovers(port: Option<u16>, has_boost: bool) -> Result<bool> {
    let host = Host::live();
    if port.is_none() && has_boost {
        let mut leftovers = replicas::groups(&host, None).unwrap_or_default();
        leftovers.retain(|group| !group.is_supervised(&host));
        for group in leftovers {
            let port = group.ports.first().map(|port| format!(" --port {port}")).unwrap_or_default();
            status_line!(
                "The replicas of linerate process {}, which was killed, still run: linerate boost undo{port} ends them.",
                group.supervisor
            );
        }
        return Ok(false);
    }
    let removed = match replicas::remove_leftovers(&host, port) {
        // A container may see no control groups, and has no copies then.
        Err(ReplicaError::NoCgroups { .. }) => return Ok(false),
        removed => removed?,
    };
    for leftover in &removed {
        output::print(&view::boost::replicas::removed_text(leftover))?;
    }
    if let (Some(port), true) = (port, removed.is_empty() && !has_boost)
        && let Some(group) = replicas::groups(&host, Some(port))?.first()
    {
        let supervisor = group.supervisor;
        if !group.is_supervisor_visible(&host) {
            bail!(
                "the replicas on port {port} belong to linerate boost run in another PID namespace, process {supervisor} \
                 there: end it there"
            );
        }
        bail!(
            "the replicas on port {port} belong to linerate boost run, process {supervisor}: end that process (kill \
             {supervisor})"
        );
    }
    Ok(!removed.is_empty())
}
