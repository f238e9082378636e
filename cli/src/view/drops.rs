//! `linerate drops`.

mod live;
mod verdict;

use linerate_host::Known;
use linerate_trace::drops::{
    AccountingPath, DropsResult, LossExactness, PacketAccounting, PathStep, StageEntry, StageLoss,
};

use crate::document::{
    Audience, BarChart, Block, Document, Mark, Section, SegmentFill, StackedBar, Table, Tone,
};
use crate::envelope::{CommandResult, Envelope};
use crate::render::format::count_with_noun;
use crate::render::format::{grouped, known_text, percent, time_span};
pub(crate) use live::PrintedDrops;

/// Least width of a segment with packets.
const LEAST_SHARE: f64 = 0.004;

impl CommandResult for DropsResult {
    const SCHEMA: &'static str = "linerate.drops/2";

    fn document(envelope: &Envelope<Self>) -> Document {
        let result = &envelope.result;
        let accounting = &result.accounting;
        let mut lines = verdict::lines(accounting).into_iter();
        let first_line = lines.next().map(|line| line.text).unwrap_or_default();
        let mut document = envelope.new_document("What became of packets", first_line);
        document.mark = Some(match (result.clean, result.balanced) {
            (true, _) => Mark::new(Tone::Good, "nothing lost"),
            (false, true) => Mark::new(Tone::Bad, "packets lost"),
            (false, false) => Mark::new(Tone::Bad, "does not balance"),
        });
        document.about = about(result).trim_end_matches('.').to_owned();
        let mut remaining_lines = Section::default();
        remaining_lines
            .blocks
            .extend(lines.map(|line| (Audience::Both, Block::Paragraph(line.tone, line.text))));
        let remaining_lines = remaining_lines
            .with_for(Audience::Text, Block::faint(about(result)))
            .with_for(Audience::Text, Block::faint(overhead(accounting)));
        document.sections.push(remaining_lines);
        document.sections.extend(named_paths(accounting).map(|(name, path)| {
            Section {
                half_width: true,
                ..Section::new(name)
                    .with_for(Audience::Page, bars(path, &path.stages.iter().collect::<Vec<_>>(), 0))
                    .with_for(Audience::Text, visible_bars(path, result.full))
            }
        }));
        document.sections.push(other_losses_section(accounting));
        document.sections.push(remedies(accounting));
        document.sections.push(
            Section::new("How packets were counted")
                .only_for(Audience::Page)
                .with(
                    "Exact figures are from tracepoints that every packet passes, with the reason that the kernel \
                     reports when it drops one. Counters of a device or of the whole host include all packets there \
                     and are marked.",
                )
                .with(overhead(accounting)),
        );
        let notes = accounting.notes.iter().map(|note| Block::faint(format!("{note}.")));
        document.sections.push(notes.fold(Section::default(), Section::with));
        document
    }
}

/// The subject of the counts, and the duration.
fn about(result: &DropsResult) -> String {
    let accounting = &result.accounting;
    let seconds = |seconds: f64| time_span(seconds * 1e9);
    let window_text = accounting.sampled.map(|sampling| format!(" of {}", seconds(sampling.of_seconds)));
    let load = result.load.as_ref().map(|load| format!("; the generator's counts are from {load}"));
    format!(
        "{}, counted for {}{}{}.",
        accounting.subject,
        seconds(accounting.seconds),
        window_text.unwrap_or_default(),
        load.unwrap_or_default()
    )
}

