//! `linerate doctor`.

mod drawing;
mod evidence;
mod paths;
mod queue_lane;
mod service;
#[cfg(test)]
pub(crate) mod tests;
mod virtual_network;

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use askama::Template;
use linerate_host::diagnosis::UnknownItem;
use linerate_host::finding::Evidence;
use linerate_host::stage::StageName;
use linerate_host::{Counter, CpuSet, Diagnosis, HostView, Known, PacketPath, Severity};
use linerate_tune::journal::RecordedTune;
use linerate_tune::plan::ChangeBenefit;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::document::{
    Audience, Block, Document, Fact, FlowGroup, Mark, Note, Picture, Section, Table, Tile, Tone,
};
use crate::envelope::{CommandResult, Envelope};
use crate::origin::HostSummary;
use crate::render::column::cut;
use crate::render::format;
use crate::view::group_by_reason;
use crate::view::measurement::benefit_words;
use drawing::PathDrawing;
use evidence::value;
use paths::{InterfacePaths, PacketPaths, packets_per_second};
use queue_lane::QueueLane;
use service::PathService;

/// What was found on a packet path.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct DoctorResult {
    /// Whether it is the host that the program ran on; false for a capture.
    live: bool,
    /// `None` with one reading.
    seconds_between_readings: Option<f64>,
    numa_nodes: Known<u32>,
    findings: Vec<DoctorFinding>,
    unknown: Vec<UnknownItem>,
    paths: PacketPaths,
    /// Counters of the stages. Pages and text do not show them.
    counters: Value,
    /// The state of the stages. Pages and text do not show it.
    stages: Value,
}

/// A [`linerate_host::Finding`] that can be read from JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct DoctorFinding {
    id: String,
    stage: StageName,
    severity: Severity,
    severity_under_load: Severity,
    title: String,
    evidence: Vec<Evidence>,
    effect: String,
    published_ratio: Option<f64>,
    #[serde(default)]
    benefit: ChangeBenefit,
    source: String,
    kernels: String,
    remedy: String,
    /// Settings, for other programs.
    changes: Value,
    commands: Vec<String>,
    /// The finding to fix first.
    fix_first: Option<String>,
    caveats: String,
}

/// A counter and its growth between the readings.
#[derive(Serialize)]
struct CounterGrowth {
    #[serde(flatten)]
    counter: Counter,
    /// `None` with one reading, or if the counter restarted between the two.
    per_second: Option<f64>,
}

/// Further interfaces and services are counted, but not drawn as text.
const MOST_INTERFACES: usize = 4;
const MOST_SERVICES: usize = 6;
/// Reasons that the short text lists.
const MOST_REASONS: usize = 8;
/// A longer list of CPUs is printed as the number of CPUs.
const LONGEST_CPU_LIST: usize = 16;
/// A longer value is printed only in the full text and in the page.
const LONGEST_VALUE: usize = 48;
/// Lines of a text in the short form.
const SHORT_LINES: usize = 2;

impl DoctorResult {
    pub(crate) fn new(
        view: &HostView<'_>,
        diagnosis: &Diagnosis,
        live: bool,
        tunes: &[RecordedTune],
    ) -> Result<Self> {
        let mut findings: Vec<DoctorFinding> = serde_json::from_value(json(&diagnosis.findings)?)
            .context("the findings cannot be written as JSON")?;
        for (shown, finding) in findings.iter_mut().zip(&diagnosis.findings) {
            let changes = finding.changes.iter().map(|change| (&change.setting, &change.to));
            shown.benefit = ChangeBenefit::of(changes, [finding.id], tunes);
        }
        Ok(Self {
            live,
            seconds_between_readings: view.seconds(),
            numa_nodes: view.now.machine.numa_nodes.clone(),
            findings,
            unknown: diagnosis.unknown.clone(),
            paths: PacketPaths::from_view(view),
            counters: json(&counter_growth(view))?,
            stages: json(view.now)?,
        })
    }
}

/// The result in its envelope, without a host name if a capture was read.
pub(crate) fn envelope(
    view: &HostView<'_>,
    read_unix_seconds: Option<u64>,
    result: DoctorResult,
) -> Envelope<DoctorResult> {
    let mut host = HostSummary::of_machine(&view.now.machine);
    if !result.live {
        host.name = None;
    }
    Envelope::new(host, read_unix_seconds, result)
}

