//! What became of packets, as text.

use linerate_host::Known;
use linerate_trace::drops::{AccountingPath, LossExactness, PacketAccounting, StageEntry, StageLoss};

use super::column::TextColumn;
use super::drops_verdict;
use super::format::{self, grouped};
use super::style::{TextStyle, TextTone};
use super::table::TextTable;
use super::tune_plan::count_with_noun;
use crate::command::drops::DropsDocument;

/// The verdict, the ledger in a packet's order, and what can be done. In `full`, with the stages that lost nothing.
pub(crate) fn drops(document: &DropsDocument, full: bool, style: TextStyle) -> String {
    let ledger = &document.ledger;
    let column = TextColumn { style, before: 0, label: 0 };
    let painted = |tone: TextTone, text: &str| -> Vec<String> {
        column.labelled("", text).iter().map(|line| style.paint(tone, line)).collect()
    };
    let mut lines: Vec<String> =
        drops_verdict::lines(ledger).iter().flat_map(|line| painted(line.tone, &line.text)).collect();
    lines.extend(painted(TextTone::Faint, &about(document)));
    lines.extend(painted(TextTone::Faint, &overhead(ledger)));
    for (name, way) in named_paths(ledger) {
        lines.extend(section(name, way, full, style));
    }
    lines.extend(elsewhere(ledger, style));
    lines.extend(remedies(ledger, style));
    lines.extend(remarks(ledger, style));
    lines.push(String::new());
    lines.join("\n")
}

/// Whose packets, and for how long.
pub(crate) fn about(document: &DropsDocument) -> String {
    let seconds = format::time_span(document.ledger.seconds * 1e9);
    let generator =
        document.load.as_ref().map(|load| format!("; the generator's side from {load}")).unwrap_or_default();
    let of =
        document.ledger.sampled.map(|sampled| format!(" of {}", format::time_span(sampled.of_seconds * 1e9)));
    format!("{}, counted for {seconds}{}{generator}.", document.ledger.subject, of.unwrap_or_default())
}

/// Why only parts of the time were counted.
fn sampled(ledger: &PacketAccounting) -> Option<String> {
    let sampled = ledger.sampled?;
    let dropped = match sampled.socket_drops_packets {
        0 => "The sockets dropped nothing in the whole time.".to_owned(),
        1 => "The sockets dropped 1 datagram in the whole time.".to_owned(),
        packets => format!("The sockets dropped {} datagrams in the whole time.", grouped(packets)),
    };
    Some(format!(
        "Sampled, since counting every packet took up to {} of one CPU: all figures are of the windows counted. {dropped} \
         To count every packet, give a command to run meanwhile (-- COMMAND).",
        format::percent(sampled.counting_cpu_share)
    ))
}

/// The ways with their names; that of forwarded packets where there were any.
pub(crate) fn named_paths(
    ledger: &PacketAccounting,
) -> impl Iterator<Item = (&'static str, &AccountingPath)> {
    let ways =
        [("Requests", &ledger.requests), ("Replies", &ledger.replies), ("Forwarded", &ledger.forwarded)];
    ways.into_iter().filter(|(name, way)| *name != "Forwarded" || !way.stages.is_empty())
}

