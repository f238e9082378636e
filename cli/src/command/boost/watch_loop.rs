//! Watches a boosted server until the user ends it.

use anyhow::Result;
use linerate_host::Host;
use linerate_tune::boost::plan::BoostChoice;
use linerate_tune::boost::watch::{self, WatchEvent};

use super::arguments::BoostTargetArgs;
use crate::interrupt::InterruptFlag;
use crate::output::print_status;
use crate::view;

/// Why watching ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WatchOutcome {
    Ended,
    /// A signal arrived, or the boost was undone.
    Over,
}

/// Watches until the server ends, the boost is undone, or a signal arrives.
pub(super) fn watch(
    host: &Host,
    target: &BoostTargetArgs,
    tune: u64,
    boost_choice: &BoostChoice,
    interrupt: &InterruptFlag,
) -> Result<WatchOutcome> {
    let (store, query) = (target.state_dir.store(), target.server_query()?);
    let undo = target.state_dir.command(&format!("undo {tune}"));
    status_line!("Tune {tune} is watched; Ctrl-C ends that and leaves it in effect ({undo} undoes it).");
    let mut end_event = None;
    let stop = || interrupt.is_raised();
    watch::watch(host, &store, tune, (&query, boost_choice), &stop, &mut |event| {
        print_status(&view::boost::event(&event));
        end_event = matches!(event, WatchEvent::Ended | WatchEvent::Undone).then_some(event);
    })?;
    if end_event.is_none() {
        status_line!("Tune {tune} stays in effect and is no longer watched.");
    }
    Ok(if end_event == Some(WatchEvent::Ended) { WatchOutcome::Ended } else { WatchOutcome::Over })
}