fn json<T: Serialize + ?Sized>(value: &T) -> Result<Value> {
    serde_json::to_value(value).context("the result cannot be written as JSON")
}

fn counter_growth(view: &HostView<'_>) -> Vec<CounterGrowth> {
    let key = |counter: &Counter| (counter.stage, counter.place.clone(), counter.name.clone());
    let before = view.before.map(PacketPath::counters).unwrap_or_default();
    let before: BTreeMap<_, u64> = before.iter().map(|counter| (key(counter), counter.value)).collect();
    let seconds = view.seconds();
    let per_second = |counter: &Counter| {
        let grown = counter.value.checked_sub(*before.get(&key(counter))?)?;
        seconds.map(|seconds| grown as f64 / seconds)
    };
    let counters = view.now.counters();
    counters.into_iter().map(|counter| CounterGrowth { per_second: per_second(&counter), counter }).collect()
}

impl CommandResult for DoctorResult {
    const SCHEMA: &'static str = "linerate.doctor/2";

    fn document(envelope: &Envelope<Self>) -> Document {
        let result = &envelope.result;
        let severities: Vec<Severity> = result.findings.iter().map(|finding| finding.severity).collect();
        let mut document =
            envelope.new_document("Diagnosis of the packet path", summary(&severities, result.unknown.len()));
        document.mark = Some(match severities.iter().max() {
            None => Mark::new(Tone::Good, "no finding"),
            Some(worst) => Mark::new(tone(*worst), worst.name()),
        });
        let readings = result.seconds_between_readings.map_or_else(
            || "one reading, counters since boot".to_owned(),
            |seconds| format!("two readings {seconds:.1} s apart"),
        );
        document.about = format!("{}, {readings}", if result.live { "this host" } else { "a capture" });
        document.tiles = Severity::ALL.map(|severity| tile(severity, &severities)).into();
        if result.paths.interfaces.is_empty() {
            document
                .notes
                .push(Note::new("The packet path of no interface is known well enough to draw it."));
        }
        document.sections = path_sections(result);
        document
            .sections
            .extend(result.findings.iter().enumerate().map(|(index, finding)| finding.section(index + 1)));
        document.sections.extend(virtual_network::sections(&result.stages));
        document.sections.push(unknown_section(&result.unknown));
        document.sections.push(
            Section::new("The host").only_for(Audience::Page).with(facts(&envelope.host, &result.numa_nodes)),
        );
        if !result.findings.is_empty() {
            document.sections.push(Section::default().with_for(
                Audience::ShortText,
                Block::faint(
                    "All evidence, commands and sources: --full. Reasons: --explain ID. To apply and undo the fixes: \
                     linerate tune.",
                ),
            ));
        }
        document
    }
}

fn tile(severity: Severity, severities: &[Severity]) -> Tile {
    let count = severities.iter().filter(|one| **one == severity).count();
    let tone = if count == 0 { Tone::Faint } else { tone(severity) };
    Tile::new(count.to_string(), "", severity.name()).with_tone(tone)
}

fn tone(severity: Severity) -> Tone {
    match severity {
        Severity::High => Tone::Bad,
        Severity::Medium => Tone::Warn,
        Severity::Low => Tone::Strong,
        Severity::Note => Tone::Faint,
    }
}

/// The number of findings per severity.
fn summary(findings: &[Severity], unknown: usize) -> String {
    let unread = match unknown {
        0 => String::new(),
        1 => "; one value is unknown".to_owned(),
        many => format!("; {many} values are unknown"),
    };
    let total = findings.len();
    if total == 0 {
        return format!("Nothing found{unread}.");
    }
    let counts = Severity::ALL
        .iter()
        .map(|severity| (severity, findings.iter().filter(|one| *one == severity).count()))
        .filter(|(_, count)| *count > 0)
        .map(|(severity, count)| format!("{count} {severity}"));
    format!("{}: {}{unread}.", format::count_with_noun(total, "finding"), format::comma_list(counts))
}

