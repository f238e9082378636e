//! `linerate flame`.

mod comparison;
mod verdict;
mod words;

use linerate_trace::contention::LockContention;
use linerate_trace::flame::result::{FlameResult, SelfSamples};
use linerate_trace::flame::spots::HotSpot;
use linerate_trace::flame::{CpuContext, CpuProfile, DrawOptions, StackProfile, draw};

use crate::document::{Audience, Block, Document, Fact, Mark, Note, Picture, Section, Table, Tile, Tone};
use crate::envelope::{CommandResult, Envelope};
use crate::render::format::{UNKNOWN, comma_list, grouped, known_text, percent, time_span};
pub(crate) use comparison::difference_graph;
use verdict::{FlameVerdict, spinning_share};
use words::{callers, lock_kind, lock_total, overhead_text, sampling_text, share_uncertainty};

/// Hot spots with a smaller share of packet processing are listed in one line.
const SMALL: f64 = 0.02;
/// Hot spots with at least this share have the colour of an alarm.
const HOT: f64 = 0.10;
/// Number of blocks and rows in the short text.
const FEW: usize = 5;
const FEW_CPUS: usize = 8;
/// Largest number of listed functions and waits.
const MANY: usize = 60;

impl CommandResult for FlameResult {
    const SCHEMA: &'static str = "linerate.flame/2";
    const IS_COMPACT: bool = true;

    fn document(envelope: &Envelope<Self>) -> Document {
        let result = &envelope.result;
        let verdict = FlameVerdict::new(result);
        let mut document = envelope.new_document("Hot spots", verdict.sentence);
        document.notes.iter_mut().for_each(|note| note.tone = Tone::Warn);
        if verdict.tone == Tone::Bad {
            document.mark = Some(Mark::new(Tone::Bad, "hot spot"));
        }
        if let Some(profile) = &result.profile {
            document.about = format!("sampled for {:.1} s", profile.seconds);
        }
        document.tiles = tiles(result);
        // The first hot spot has the same remedy just below.
        let repeats =
            !verdict.of_locks && result.spots.first().is_some_and(|spot| spot.remedy == verdict.advice);
        let advice = Section::default()
            .only_for(if repeats { Audience::Page } else { Audience::Both })
            .with(verdict.advice);
        let mut causes = vec![spots(result), locks(result.contention.as_ref())];
        if verdict.of_locks {
            causes.reverse();
        }
        document.sections.push(advice);
        document.sections.extend(graph(envelope, &mut document.notes));
        document.sections.extend(causes.into_iter().flatten());
        document
            .sections
            .push(Section::new("Functions by their own time").with(functions(&result.functions)));
        document.sections.extend(result.profile.as_ref().map(cpus));
        document.sections.push(method(result));
        document.sections.push(Section::default().with_for(
            Audience::ShortText,
            Block::faint(
                "Sources, functions, all waits and CPUs: --full. The graph: --svg FILE. A page: --html FILE.",
            ),
        ));
        document
    }
}

/// The flame graph as an SVG file, or for a page without a script; `None` without samples.
pub(crate) fn flame_graph(
    envelope: &Envelope<FlameResult>,
    interactive: bool,
) -> Result<Option<String>, linerate_trace::TraceError> {
    let result = &envelope.result;
    let Some(profile) = result.profile.as_ref().filter(|_| result.samples() > 0) else { return Ok(None) };
    let what = if result.shown.irq_only { "Interrupt context" } else { "CPU time" };
    let host = envelope.host.name.as_deref().unwrap_or("this host");
    let options = DrawOptions {
        title: format!("{what} on {host}"),
        subtitle: Some(sampling_text(profile)),
        shown: result.shown,
        interactive,
    };
    draw::svg(profile, &options)
}

/// The graph of a page. A graph that cannot be drawn becomes a note.
fn graph(envelope: &Envelope<FlameResult>, notes: &mut Vec<Note>) -> Option<Section> {
    let heading = if envelope.result.shown.irq_only { "Interrupt context" } else { "CPU time" };
    let about = "Width is CPU time, and a function lies on its caller. Hover over a box to read it. The file that --svg \
                 writes can zoom and search.";
    graph_section(heading, about, flame_graph(envelope, false), notes)
}

