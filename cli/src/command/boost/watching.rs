//! Keeping a boosted server right for as long as somebody wants it.

use anyhow::Result;
use linerate_host::Host;
use linerate_tune::boost::plan::BoostChoice;
use linerate_tune::boost::watch::{self, WatchEvent};

use super::arguments::BoostTargetArgs;
use crate::command::tune::apply::runner::tell;
use crate::interrupt::InterruptFlag;
use crate::view;

/// How watching came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WatchOutcome {
    /// The server is gone.
    Ended,
    /// A signal came, or somebody undid the boost.
    Over,
}

/// Watches until the server is gone, the boost undone, or a signal comes.
pub(super) fn watch(
    host: &Host,
    asked: &BoostTargetArgs,
    tune: u64,
    choice: &BoostChoice,
    interrupt: &InterruptFlag,
) -> Result<WatchOutcome> {
    let (store, wanted) = (asked.place.store(), asked.wanted()?);
    let undo = asked.place.command(&format!("undo {tune}"));
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
