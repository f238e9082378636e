//! The progress line of a ladder run: a bar on the terminal, plain lines elsewhere.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use linerate_lab::ladder::report::StepReport;
use linerate_lab::ladder::run::LadderEvent;

use crate::output::CLEAR_LINE;
use crate::render::format;
use crate::render::style::TextStyle;
use crate::view::ladder::verdict_name;

/// Prints the progress of a run on standard error.
pub(crate) struct RunProgress {
    /// Whether there is a bar.
    has_bar: bool,
    has_colour: bool,
    quiet: bool,
    budget: Duration,
    done: Duration,
    step: &'static str,
    position: String,
}

impl RunProgress {
    pub(crate) fn new(budget: Duration, quiet: bool) -> Self {
        Self {
            has_bar: std::io::stderr().is_terminal() && !quiet,
            has_colour: TextStyle::stderr().colour,
            quiet,
            budget,
            done: Duration::ZERO,
            step: "",
            position: String::new(),
        }
    }

    pub(crate) fn event(&mut self, event: &LadderEvent<'_>) {
        match event {
            LadderEvent::Step { index, of, step } => {
                self.step = step.id;
                self.position = format!("{}/{of}", index + 1);
                self.draw("");
            }
            LadderEvent::Probe { per_second, left } => {
                self.done = self.budget.saturating_sub(*left);
                let rate = format::rate(*per_second);
                self.draw(&format!("  offering {rate}/s  {} s left", left.as_secs()));
            }
            LadderEvent::Done(report) if !self.quiet => {
                self.finish();
                status_line!("{}", done_line(report));
                self.draw("");
            }
            LadderEvent::Done(_) => {}
        }
    }

    /// Removes the bar.
    pub(crate) fn finish(&self) {
        if self.has_bar {
            status!("{CLEAR_LINE}");
        }
    }

    fn draw(&self, details: &str) {
        if !self.has_bar {
            return;
        }
        let columns = rustix::termios::tcgetwinsize(std::io::stderr()).map_or(80, |size| size.ws_col);
        let columns = usize::from(columns).saturating_sub(2);
        let text = format!("{} {}{details}", self.position, self.step);
        let text: String = text.chars().take(columns).collect();
        let width = columns - text.chars().count();
        let share = self.done.as_secs_f64() / self.budget.as_secs_f64().max(f64::MIN_POSITIVE);
        let filled_width = ((share * width as f64) as usize).min(width);
        let (done_bar, left_bar) = ("━".repeat(filled_width), "─".repeat(width - filled_width));
        let (cyan, dim, reset) =
            if self.has_colour { ("\x1b[36m", "\x1b[2m", "\x1b[0m") } else { ("", "", "") };
        // If the terminal has disappeared, so has the bar.
        let _ = write!(std::io::stderr(), "{CLEAR_LINE}{cyan}{done_bar}{reset}{dim}{left_bar}{reset} {text}");
    }
}

fn done_line(report: &StepReport) -> String {
    let Some(rate) = report.transactions_per_second else {
        return format!(
            "{:<22} skipped: {}",
            report.id,
            report.skipped_because.as_deref().unwrap_or("no answer")
        );
    };
    let versus = report.versus_previous.as_ref().map_or_else(String::new, |versus| {
        let verdict = verdict_name(versus.verdict);
        format!("  x{:.2} of {}: {verdict}", versus.ratio.median, versus.id)
    });
    format!("{:<22} {:>8}/s{versus}", report.id, format::rate(rate.median))
}