fn graph_section(
    heading: &str,
    about: &str,
    svg: Result<Option<String>, linerate_trace::TraceError>,
    notes: &mut Vec<Note>,
) -> Option<Section> {
    match svg {
        Ok(svg) => svg.map(|svg| {
            let picture = Picture { svg, alternative: heading.to_owned(), class: "graph" };
            Section::new(heading).only_for(Audience::Page).with(Block::faint(about)).with(picture)
        }),
        Err(error) => {
            notes.push(Note::new(format!("The flame graph cannot be drawn: {error}.")));
            None
        }
    }
}

fn tiles(result: &FlameResult) -> Vec<Tile> {
    let Some(profile) = &result.profile else { return Vec::new() };
    let samples: u64 = profile.cpus.iter().map(|cpu| cpu.samples).sum();
    let interrupt = known_text(result.interrupt_share(), percent);
    let spinning = result.contention.as_ref().and_then(|locks| spinning_share(locks, profile));
    [
        Tile::new(grouped(samples), "", "samples"),
        Tile::new(share(profile.busy(), samples), "", "of them busy"),
        Tile::new(interrupt, "", "of the busy time in interrupt context"),
    ]
    .into_iter()
    .chain(spinning.map(|share| Tile::new(percent(share), "", "of the busy time spinning for locks")))
    .collect()
}

/// A part of samples; unknown without samples.
fn share(samples: u64, of: u64) -> String {
    if of == 0 { UNKNOWN.to_owned() } else { percent(samples as f64 / of as f64) }
}

/// A section per large hot spot, then the small hot spots.
fn spots(result: &FlameResult) -> Vec<Section> {
    let in_path: Vec<&HotSpot> = result.spots.iter().filter(|spot| spot.share_of_path > 0.0).collect();
    let large = in_path.iter().take_while(|spot| spot.share_of_path >= SMALL).count();
    let shown = large.min(FEW);
    let uncertainty = share_uncertainty(result.path_samples);
    let comma = if uncertainty.is_empty() { "" } else { ", " };
    let about =
        format!("Shares of packet processing: {} samples{comma}{uncertainty}.", grouped(result.path_samples));
    let mut sections = Vec::new();
    if !result.spots.is_empty() {
        sections.push(Section::new("Hot spots").with(Block::faint(about)));
    }
    for (index, spot) in result.spots.iter().enumerate() {
        let audience = match index {
            index if index < shown => Audience::Both,
            // Pages fold small hot spots up, below.
            _ if spot.share_of_path >= SMALL => Audience::Full,
            _ => Audience::FullText,
        };
        sections.push(spot_section(spot).only_for(audience));
    }
    let small = in_path.iter().skip(shown);
    let small = comma_list(small.map(|spot| format!("{} {}", spot.id, percent(spot.share_of_path))));
    let mut folded = Section::new("Smaller hot spots").with_for(Audience::ShortText, small);
    for spot in result.spots.iter().filter(|spot| spot.share_of_path < SMALL) {
        let summary = format!("{} {}: {}", percent(spot.share_of_path), spot.id, spot.what);
        let blocks = vec![Block::Facts(spot_facts(spot))];
        folded = folded.with_for(Audience::Page, Block::Details { summary, anchor: None, blocks });
    }
    sections.push(folded);
    sections
}

fn spot_section(spot: &HotSpot) -> Section {
    let tone = if spot.share_of_path >= HOT { Tone::Bad } else { Tone::Warn };
    let mut section = Section::new(format!("{}: {}", spot.stage, spot.what))
        .with_for(Audience::ShortText, vec![Fact::new("remedy", &spot.remedy)])
        .with_for(Audience::Full, spot_facts(spot));
    section.mark = Some(Mark::new(tone, percent(spot.share_of_path)));
    let finding = spot.finding.as_ref().map(|id| format!(" ({id})")).unwrap_or_default();
    section.identifier = Some(format!("{}{finding}", spot.id));
    section.anchor = Some(format!("spot-{}", spot.id));
    section
}

