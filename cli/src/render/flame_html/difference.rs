//! The page of two runs of flame.

use anyhow::Result;

use super::super::flame_diff_text::{cpus, signed, verdict};
use super::super::flame_text::kind;
use super::super::format;
use super::super::page::{self, FigureTile, HtmlTable, PageHead, PageResult, ResultPosition};
use super::super::style::non_breaking;
use super::{FlamePageBody, MOST, graph, named, remarks};
use crate::command::flame::{FlameComparison, difference_for_page};

/// The page of two runs.
///
/// # Errors
/// Where the page cannot be rendered.
pub(crate) fn difference(comparison: &FlameComparison) -> Result<String> {
    page::single_result_page(|place| difference_part(comparison, place))
}

/// Two runs in a page.
///
/// # Errors
/// Where it cannot be rendered.
pub(crate) fn difference_part(comparison: &FlameComparison, place: &ResultPosition) -> Result<PageResult> {
    let side = |side: &crate::command::flame::ComparedProfile| {
        format!("{}: {}, {}", side.file, side.host, format::utc(side.started_unix_seconds))
    };
    let body = FlamePageBody {
        place,
        remarks: remarks("", &comparison.warnings),
        tiles: vec![
            FigureTile::new(format!("{:.3}", comparison.difference.before_cpus), "", "CPUs busy before"),
            FigureTile::new(format!("{:.3}", comparison.difference.after_cpus), "", "CPUs busy after"),
        ],
        graph: difference_for_page(comparison)?.map(|graph| graph::placed(&graph, place)),
        graph_heading: "What changed",
        graph_about: "Width is CPU time afterwards; red has grown, blue has shrunk.".to_owned(),
        spots_about: String::new(),
        spots: Vec::new(),
        small: Vec::new(),
        tables: [changed_spots(comparison), changed_functions(comparison), changed_locks(comparison)]
            .into_iter()
            .filter(|table| !table.rows.is_empty())
            .collect(),
        notes: comparison.difference.notes.clone(),
        facts: vec![
            ("before", format!("{:.1} s", comparison.before.seconds)),
            ("after", format!("{:.1} s", comparison.after.seconds)),
        ],
    };
    let after = &comparison.after;
    let head = PageHead {
        schema: comparison.schema.clone(),
        version: comparison.version.clone(),
        title: "What burns, before and after",
        verdict: non_breaking(&verdict(comparison)),
        mark: None,
        host: page::host(Some(&after.host), None, None, None),
        time: page::time(Some(after.started_unix_seconds)),
        unix_seconds: Some(after.started_unix_seconds),
        about: non_breaking(&format!("before {}; after {}", side(&comparison.before), side(after))),
        command: format::command_line(&comparison.argv),
    };
    page::part(head, &body)
}

fn changed_spots(comparison: &FlameComparison) -> HtmlTable {
    let row = |change: &crate::command::flame::SpotChange| {
        vec![
            cpus(change.before_cpus),
            cpus(change.after_cpus),
            signed(change.by()),
            format!("{}: {}", change.spot.id, change.spot.what),
        ]
    };
    HtmlTable {
        heading: "Hot spots",
        columns: vec!["before", "after", "change", "hot spot"],
        rows: comparison.spots.iter().take(MOST).map(row).collect(),
        words_last: true,
        ..HtmlTable::default()
    }
}

fn changed_functions(comparison: &FlameComparison) -> HtmlTable {
    let row = |change: &linerate_trace::flame::difference::FunctionChange| {
        let name = named(&change.function.name, change.function.module.as_ref());
        vec![cpus(change.before_cpus), cpus(change.after_cpus), signed(change.cpus()), name]
    };
    HtmlTable {
        heading: "Functions by their own time",
        columns: vec!["before", "after", "change", "function"],
        rows: comparison.difference.functions.iter().take(MOST / 2).map(row).collect(),
        words_last: true,
        ..HtmlTable::default()
    }
}

fn changed_locks(comparison: &FlameComparison) -> HtmlTable {
    let row = |change: &crate::command::flame::LockChange| {
        vec![
            format::time_span(change.before_ns_per_second),
            format::time_span(change.after_ns_per_second),
            kind(change.lock).to_owned(),
            change.callers.join(" < "),
        ]
    };
    HtmlTable {
        heading: "Waits for locks",
        about: "Time waited a second, over all CPUs".to_owned(),
        columns: vec!["before", "after", "lock", "where, and who called"],
        rows: comparison.locks.iter().take(MOST / 2).map(row).collect(),
        words_last: true,
        ..HtmlTable::default()
    }
}