pub(crate) fn overhead(ledger: &PacketAccounting) -> String {
    let overhead = match &ledger.overhead {
        Known::Value(overhead) => format!(
            "Counting took {} of one CPU: {:.0} ns per run of a program, timed over {}.",
            format::percent(overhead.cpu_share),
            overhead.run_ns,
            format::time_span(overhead.timed_seconds * 1e9),
        ),
        Known::Unknown { why } => format!("What counting took is not known: {why}."),
    };
    [Some(overhead), sampled(ledger)].into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// Stages shown, and how many are not: where packets are first and last counted, and where something became of them.
pub(crate) fn visible_stages(way: &AccountingPath, full: bool) -> (Vec<&StageEntry>, usize) {
    let counted =
        |entry: &StageEntry| entry.packets_in.value().is_some() || entry.packets_out.value().is_some();
    let first = way.stages.iter().position(counted);
    let last = way.stages.iter().rposition(counted);
    let is_shown = |(index, entry): &(usize, &StageEntry)| {
        full || Some(*index) == first
            || Some(*index) == last
            || entry.waiting != 0
            || entry.forwarded > 0
            || entry.unaccounted.value().is_some_and(|packets| *packets != 0)
            || entry.losses.iter().any(|loss| loss.packets > 0)
    };
    let shown: Vec<&StageEntry> =
        way.stages.iter().enumerate().filter(is_shown).map(|(_, entry)| entry).collect();
    let folded = way.stages.len() - shown.len();
    (shown, folded)
}

fn section(name: &str, way: &AccountingPath, full: bool, style: TextStyle) -> Vec<String> {
    let name = match name {
        "Requests" => "requests",
        "Replies" => "replies",
        _ => "forwarded",
    };
    let (entries, folded) = visible_stages(way, full);
    // Only a router, a bridge or a NAT host has any.
    let forwards = way.forwarded() > 0;
    let mut heads = vec![name, ">in", ">lost", ">waiting", ">out"];
    if forwards {
        heads.insert(3, ">forwarded");
    }
    let mut table = TextTable::new(&heads);
    entries.iter().for_each(|entry| table.row(row(entry, forwards)));
    let mut rows = table.lines(0, usize::MAX, style).into_iter();
    let mut lines = vec![String::new()];
    lines.extend(rows.next());
    for (row, entry) in rows.zip(entries) {
        lines.push(row);
        lines.extend(details(entry, full, style));
    }
    if folded > 0 {
        let stages = count_with_noun(folded, "stage");
        lines.push(style.paint(TextTone::Faint, &format!("({stages} that lost nothing: --full)")));
    }
    lines
}

fn row(entry: &StageEntry, forwards: bool) -> Vec<String> {
    let lost = entry.losses.iter().map(|loss| loss.packets).fold(0, u64::saturating_add);
    let blank = |packets: u64| if packets == 0 { String::new() } else { grouped(packets) };
    let mut row = vec![
        entry.stage.name().to_owned(),
        packets(&entry.packets_in),
        blank(lost),
        waiting(entry),
        packets(&entry.packets_out),
    ];
    if forwards {
        row.insert(3, blank(entry.forwarded));
    }
    row
}

/// What was lost at a stage and what is missing there, below its row.
fn details(entry: &StageEntry, full: bool, style: TextStyle) -> Vec<String> {
    let column = TextColumn { style, before: 2, label: 2 };
    let paint = |tone: TextTone, text: String| {
        let lines = column.labelled("", &text);
        lines.into_iter().map(move |line| style.paint(tone, &line)).collect::<Vec<_>>()
    };
    let losses = entry.losses.iter().filter(|loss| full || loss.packets > 0);
    let losses =
        losses.map(|loss| paint(TextTone::Bad, format!("{} {}", grouped(loss.packets), loss_line(loss))));
    let missing = unaccounted(entry).into_iter().map(|text| paint(TextTone::Warn, text));
    losses.chain(missing).flatten().collect()
}

/// Packets that wait; with a sign where some that had waited left.
pub(crate) fn waiting(entry: &StageEntry) -> String {
    let count = grouped(entry.waiting.unsigned_abs());
    match entry.waiting {
        0 => String::new(),
        ..0 => format!("-{count}"),
        _ => count,
    }
}

/// A count, or a mark where nothing counts.
pub(crate) fn packets(packets: &Known<u64>) -> String {
    packets.value().map_or_else(|| format::UNKNOWN.to_owned(), |packets| grouped(*packets))
}

/// A loss in a line: what, where, and who says so.
pub(crate) fn loss_line(loss: &StageLoss) -> String {
    let mut parts = vec![loss.name.clone()];
    parts.extend(loss.symbol.as_ref().map(|symbol| format!("in {symbol}")));
    parts.extend(loss.place.clone());
    parts.push(loss.source.clone());
    parts.extend(exactness_note(loss.exactness).map(str::to_owned));
    parts.join(" · ")
}

/// What to know of a number that is not exact.
pub(crate) fn exactness_note(exactness: LossExactness) -> Option<&'static str> {
    match exactness {
        LossExactness::Exact => None,
        LossExactness::OfDevice => Some("of all packets there, not of these alone"),
        LossExactness::Sampled => Some("sampled"),
    }
}

/// What is missing at a stage, and where it may be.
pub(crate) fn unaccounted(entry: &StageEntry) -> Vec<String> {
    let Some(packets) = entry.unaccounted.value().copied().filter(|packets| *packets != 0) else {
        return Vec::new();
    };
    let count = grouped(packets.unsigned_abs());
    let head = if packets > 0 {
        format!("unaccounted: {count}")
    } else {
        format!("unaccounted: {count} more out than in")
    };
    std::iter::once(head).chain(entry.likely.iter().map(|likely| format!("perhaps: {likely}"))).collect()
}

fn elsewhere(ledger: &PacketAccounting, style: TextStyle) -> Vec<String> {
    if ledger.elsewhere.is_empty() {
        return Vec::new();
    }
    let mut table = TextTable::new(&[">lost", "elsewhere"]);
    ledger.elsewhere.iter().for_each(|loss| table.row(vec![grouped(loss.packets), loss_line(loss)]));
    [vec![String::new()], table.lines(0, usize::MAX, style)].concat()
}

/// What was lost with what to do about it, each cause once.
pub(crate) fn causes(ledger: &PacketAccounting) -> Vec<&StageLoss> {
    let losses = ledger.ways().flat_map(|way| way.losses().map(|(_, loss)| loss)).chain(&ledger.elsewhere);
    let mut causes: Vec<&StageLoss> = Vec::new();
    for loss in losses.filter(|loss| loss.packets > 0) {
        if !causes.iter().any(|cause| cause.name == loss.name) {
            causes.push(loss);
        }
    }
    causes
}

fn remedies(ledger: &PacketAccounting, style: TextStyle) -> Vec<String> {
    let column = TextColumn { style, before: 2, label: 0 };
    let mut lines = Vec::new();
    for cause in causes(ledger) {
        lines.push(String::new());
        let head = format!("{}: {}", cause.name, cause.what);
        lines.push(style.paint(TextTone::Strong, &head));
        if !cause.remedy.is_empty() {
            lines.extend(column.labelled("", &format!("{}.", cause.remedy)));
        }
        if let Some(finding) = &cause.finding {
            lines.extend(column.labelled("", &format!("More: linerate doctor --explain {finding}")));
        }
    }
    lines
}

fn remarks(ledger: &PacketAccounting, style: TextStyle) -> Vec<String> {
    let column = TextColumn { style, before: 0, label: 0 };
    let notes = ledger.notes.iter().flat_map(|note| column.labelled("", &format!("{note}.")));
    let mut lines: Vec<String> = notes.map(|line| style.paint(TextTone::Faint, &line)).collect();
    if !lines.is_empty() {
        lines.insert(0, String::new());
    }
    lines
}

#[cfg(test)]
pub(super) mod tests;
