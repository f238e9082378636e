//! The time between two readings.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::interrupt::InterruptFlag;
use crate::output::ProgressLine;

/// Between two updates of the line on the terminal.
const TICK: Duration = Duration::from_millis(500);

/// Waits with a countdown on standard error. Returns whether the whole time passed.
pub(crate) fn wait(time: Duration, interrupt: &InterruptFlag) -> Result<bool> {
    let progress_line = ProgressLine::new();
    let begin = Instant::now();
    while !interrupt.is_raised() {
        let remaining = time.saturating_sub(begin.elapsed());
        if remaining.is_zero() {
            return Ok(true);
        }
        let seconds = remaining.as_secs_f64().ceil();
        progress_line.show(&format!("second reading in {seconds:.0} s (Ctrl-C: use the first)"));
        interrupt.wait(Some(remaining.min(TICK)))?;
    }
    Ok(false)
}