fn overhead(accounting: &PacketAccounting) -> String {
    let overhead = match &accounting.overhead {
        Known::Value(overhead) => format!(
            "Counting took {} of one CPU: {:.0} ns per run of a program, timed over {}.",
            percent(overhead.cpu_share),
            overhead.run_ns,
            time_span(overhead.timed_seconds * 1e9),
        ),
        Known::Unknown { why } => format!("The CPU time of counting is not known: {why}."),
    };
    [Some(overhead), sampling_text(accounting)].into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// The reason why packets were counted only for parts of the time.
fn sampling_text(accounting: &PacketAccounting) -> Option<String> {
    let sampling = accounting.sampled?;
    let drops_text = match sampling.socket_drops_packets {
        0 => "Unconnected sockets dropped nothing in the whole time.".to_owned(),
        1 => "Unconnected sockets dropped 1 datagram in the whole time.".to_owned(),
        packets => format!("Unconnected sockets dropped {} datagrams in the whole time.", grouped(packets)),
    };
    Some(format!(
        "Sampled, because counting every packet took up to {} of one CPU: all figures are of the windows counted. \
         {drops_text} To count every packet, give a command to run meanwhile (-- COMMAND).",
        percent(sampling.counting_cpu_share)
    ))
}

/// The paths with their names. The path of forwarded packets is included only if there were any.
fn named_paths(accounting: &PacketAccounting) -> impl Iterator<Item = (&'static str, &AccountingPath)> {
    let paths = [
        ("Requests", &accounting.requests),
        ("Replies", &accounting.replies),
        ("Forwarded", &accounting.forwarded),
    ];
    paths.into_iter().filter(|(name, path)| *name != "Forwarded" || !path.stages.is_empty())
}

/// The first and last stage with a count, and the stages where packets were lost, wait or are
/// missing.
fn visible_stages(path: &AccountingPath, full: bool) -> Vec<&StageEntry> {
    let has_count =
        |entry: &StageEntry| entry.packets_in.value().is_some() || entry.packets_out.value().is_some();
    let first = path.stages.iter().position(has_count);
    let last = path.stages.iter().rposition(has_count);
    let is_shown = |(index, entry): &(usize, &StageEntry)| {
        full || Some(*index) == first
            || Some(*index) == last
            || entry.waiting != 0
            || entry.forwarded > 0
            || entry.unaccounted.value().is_some_and(|packets| *packets != 0)
            || entry.losses.iter().any(|loss| loss.packets > 0)
    };
    path.stages.iter().enumerate().filter(is_shown).map(|(_, entry)| entry).collect()
}

fn visible_bars(path: &AccountingPath, full: bool) -> BarChart {
    let stages = visible_stages(path, full);
    let counts = stages.iter().flat_map(|entry| [&entry.packets_in, &entry.packets_out]);
    let width = counts.map(|count| packets(count).chars().count()).max().unwrap_or(0);
    let hidden_stages = path.stages.len() - stages.len();
    let caption = if hidden_stages > 0 {
        format!("({} that lost nothing: --full)", count_with_noun(hidden_stages, "stage"))
    } else {
        String::new()
    };
    BarChart { caption, ..bars(path, &stages, width) }
}

/// One bar per stage, narrower where packets were lost. `width` aligns the counts of text.
fn bars(path: &AccountingPath, stages: &[&StageEntry], width: usize) -> BarChart {
    let counts = path.stages.iter().flat_map(|entry| [&entry.packets_in, &entry.packets_out]);
    let max_packets = counts.filter_map(|packets| packets.value().copied()).max().unwrap_or(0);
    BarChart {
        legend: vec![
            (SegmentFill::Passed, "passed on"),
            (SegmentFill::Lost, "lost"),
            (SegmentFill::Waiting, "waiting at the end"),
        ],
        bars: stages.iter().map(|entry| bar(entry, max_packets, width)).collect(),
        ..BarChart::default()
    }
}

fn bar(entry: &StageEntry, max_packets: u64, width: usize) -> StackedBar {
    let share = |packets: u64| match packets {
        0 => 0.0,
        packets => (packets as f64 / max_packets.max(packets) as f64).max(LEAST_SHARE),
    };
    let lost_packets = entry.losses.iter().map(|loss| loss.packets).fold(0, u64::saturating_add);
    let lost_share = share(lost_packets);
    let waiting_share = share(u64::try_from(entry.waiting).unwrap_or(0));
    let packets_through = entry.packets_out.value().or(entry.packets_in.value()).copied().unwrap_or(0);
    let passed_share = share(packets_through).min((1.0 - lost_share - waiting_share).max(0.0));
    let (packets_in, packets_out) = (packets(&entry.packets_in), packets(&entry.packets_out));
    let mut details = Vec::new();
    if entry.waiting != 0 {
        let count = grouped(entry.waiting.unsigned_abs());
        let comparative = if entry.waiting > 0 { "more" } else { "fewer" };
        details.push((Tone::Plain, count, format!("{comparative} waiting at the end than at the beginning")));
    }
    if entry.forwarded > 0 {
        details.push((Tone::Plain, grouped(entry.forwarded), "forwarded".to_owned()));
    }
    for loss in entry.losses.iter().filter(|loss| loss.packets > 0) {
        details.push((Tone::Bad, format!("{} lost:", grouped(loss.packets)), loss_line(loss)));
    }
    details.extend(unaccounted(entry).into_iter().map(|text| (Tone::Warn, String::new(), text)));
    StackedBar {
        name: entry.stage.name().to_owned(),
        name_aside: stage_description(entry.stage).to_owned(),
        value: format!("{packets_in:>width$} in  {packets_out:>width$} out"),
        description: format!("{}: {packets_in} in, {packets_out} out", entry.stage.name()),
        segments: BarChart::segments([
            (SegmentFill::Passed, passed_share),
            (SegmentFill::Lost, lost_share),
            (SegmentFill::Waiting, waiting_share),
        ]),
        details,
        ..StackedBar::default()
    }
}

/// A short description of a stage.
fn stage_description(step: PathStep) -> &'static str {
    match step {
        PathStep::Generator => "sends the requests",
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

fn packets(packets: &Known<u64>) -> String {
    known_text(packets.value(), |packets| grouped(*packets))
}

/// A loss in one line: cause, place, and the counter that reports it.
fn loss_line(loss: &StageLoss) -> String {
    let mut parts = vec![loss.what.clone(), loss.name.clone()];
    parts.extend(loss.symbol.as_ref().map(|symbol| format!("in {symbol}")));
    parts.extend(loss.place.clone());
    parts.push(loss.source.clone());
    parts.extend(match loss.exactness {
        LossExactness::Exact => None,
        LossExactness::OfDevice => Some("of all packets there, not of these alone".to_owned()),
        LossExactness::Sampled => Some("sampled".to_owned()),
    });
    parts.join(" · ")
}

/// The packets missing at a stage, and where they may be.
fn unaccounted(entry: &StageEntry) -> Vec<String> {
    let Some(packets) = entry.unaccounted.value().copied().filter(|packets| *packets != 0) else {
        return Vec::new();
    };
    let count = grouped(packets.unsigned_abs());
    let direction_text = if packets > 0 { "" } else { " more out than in" };
    let summary = format!("unaccounted: {count}{direction_text}");
    std::iter::once(summary)
        .chain(entry.likely.iter().map(|likely_place| format!("perhaps: {likely_place}")))
        .collect()
}

fn other_losses_section(accounting: &PacketAccounting) -> Section {
    let rows = accounting.elsewhere.iter().map(|loss| [grouped(loss.packets), loss_line(loss)]);
    Section::new("Elsewhere").with(Table::new(">lost | cause").with_rows(rows).into_listing().wrapping())
}

/// Each cause of losses once, with its remedy.
fn remedies(accounting: &PacketAccounting) -> Section {
    let losses = accounting.ways().flat_map(|path| path.losses().map(|(_, loss)| loss));
    let mut causes: Vec<&StageLoss> = Vec::new();
    for loss in losses.chain(&accounting.elsewhere).filter(|loss| loss.packets > 0) {
        if !causes.iter().any(|cause| cause.name == loss.name) {
            causes.push(loss);
        }
    }
    let mut section = Section::new("What you can do");
    for cause in causes {
        section = section.with(Block::Heading(format!("{}: {}", cause.name, cause.what)));
        if !cause.remedy.is_empty() {
            section = section.with(format!("{}.", cause.remedy));
        }
        let commands = cause.finding.iter().map(|finding| format!("linerate doctor --explain {finding}"));
        section = section.with(Block::Commands(commands.collect()));
    }
    section
}

#[cfg(test)]
pub(crate) mod tests;
