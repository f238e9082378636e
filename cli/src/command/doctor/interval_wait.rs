//! The time between two readings.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::interrupt::InterruptFlag;

/// Between two updates of the line on the terminal.
const TICK: Duration = Duration::from_millis(500);

/// Waits with a countdown on standard error. Returns whether the whole time passed.
pub(crate) fn wait(time: Duration, interrupt: &InterruptFlag) -> Result<bool> {
    let progress_line = DoctorProgressLine::new();
    let begin = Instant::now();
    while !interrupt.is_raised() {
        let remaining = time.saturating_sub(begin.elapsed());
        if remaining.is_zero() {
            return Ok(true);
        }
        progress_line.show(remaining);
        interrupt.wait(Some(remaining.min(TICK)))?;
    }
    Ok(false)
}

struct DoctorProgressLine {
    terminal: bool,
}

impl DoctorProgressLine {
    fn new() -> Self {
        Self { terminal: std::io::stderr().is_terminal() }
    }

    fn show(&self, remaining: Duration) {
        if self.terminal {
            status!(
                "\r\u{1b}[Ksecond reading in {:.0} s (Ctrl-C: use the first)",
                remaining.as_secs_f64().ceil()
            );
        }
    }
}

impl Drop for DoctorProgressLine {
    fn drop(&mut self) {
        if self.terminal {
            status!("\r\u{1b}[K");
        }
    }
}