/// The path per interface, then services without a drawing.
fn path_sections(result: &DoctorResult) -> Vec<Section> {
    let (host, has_rates) = (&result.paths, result.seconds_between_readings.is_some());
    let online = result.stages.pointer("/machine/online");
    let online = online.and_then(|online| Known::<CpuSet>::deserialize(online).ok()?.into_value());
    let online = online.unwrap_or_default();
    let service = host.service.as_ref();
    let mut sections: Vec<Section> = Vec::new();
    for (index, paths) in host.interfaces.iter().enumerate() {
        let in_text = if index < MOST_INTERFACES { Audience::Both } else { Audience::Page };
        sections.push(interface_section(paths, service, has_rates).only_for(in_text));
    }
    if let more @ 1.. = host.interfaces.len().saturating_sub(MOST_INTERFACES) {
        let text = format!("and {more} more interfaces: --interface draws one");
        sections.push(Section::default().with_for(Audience::Text, Block::faint(text)));
    }
    if service.is_none() || host.interfaces.is_empty() {
        let services = service.map_or(host.other_services.as_slice(), std::slice::from_ref);
        let lines: Vec<String> = services.iter().map(|service| service.line(&online)).collect();
        let more = match lines.len().saturating_sub(MOST_SERVICES) {
            0 => String::new(),
            more => format!("and {more} more services; "),
        };
        let shown = lines.iter().take(MOST_SERVICES).cloned().collect();
        let hint = if host.other_services.is_empty() || service.is_some() {
            String::new()
        } else {
            format!("{more}--port draws the path to one")
        };
        sections.push(
            Section::new("Services")
                .with_for(Audience::Text, Block::List(shown))
                .with_for(Audience::Text, Block::faint(hint))
                .with_for(Audience::Page, Block::List(lines)),
        );
    }
    sections
}

fn interface_section(paths: &InterfacePaths, service: Option<&PathService>, has_rates: bool) -> Section {
    let rates = paths.rates.map_or_else(String::new, |(receive, transmit)| {
        format!("; {} in, {} out", packets_per_second(receive), packets_per_second(transmit))
    });
    let online = &paths.online;
    let drawing = PathDrawing::new(paths, service);
    let width = if has_rates {
        "The width of a line is the packet rate on it. Hover over a line to read it."
    } else {
        "All lines have the same width, because one reading has no packet rates. Two readings (--interval) have."
    };
    // Formatting into a string fails only if a Display implementation does, and none here can.
    let svg = drawing.render().unwrap_or_default();
    Section::new(format!("{}: {}{rates}", paths.interface, paths.facts.join(", ")))
        .with_for(
            Audience::Text,
            service.map_or_else(String::new, |service| {
                let processes =
                    if service.processes.is_empty() { "an unknown process" } else { &service.processes };
                format!("to {} of {processes}", service.name)
            }),
        )
        .with_for(
            Audience::Page,
            Block::faint(service.map_or_else(String::new, |service| service.line(online))),
        )
        .with_for(Audience::Text, Block::Flows(flows(paths, service)))
        .with(Picture { svg, alternative: drawing.alternative, class: "" })
        .with_for(Audience::Page, Block::faint(width))
}

/// Receive queues by the node of their interrupts, each with the path of its packets.
fn flows(paths: &InterfacePaths, service: Option<&PathService>) -> Vec<FlowGroup> {
    let lanes = paths.lanes();
    let rows: Vec<(Option<u32>, Vec<String>)> =
        lanes.iter().map(|lane| (lane.node, lane_cells(paths, lane, service))).collect();
    // Rows of queues whose interrupts are on no single node, or on an unknown one.
    let elsewhere: Vec<_> =
        rows.iter().filter(|(node, _)| node.is_none()).map(|(_, cells)| cells.clone()).collect();
    let mut groups: Vec<FlowGroup> = paths
        .nodes
        .iter()
        .map(|(node, cpus)| {
            let name = node.map_or_else(|| "this host".to_owned(), |node| format!("node {node}"));
            let home = node.is_some() && *node == paths.home && paths.nodes.len() > 1;
            let of_node = rows.iter().filter(|(of, _)| node.is_some() && of == node);
            FlowGroup {
                heading: format!("{name}: CPU {cpus}{}", if home { ", with the NIC" } else { "" }),
                rows: of_node.map(|(_, cells)| cells.clone()).collect(),
                empty: if elsewhere.is_empty() { "no interrupt of a receive queue arrives here" } else { "" },
            }
        })
        .collect();
    match groups.as_mut_slice() {
        [only] => only.rows.extend(elsewhere),
        _ if elsewhere.is_empty() => {}
        _ => groups.push(FlowGroup { heading: "any node".to_owned(), rows: elsewhere, empty: "" }),
    }
    groups
}