fn spot_facts(spot: &HotSpot) -> Vec<Fact> {
    let functions = spot.functions.iter();
    let functions = functions.map(|function| format!("{} {}", function.name, grouped(function.samples)));
    let seen = format!(
        "{} samples, {} of all that is shown: {}",
        grouped(spot.samples),
        percent(spot.share_of_busy),
        comma_list(functions)
    );
    let finding =
        spot.finding.as_ref().map(|id| Fact::new("finding", format!("linerate doctor --explain {id}")));
    std::iter::once(Fact::new("seen", seen))
        .chain(finding)
        .chain([
            Fact::new("remedy", &spot.remedy),
            Fact::new("not if", &spot.when_not),
            Fact::new("source", &spot.source),
        ])
        .collect()
}

fn locks(contention: Option<&LockContention>) -> Vec<Section> {
    let Some(contention) = contention else { return Vec::new() };
    let rows = contention.locks.iter().take(MANY).map(|waited| {
        [
            time_span(waited.waited_ns as f64),
            grouped(waited.waits),
            time_span(waited.longest_ns as f64),
            lock_kind(waited.lock).to_owned(),
            callers(waited),
        ]
    });
    let table = Table::new(">lost | >waits | >longest | lock | function and its callers")
        .into_listing()
        .with_rows(rows)
        .with_text_limit(FEW, "more");
    vec![Section::new("Lock waits").with(Block::faint(lock_total(contention))).with(table)]
}

fn functions(functions: &[SelfSamples]) -> Table {
    let rows = functions.iter().take(MANY / 2).map(|own| {
        [percent(own.share), grouped(own.samples), function_name(&own.function, own.module.as_ref())]
    });
    Table::new(">share | >samples | function").into_listing().with_rows(rows).with_text_limit(FEW, "more")
}

fn function_name(name: &str, module: Option<&String>) -> String {
    module.map_or_else(|| name.to_owned(), |module| format!("{name} [{module}]"))
}

fn cpus(profile: &StackProfile) -> Section {
    let mut shown: Vec<&CpuProfile> = profile.cpus.iter().collect();
    if shown.len() > FEW_CPUS {
        let interrupt = |cpu: &CpuProfile| -> u64 {
            let contexts = CpuContext::ALL.into_iter().filter(|context| context.is_interrupt());
            contexts.map(|context| profile.samples_in(context, Some(cpu.cpu))).sum()
        };
        shown.sort_by_cached_key(|cpu| std::cmp::Reverse(interrupt(cpu)));
    }
    let rows = shown.into_iter().map(|cpu| {
        let contexts = CpuContext::ALL.into_iter();
        let shares = contexts.map(|context| share(profile.samples_in(context, Some(cpu.cpu)), cpu.samples));
        [cpu.cpu.to_string(), grouped(cpu.samples)].into_iter().chain(shares).collect::<Vec<_>>()
    });
    let table = Table::new(">CPU | >samples | >irq | >softirq | >in calls | >ksoftirqd | >tasks | >idle")
        .with_rows(rows)
        .with_text_limit(FEW_CPUS, "CPUs with less in interrupt context");
    Section::new("CPUs, shares of samples").with(table)
}

/// The method of the measurement, and its limits.
fn method(result: &FlameResult) -> Section {
    let profile = result.profile.as_ref();
    let contention = result.contention.as_ref();
    let mut facts: Vec<Fact> = Vec::new();
    if let Some(profile) = profile {
        facts.push(Fact::new("sampled", format!("{}.", sampling_text(profile))));
        facts.push(Fact::new("own cost", format!("{}.", overhead_text(profile, contention.is_some()))));
        facts.extend(profile.notes.iter().map(|note| Fact::new("note", note)));
    }
    facts.extend(contention.iter().flat_map(|locks| &locks.notes).map(|note| Fact::new("locks", note)));
    Section::new("Method").with(facts)
}

#[cfg(test)]
pub(crate) mod tests;
