//! What became of packets as one self-contained page: no script, nothing fetched, light and dark.

use anyhow::Result;
use askama::Template;
use linerate_trace::drops::{AccountingPath, PathStep, StageEntry, StageLoss};

use super::drops_text::{self, loss_line, packets, unaccounted};
use super::drops_verdict::{self, VerdictLine};
use super::format::{self, grouped};
use super::page::{self, PageHead, PageNote, PageResult, ResultPosition};
use super::style::{TextTone, non_breaking};
use crate::command::drops::DropsDocument;

/// Least width of what is not nothing, thousandths of the widest.
const LEAST: u64 = 4;

#[derive(Template)]
#[template(path = "drops.html")]
struct DropsPageBody<'a> {
    place: &'a ResultPosition,
    verdicts: Vec<PageNote>,
    flows: Vec<DirectionBars<'a>>,
    elsewhere: Vec<(String, String)>,
    causes: Vec<&'a StageLoss>,
    notes: &'a [String],
    overhead: String,
}

/// One way, as bars that narrow where packets are lost.
struct DirectionBars<'a> {
    title: &'static str,
    stages: Vec<StageBar<'a>>,
}

struct StageBar<'a> {
    name: &'static str,
    does: &'static str,
    packets_in: String,
    packets_out: String,
    /// Widths of what passed, was lost, and waits, in thousandths of the most packets anywhere on the way.
    passed: u64,
    lost: u64,
    waits: u64,
    /// Where the lost ones begin, and where those that wait.
    lost_from: u64,
    waits_from: u64,
    waiting: String,
    losses: Vec<(String, &'a str, String)>,
    unaccounted: Vec<String>,
}

/// The page, as one HTML document.
///
/// # Errors
/// As [`part`].
pub(crate) fn drops(document: &DropsDocument) -> Result<String> {
    page::single_result_page(|place| part(document, place))
}

/// The result in a page.
///
/// # Errors
/// Only if formatting fails, which no ledger is known to cause.
pub(crate) fn part(document: &DropsDocument, place: &ResultPosition) -> Result<PageResult> {
    let ledger = &document.ledger;
    let lines = drops_verdict::lines(ledger);
    let (first, others) = lines.split_at(lines.len().min(1));
    let body = DropsPageBody {
        place,
        verdicts: others.iter().map(verdict).collect(),
        flows: drops_text::named_paths(ledger).map(|(title, way)| flow(title, way)).collect(),
        elsewhere: ledger.elsewhere.iter().map(|loss| (grouped(loss.packets), loss_line(loss))).collect(),
        causes: drops_text::causes(ledger),
        notes: &ledger.notes,
        overhead: drops_text::overhead(ledger),
    };
    let head = PageHead {
        schema: document.schema.clone(),
        version: document.version.clone(),
        title: "What became of packets",
        verdict: first.iter().map(|line| non_breaking(line.text.trim_end_matches('.'))).collect(),
        mark: match (document.clean, document.balanced) {
            (true, _) => PageHead::mark(TextTone::Good, "nothing lost"),
            (false, true) => PageHead::mark(TextTone::Bad, "packets lost"),
            (false, false) => PageHead::mark(TextTone::Bad, "does not balance"),
        },
        host: page::host(document.host.as_deref(), None, None, None),
        time: page::time(document.started_unix_seconds),
        unix_seconds: document.started_unix_seconds,
        about: non_breaking(drops_text::about(document).trim_end_matches('.')),
        command: format::command_line(&document.argv),
    };
    page::part(head, &body)
}

fn verdict(line: &VerdictLine) -> PageNote {
    match line.tone {
        TextTone::Bad => PageNote::alarm("", line.text.clone()),
        TextTone::Good => PageNote::good(line.text.clone()),
        _ => PageNote::new(line.text.clone()),
    }
}

fn flow<'a>(title: &'static str, way: &'a AccountingPath) -> DirectionBars<'a> {
    let counts = way.stages.iter().flat_map(|entry| [&entry.packets_in, &entry.packets_out]);
    let most = counts.filter_map(|packets| packets.value().copied()).max().unwrap_or(0);
    DirectionBars { title, stages: way.stages.iter().map(|entry| stage(entry, most)).collect() }
}

fn stage(entry: &StageEntry, most: u64) -> StageBar<'_> {
    let width = |packets: u64| match packets {
        0 => 0,
        packets => thousandths(packets, most).max(LEAST),
    };
    let lost = width(entry.losses.iter().map(|loss| loss.packets).fold(0, u64::saturating_add));
    let waits = width(u64::try_from(entry.waiting).unwrap_or(0));
    let through = entry.packets_out.value().or(entry.packets_in.value()).copied().unwrap_or(0);
    let passed = width(through).min(1000_u64.saturating_sub(lost + waits));
    let losses = entry.losses.iter().filter(|loss| loss.packets > 0);
    StageBar {
        name: entry.stage.name(),
        does: does(entry.stage),
        packets_in: packets(&entry.packets_in),
        packets_out: packets(&entry.packets_out),
        passed,
        lost,
        waits,
        lost_from: passed,
        waits_from: passed + lost,
        waiting: drops_text::waiting(entry),
        losses: losses.map(|loss| (grouped(loss.packets), loss.what.as_str(), loss_line(loss))).collect(),
        unaccounted: unaccounted(entry),
    }
}

fn thousandths(packets: u64, most: u64) -> u64 {
    let share = u128::from(packets) * 1000 / u128::from(most.max(packets).max(1));
    u64::try_from(share).unwrap_or(1000)
}

/// What a stage is, for who does not know it by its name.
fn does(step: PathStep) -> &'static str {
    match step {
        PathStep::Generator => "what sends requests",
        PathStep::Wire => "between generator and device",
        PathStep::Link => "device, rings, driver",
        PathStep::Xdp => "programs in the driver",
        PathStep::Softirq => "backlog of a CPU",
        PathStep::Ingress => "generic XDP, tc",
        PathStep::Filter => "netfilter, conntrack",
        PathStep::Route => "headers and routes",
        PathStep::Socket => "lookup, receive buffer",
        PathStep::Application => "reads and sends",
        PathStep::Transmit => "queueing discipline",
    }
}

#[cfg(test)]
mod tests;