/// The stations of a lane in order.
fn lane_cells(paths: &InterfacePaths, lane: &QueueLane, service: Option<&PathService>) -> Vec<String> {
    let rate = lane.rate.map_or_else(String::new, |rate| format!(" ({})", packets_per_second(rate)));
    let mut cells = vec![format!("rx {}{rate}", lane.queues)];
    cells.push(match &lane.napi {
        None => "CPU ?".to_owned(),
        Some(cpus) if cpus.is_empty() => "the sender's CPU".to_owned(),
        Some(cpus) => cpus_words(cpus, paths),
    });
    cells.push(match &lane.rps {
        None => "RPS ?".to_owned(),
        Some(cpus) if cpus.is_empty() => "no RPS".to_owned(),
        Some(cpus) => format!("RPS to {}", cpus_words(cpus, paths)),
    });
    let nowhere = CpuSet::new();
    let stack = lane.stack().unwrap_or(&nowhere);
    match service {
        Some(service) => {
            let (threads, cpus) = service.threads(&service.reachable_sockets(stack), &paths.online);
            cells.push(service.sockets_words(stack));
            cells.push(threads);
            cells.push(paths.transmit.words(&cpus));
        }
        None => cells.push(format!("back by {}", paths.transmit.words(stack))),
    }
    cells
}

fn cpus_words(cpus: &CpuSet, paths: &InterfacePaths) -> String {
    let list = cpus.to_string();
    match paths.node_of(cpus) {
        _ if *cpus == paths.online && cpus.len() > 1 => "any CPU".to_owned(),
        Some(node) if list.len() > LONGEST_CPU_LIST => format!("{} CPUs of node {node}", cpus.len()),
        None if list.len() > LONGEST_CPU_LIST => format!("{} CPUs", cpus.len()),
        _ => format!("CPU {list}"),
    }
}

impl DoctorFinding {
    fn section(&self, number: usize) -> Section {
        let evidence = Table::new("seen | value | read from").with_rows(
            self.evidence.iter().map(|item| [item.what.clone(), value(&item.value), item.read_from.clone()]),
        );
        let mut section = Section::new(&self.title).with_for(Audience::Page, evidence);
        section.anchor = Some(format!("finding-{number}"));
        section.mark = Some(Mark::new(tone(self.severity), self.severity.name()));
        section.identifier = Some(self.id.clone());
        section
            .with_for(Audience::ShortText, self.short_facts())
            .with_for(Audience::FullText, self.full_facts())
            .with_for(Audience::Page, self.page_facts())
    }

    fn fix_first(&self) -> Option<Fact> {
        let text = |first: &String| {
            format!(
                "Fix {first}, then run doctor again: this fix alone would spread packets over more CPUs and lower \
                 the rate of answers."
            )
        };
        self.fix_first.as_ref().map(|first| Fact::new("first", text(first)))
    }

    fn gain(&self) -> Fact {
        Fact::new("gain", benefit_words(&self.benefit))
    }

    fn page_facts(&self) -> Vec<Fact> {
        let ratio =
            self.published_ratio.map(|ratio| format!("{}; ", format::ratio(ratio))).unwrap_or_default();
        let detail = format!("{ratio}{}; kernels: {}", self.source, self.kernels);
        let effect = Fact { detail, ..Fact::new("effect", &self.effect) };
        let remedy = Fact { commands: self.commands.clone(), ..Fact::new("remedy", &self.remedy) };
        [effect, self.gain()]
            .into_iter()
            .chain(self.fix_first())
            .chain([remedy, Fact::new("not if", &self.caveats)])
            .collect()
    }

