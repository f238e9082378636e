//! `linerate flame --diff`.

use linerate_trace::flame::comparison::{ComparedProfile, FlameComparison};
use linerate_trace::flame::{DrawOptions, difference};

use super::words::lock_kind;
use super::{FEW, MANY, function_name, graph_section};
use crate::document::{Document, Fact, Note, Section, Table, Tile, Tone};
use crate::envelope::{CommandResult, Envelope};
use crate::render::format;

/// Less CPU time, in CPUs, is printed as zero.
const LEAST: f64 = 0.0005;

impl CommandResult for FlameComparison {
    const SCHEMA: &'static str = "linerate.flame-diff/2";

    fn document(envelope: &Envelope<Self>) -> Document {
        let comparison = &envelope.result;
        let mut document = envelope.new_document("Hot spots before and after", verdict(comparison));
        document.notes.iter_mut().for_each(|note| note.tone = Tone::Warn);
        document.notes.extend(comparison.difference.notes.iter().map(Note::new));
        document.tiles = vec![
            Tile::new(format!("{:.3}", comparison.difference.before_cpus), "", "CPUs busy before"),
            Tile::new(format!("{:.3}", comparison.difference.after_cpus), "", "CPUs busy after"),
        ];
        let sides =
            vec![profile_fact("before", &comparison.before), profile_fact("after", &comparison.after)];
        let about = "Width is CPU time afterwards; red has grown, blue has shrunk.";
        let graph = graph_section("Change", about, difference_graph(comparison, false), &mut document.notes);
        document.sections.push(Section::new("Results").with(sides));
        document.sections.extend(graph);
        document.sections.extend([
            Section::new("Hot spots, in CPUs").with(spots(comparison)),
            Section::new("Functions by their own time, in CPUs").with(functions(comparison)),
            Section::new("Lock waits, time per second of all CPUs").with(locks(comparison)),
        ]);
        document
    }
}

/// The graph of the change, as a file or for a page; `None` if the comparison was read from a file.
pub(crate) fn difference_graph(
    comparison: &FlameComparison,
    interactive: bool,
) -> Result<Option<String>, linerate_trace::TraceError> {
    let Some([before, after]) = comparison.profiles() else { return Ok(None) };
    let options = DrawOptions {
        title: "CPU time: red has grown, blue has shrunk".to_owned(),
        subtitle: Some(format!("{} against {}", comparison.after.file, comparison.before.file)),
        shown: comparison.shown,
        interactive,
    };
    difference::svg(before, after, &options)
}

fn verdict(comparison: &FlameComparison) -> String {
    let (before, after) = (comparison.difference.before_cpus, comparison.difference.after_cpus);
    let scope_text = if comparison.shown.irq_only { "Interrupt context" } else { "All busy code" };
    let change_text =
        comparison.spots.first().filter(|change| change.growth().abs() >= LEAST).map(|change| {
            let direction = if change.growth() > 0.0 { "largest growth" } else { "largest reduction" };
            format!(
                "; {direction}: {} ({} to {})",
                change.spot.id,
                cpus(change.before_cpus),
                cpus(change.after_cpus)
            )
        });
    format!(
        "{scope_text} took {} before and {} after{}.",
        cpus(before),
        cpus(after),
        change_text.unwrap_or_default()
    )
}

/// CPU time in CPUs: 0.25 is a quarter of a CPU.
fn cpus(cpu_time: f64) -> String {
    if cpu_time.abs() < LEAST { "0 CPUs".to_owned() } else { format!("{cpu_time:.3} CPUs") }
}

fn cpu_time_text(cpu_time: f64) -> String {
    format!("{cpu_time:.3}")
}

fn signed(cpu_time: f64) -> String {
    if cpu_time.abs() < LEAST { "0".to_owned() } else { format!("{cpu_time:+.3}") }
}

fn profile_fact(name: &str, profile: &ComparedProfile) -> Fact {
    let host = profile.host.as_deref().unwrap_or("unknown host");
    let time_text = profile.started_unix_seconds.map_or_else(|| "unknown time".to_owned(), format::utc);
    Fact::new(name, format!("{}: {host}, {time_text}, {:.1} s", profile.file, profile.seconds))
}

fn spots(comparison: &FlameComparison) -> Table {
    let rows = comparison.spots.iter().take(MANY).map(|change| {
        [
            cpu_time_text(change.before_cpus),
            cpu_time_text(change.after_cpus),
            signed(change.growth()),
            change.spot.id.clone(),
            change.spot.what.clone(),
        ]
    });
    Table::new(">before | >after | >change | hot spot | what")
        .into_listing()
        .with_rows(rows)
        .with_text_limit(2 * FEW, "more")
}

fn functions(comparison: &FlameComparison) -> Table {
    let changes = comparison.difference.functions.iter().filter(|change| change.cpus().abs() >= LEAST);
    let rows = changes.take(MANY).map(|change| {
        [
            cpu_time_text(change.before_cpus),
            cpu_time_text(change.after_cpus),
            signed(change.cpus()),
            function_name(&change.function.name, change.function.module.as_ref()),
        ]
    });
    Table::new(">before | >after | >change | function")
        .into_listing()
        .with_rows(rows)
        .with_text_limit(2 * FEW, "more")
}

fn locks(comparison: &FlameComparison) -> Table {
    let rows = comparison.locks.iter().take(MANY).map(|change| {
        [
            format::time_span(change.before_ns_per_second),
            format::time_span(change.after_ns_per_second),
            lock_kind(change.lock).to_owned(),
            change.callers.join(" < "),
        ]
    });
    Table::new(">before | >after | lock | function and its callers")
        .into_listing()
        .with_rows(rows)
        .with_text_limit(2 * FEW, "more")
}
