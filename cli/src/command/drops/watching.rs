//! Losses as they happen.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::look::DropsSession;
use super::meanwhile::{ConcurrentWorkload, EndedCommand};
use crate::interrupt::InterruptFlag;
use crate::output;
use crate::render::drops_watch::PrintedDrops;
use crate::render::style::TextStyle;

/// How often is told what was lost.
const EACH: Duration = Duration::from_secs(1);

/// Tells each second what was lost in it, until the end of what goes on meanwhile; where text has standard output for
/// itself there, otherwise on standard error.
pub(super) fn watch(
    look: &mut DropsSession,
    meanwhile: &ConcurrentWorkload,
    interrupt: &InterruptFlag,
    (on_stdout, style): (bool, TextStyle),
) -> Result<Option<EndedCommand>> {
    let begun = Instant::now();
    let mut told = PrintedDrops::default();
    let mut turn = look.turn()?.map(|after| Instant::now() + after);
    for number in 1_u32.. {
        let second = begun + EACH.saturating_mul(number);
        loop {
            let until = turn.map_or(second, |turn| turn.min(second));
            let ended = meanwhile.wait(interrupt, Some(until.saturating_duration_since(Instant::now())))?;
            if ended.is_some() || interrupt.is_raised() || meanwhile.is_over() {
                return Ok(ended);
            }
            if turn.is_some_and(|turn| turn <= Instant::now()) {
                turn = look.turn()?.map(|after| Instant::now() + after);
            }
            if second <= Instant::now() {
                break;
            }
        }
        let Some(ledger) = look.lap()? else { continue };
        let line = told.second(&ledger, style);
        if on_stdout {
            output::print(&line)?;
        } else {
            eprint!("{line}");
        }
    }
    Ok(None)
}
