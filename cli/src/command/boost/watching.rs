//! Watches a boosted server until the user ends it.

use anyhow::Result;
use linerate_host::Host;
use linerate_tune::boost::plan::BoostChoice;
use linerate_tune::boost::watch::{self, WatchEvent};

use super::arguments::BoostTargetArgs;
use crate::command::tune::apply::runner::tell;
use crate::interrupt::InterruptFlag;
use crate::view;

/// Why watching ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WatchOutcome {
    /// The server has ended.
    Ended,
    /// A signal arrived, or the boost was undone.
    Over,
}

/// Watches until the server ends, the boost is undone, or a signal arrives.
pub(super) fn watch(
    host: &Host,
    target: &BoostTargetArgs,
    tune: u64,
    choice: &BoostChoice,
    interrupt: &InterruptFlag,
) -> Result<WatchOutcome> {
    let (store, wanted) = (target.state_dir.store(), target.wanted()?);
    let undo = target.state_dir.command(&format!("undo {tune}"));
    tell(&format!("Tune {tune} is watched; Ctrl-C ends that and leaves it in effect ({undo} undoes it).\n"));
    let mut ended = None;
    let stop = || interrupt.is_raised();
    watch::watch(host, &store, tune, (&wanted, choice), &stop, &mut |event| {
        tell(&view::boost::event(&event));
        ended = matches!(event, WatchEvent::Ended | WatchEvent::Undone).then_some(event);
    })?;
    if ended.is_none() {
        tell(&format!("Tune {tune} stays in effect and is no longer watched.\n"));
    }
    Ok(if ended == Some(WatchEvent::Ended) { WatchOutcome::Ended } else { WatchOutcome::Over })
}
