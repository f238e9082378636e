//! The time between two readings.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::interrupt::InterruptFlag;

/// Between two updates of the line on the terminal.
const TICK: Duration = Duration::from_millis(500);

/// Waits with a countdown on standard error. Returns whether the whole time passed.
pub(crate) fn wait(time: Duration, interrupt: &InterruptFlag) -> Result<bool> {
    let line = DoctorProgressLine::new();
    let begin = Instant::now();
    while !interrupt.is_raised() {
        let left = time.saturating_sub(begin.elapsed());
        if left.is_zero() {
            return Ok(true);
        }
        line.show(left);
        interrupt.wait(Some(left.min(TICK)))?;
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

    fn show(&self, left: Duration) {
        if self.terminal {
            eprint!("\r\u{1b}[Ksecond reading in {:.0} s (Ctrl-C: use the first)", left.as_secs_f64().ceil());
        }
    }
}

impl Drop for DoctorProgressLine {
    fn drop(&mut self) {
        if self.terminal {
            eprint!("\r\u{1b}[K");
        }
    }
}
