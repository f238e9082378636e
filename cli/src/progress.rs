//! The live line of a climb: a bar on the terminal, plain lines where there is none.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use linerate_lab::ladder::climb::LadderEvent;
use linerate_lab::ladder::report::RungReport;

use crate::render::{format, summary};

/// Shows where a climb is.
pub(crate) struct RunProgress {
    bar: ProgressBar,
    plain: bool,
    quiet: bool,
    budget: Duration,
    step: &'static str,
    place: String,
}

impl RunProgress {
    /// A bar over `budget`, on standard error.
    pub(crate) fn new(budget: Duration, quiet: bool) -> Self {
        let plain = !std::io::stderr().is_terminal();
        let target =
            if plain || quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr_with_hz(8) };
        let milliseconds = u64::try_from(budget.as_millis()).unwrap_or(u64::MAX);
        let bar = ProgressBar::with_draw_target(Some(milliseconds), target);
        let template = if std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()) {
            "{wide_bar} {msg}"
        } else {
            "{wide_bar:.cyan/dim} {msg}"
        };
        // The template is constant and valid; the default style is a fine bar too.
        bar.set_style(
            ProgressStyle::with_template(template)
                .unwrap_or_else(|_| ProgressStyle::default_bar())
                .progress_chars("━╸─"),
        );
        Self { bar, plain, quiet, budget, step: "", place: String::new() }
    }

    /// Takes note of what happens.
    pub(crate) fn event(&mut self, event: &LadderEvent<'_>) {
        match event {
            LadderEvent::Rung { index, of, step } => {
                self.step = step.id;
                self.place = format!("{}/{of}", index + 1);
                self.bar.set_message(format!("{} {}", self.place, self.step));
            }
            LadderEvent::Probing { per_second, left } => {
                let done = self.budget.saturating_sub(*left);
                self.bar.set_position(u64::try_from(done.as_millis()).unwrap_or(u64::MAX));
                self.bar.set_message(format!(
                    "{} {}  offering {}/s  {} s left",
                    self.place,
                    self.step,
                    format::rate(*per_second),
                    left.as_secs()
                ));
            }
            LadderEvent::Done(report) => self.line(&done_line(report)),
        }
    }

    /// Takes the bar away.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }

    /// A line that stays.
    fn line(&self, text: &str) {
        if self.quiet {
            return;
        }
        if self.plain {
            eprintln!("{text}");
        } else {
            self.bar.println(text);
        }
    }
}

fn done_line(report: &RungReport) -> String {
    let Some(rate) = report.transactions_per_second else {
        return format!(
            "{:<22} skipped: {}",
            report.id,
            report.skipped_because.as_deref().unwrap_or("no answer")
        );
    };
    let versus = report.versus_previous.as_ref().map_or_else(String::new, |versus| {
        let verdict = summary::verdict_name(versus.verdict);
        format!("  x{:.2} of {}: {verdict}", versus.ratio.median, versus.id)
    });
    format!("{:<22} {:>8}/s{versus}", report.id, format::rate(rate.median))
}