    fn full_facts(&self) -> Vec<Fact> {
        let seen = self.evidence.iter().enumerate().map(|(index, item)| {
            let text = format!("{}: {} ({})", item.what, value(&item.value), item.read_from);
            Fact::new(if index == 0 { "seen" } else { "" }, text)
        });
        let remedy = Fact { commands: self.commands.clone(), ..Fact::new("remedy", &self.remedy) };
        let texts = [("effect", &self.effect), ("source", &self.source), ("kernels", &self.kernels)];
        seen.chain(texts.map(|(name, text)| Fact::new(name, text)))
            .chain([self.gain()])
            .chain(self.fix_first())
            .chain([remedy, Fact::new("not if", &self.caveats)])
            .collect()
    }

    fn short_facts(&self) -> Vec<Fact> {
        let seen = self.evidence.first().map(|first| {
            let more = match self.evidence.len() - 1 {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let shown = cut(&value(&first.value), LONGEST_VALUE);
            Fact::new("seen", format!("{}: {shown} ({}){more}", first.what, first.read_from))
        });
        let fix = self.fix_first().unwrap_or_else(|| match self.commands.split_first() {
            Some((command, rest)) => {
                let detail = if rest.is_empty() { String::new() } else { format!("and {} more", rest.len()) };
                Fact { detail, ..Fact::new("do", command) }
            }
            None => Fact::new("remedy", &self.remedy),
        });
        let facts = seen.into_iter().chain([Fact::new("effect", &self.effect), self.gain(), fix]);
        facts
            .chain([Fact::new("not if", &self.caveats)])
            .map(|fact| Fact { text_lines: Some(SHORT_LINES), ..fact })
            .collect()
    }
}

fn unknown_section(unknown: &[UnknownItem]) -> Section {
    let kinds = by_kind(unknown);
    let short = kinds.iter().take(MOST_REASONS).map(|(why, places)| match places.as_slice() {
        [first, rest @ ..] if !rest.is_empty() => format!("{first} and {} more: {why}", rest.len()),
        _ => format!("{}: {why}", places.concat()),
    });
    let more = match kinds.len().saturating_sub(MOST_REASONS) {
        0 => String::new(),
        more => format!("and {more} more reasons (--full)"),
    };
    let reasons = by_reason(unknown).into_iter();
    let full = reasons.map(|(why, places)| format!("{}: {why}", places.join(", "))).collect();
    Section::new("Unknown")
        .with_for(Audience::ShortText, Block::List(short.collect()))
        .with_for(Audience::ShortText, Block::faint(more))
        .with_for(Audience::Full, Block::List(full))
}

/// Places grouped by the reason why they are unknown, in the order of the first place of each
/// group.
fn by_reason(unknown: &[UnknownItem]) -> Vec<(&str, Vec<&str>)> {
    group_by_reason(unknown.iter().map(|item| (item.why.as_str(), item.what.as_str())))
}

/// Places grouped by reason, and also by kind if their reasons differ only in a name or number.
fn by_kind(unknown: &[UnknownItem]) -> Vec<(&str, Vec<&str>)> {
    let kind = |places: &[&str]| places.first().map(|place| without_brackets(place));
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for (why, places) in by_reason(unknown) {
        match groups.iter_mut().find(|(_, others)| kind(others) == kind(&places)) {
            Some((_, others)) => others.extend(places),
            None => groups.push((why, places)),
        }
    }
    groups
}

/// `link[eth0].rings` without the name of the interface.
fn without_brackets(place: &str) -> String {
    place.split('[').map(|part| part.split_once(']').map_or(part, |(_, rest)| rest)).collect()
}

fn facts(host: &HostSummary, numa_nodes: &Known<u32>) -> Vec<Fact> {
    let unknown = || "unknown".to_owned();
    let nodes = match numa_nodes {
        Known::Value(nodes) => nodes.to_string(),
        Known::Unknown { why } => format!("unknown: {why}"),
    };
    vec![
        Fact::new("kernel", host.kernel.clone().unwrap_or_else(unknown)),
        Fact::new("CPU", host.cpu_model.clone().unwrap_or_else(unknown)),
        Fact::new("CPUs online", host.cpus.map_or_else(unknown, |cpus| cpus.to_string())),
        Fact::new("NUMA nodes", nodes),
    ]
}
