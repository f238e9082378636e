//! The last second, each second.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use anyhow::Result;
use linerate_host::Host;
use linerate_trace::cost::CostSession;

use super::CostArgs;
use crate::interrupt::InterruptFlag;
use crate::output;
use crate::render::style::TextStyle;
use crate::render::{cost_live, cost_text};

/// How often.
const STEP: Duration = Duration::from_secs(1);

/// Home, and all after it cleared: what is drawn next takes the place of what was.
const ANEW: &str = "\u{1b}[H\u{1b}[J";

/// Shows what each second was like until a signal comes or the time is over: on a terminal in place of the last, else a line
/// each.
pub(super) fn follow(
    look: &mut CostSession,
    host: &Host,
    asked: &CostArgs,
    interrupt: &InterruptFlag,
) -> Result<()> {
    let terminal = std::io::stdout().is_terminal();
    let begin = Instant::now();
    let mut next = STEP;
    let mut headed = false;
    while !interrupt.is_raised() && asked.duration.is_none_or(|time| begin.elapsed() < time) {
        let end = asked.duration.map_or(next, |time| time.min(next));
        look.wait(end.saturating_sub(begin.elapsed()), &|| interrupt.is_raised())?;
        if begin.elapsed() < end {
            continue;
        }
        next = begin.elapsed() + STEP;
        let cost = look.read(host)?;
        if terminal {
            let shown =
                cost_text::measurements_text(&cost, asked.by, usize::from(asked.top), TextStyle::stdout());
            output::print(&format!("{ANEW}{shown}"))?;
        } else {
            let head = if headed { "" } else { cost_live::HEADER };
            headed = true;
            output::print(&format!("{head}{}\n", cost_live::line(begin.elapsed(), &cost, asked.by)))?;
        }
    }
    Ok(())
}
