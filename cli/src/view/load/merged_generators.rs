//! The generators of a merged result.

use linerate_load::report::{ClockOffset, LoadReport};

use crate::document::Table;
use crate::render::format::{grouped, known_text, significant};

/// A row per generator, with its clock if that is known.
pub(super) fn table(report: &LoadReport) -> Table {
    let clock = |clock: ClockOffset| {
        format!("{:.1} ± {:.1}", clock.ahead_seconds * 1e3, clock.uncertain_seconds * 1e3)
    };
    let first_ns = report.merged.iter().map(|run| run.started_realtime_ns).min().unwrap_or(0);
    let rows = report.merged.iter().map(|run| {
        [
            run.name.clone(),
            significant((run.started_realtime_ns - first_ns) as f64 / 1e6),
            known_text(run.clock, clock),
            grouped(run.sent),
            grouped(run.answered),
            if run.generator_bound { "yes" } else { "no" }.to_owned(),
        ]
    });
    Table::new("run | >started, ms | >clock ahead, ms | >sent | >answered | was the limit").with_rows(rows)
}
