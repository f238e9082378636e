//! `linerate delay`.

use linerate_host::Known;
use linerate_trace::delay::{DelayCause, DelayQuantiles, DelayReport, DelayStage, SlowReason};

use crate::document::{
    Audience, BarChart, Block, Document, Section, SegmentFill, StackedBar, Table, Tile, Tone,
};
use crate::envelope::{CommandResult, Envelope};
use crate::render::format::{
    UNKNOWN, comma_list, grouped, known_text, microseconds, percent, significant, time_span,
};

/// Further rows are left out of the text.
const MOST_REASONS: usize = 8;
const MOST_CPUS: usize = 16;
// Requests below which the slowest 1 % are few.
const ENOUGH_REQUESTS: u64 = 1000;

impl CommandResult for DelayReport {
    const SCHEMA: &'static str = "linerate.delay/1";

    fn document(envelope: &Envelope<Self>) -> Document {
        let report = &envelope.result;
        let mut document = envelope.new_document("Where requests wait", verdict(report));
        document.about = about(report);
        document.tiles = tiles(report);
        document.sections = vec![
            Section::default().with_for(Audience::Text, Block::faint(about(report))),
            Section::new("Stages, us").with_for(Audience::Page, bars(report)).with(stages(report)),
            Section::new(format!("Why the {} were slow", slowest_words(report))).with(reasons(report)),
            Section::new("Stages by CPU, us").with(cpus(report)).only_for(Audience::Page),
            Section::new("NET_RX by CPU").with(softirqs(report)),
            Section::new("Longest softirqs").with(longest_table(report)),
            Section::default().with(Block::faint(overhead_text(report))),
        ];
        let notes = notes(report).into_iter().map(|note| Block::Paragraph(Tone::Warn, note));
        document.sections.push(notes.fold(Section::default(), Section::with));
        document
    }
}

/// The requests with reasons: fewer than 1 % after more requests than are kept.
fn slowest_words(report: &DelayReport) -> String {
    let (slowest, requests) = (report.slowest_ns.count, report.requests);
    if slowest * 100 >= requests {
        return "slowest 1 %".to_owned();
    }
    format!("slowest {}", percent(slowest as f64 / requests as f64))
}

pub(crate) fn stage_name(stage: DelayStage) -> &'static str {
    match stage {
        DelayStage::Softirq => "interrupt to NET_RX",
        DelayStage::Poll => "NET_RX to IP",
        DelayStage::Ip => "IP to socket",
        DelayStage::WakeUp => "socket to running thread",
        DelayStage::Read => "running thread to read",
        DelayStage::Server => "read to reply",
        DelayStage::Transmit => "reply to driver",
    }
}

fn cause_words(cause: &DelayCause) -> String {
    match cause {
        DelayCause::ServerSlept { thread } => format!("server thread {thread} slept"),
        DelayCause::ServerRan { thread } => format!("server thread {thread} ran"),
        DelayCause::OtherThread { thread } => format!("{thread} had the CPU"),
        DelayCause::Packets => "packets before it, in NET_RX".to_owned(),
        DelayCause::OtherSoftirq { name } => format!("softirq {name}"),
        DelayCause::Interrupt => "interrupts".to_owned(),
        DelayCause::IdleCpu => "the CPU was idle".to_owned(),
        DelayCause::Qdisc { interface } => format!("queueing discipline of {interface}"),
        DelayCause::NotSeen => "not seen".to_owned(),
    }
}

fn verdict(report: &DelayReport) -> String {
    let port = report.port;
    let (Some(median), Some(p99)) = (report.end_to_end_ns.p50, report.end_to_end_ns.p99) else {
        return match (report.received, report.reads) {
            (0, 0) => format!("No request to port {port} arrived while it was observed."),
            (0, _) => format!(
                "Requests to port {port} were read, but none was seen to arrive: they came earlier, or by a macvlan, \
                 ipvlan or VLAN of another network namespace, or by bpf_redirect_peer."
            ),
            (_, 0) => format!("Requests to port {port} arrived, but no program read them."),
            _ => format!("No reply of port {port} could be matched with its request."),
        };
    };
    let (median, p99_text) = (time_span(median as f64), time_span(p99 as f64));
    let sentence =
        format!("Half of the requests to port {port} took up to {median}, 1 % took {p99_text} or more.");
    let Some(reason) = report.reasons.first() else { return sentence };
    let subject = if reason.share > 0.5 { "Most" } else { "The largest group" };
    let group = match slowest_words(report) {
        words if words == "slowest 1 %" => "these".to_owned(),
        words => format!("the {words}"),
    };
    format!(
        "{sentence} {subject} of {group} ({}) waited from {}: {}.",
        percent(reason.share),
        stage_name(reason.stage),
        cause_words(&reason.cause)
    )
}

fn about(report: &DelayReport) -> String {
    format!(
        "Port {}, {} requests in {} of {}.",
        report.port,
        grouped(report.requests),
        time_span(report.observed_seconds * 1e9),
        time_span(report.seconds * 1e9)
    )
}

fn tiles(report: &DelayReport) -> Vec<Tile> {
    let tile = |value: Option<u64>, label| Tile::new(known_text(value, microseconds), "us", label);
    vec![
        tile(report.end_to_end_ns.p50, "median, from interrupt to driver"),
        tile(report.end_to_end_ns.p99, "99th percentile"),
        tile(report.end_to_end_ns.p999, "99.9th percentile"),
    ]
}

fn quantile_cells(ns: &DelayQuantiles) -> [String; 5] {
    [ns.p50, ns.p90, ns.p99, ns.p999, ns.max].map(|quantile| known_text(quantile, microseconds))
}

fn stages(report: &DelayReport) -> Table {
    let row = |name: &str, all_requests: &DelayQuantiles, slowest_requests: &DelayQuantiles| {
        let [p50, p90, p99, p999, max] = quantile_cells(all_requests);
        let [slow_p50, _, slow_p99, ..] = quantile_cells(slowest_requests);
        [name.to_owned(), p50, p90, p99, p999, max, slow_p50, slow_p99]
    };
    let rows = report.stages.iter().map(|stage| row(stage_name(stage.stage), &stage.ns, &stage.slowest_ns));
    let end_to_end = row("end to end", &report.end_to_end_ns, &report.slowest_ns);
    Table::new("stage | >p50 | >p90 | >p99 | >p99.9 | >max | >slow p50 | >slow p99")
        .with_rows(rows.chain([end_to_end]))
        .with_caption(format!("slow: of the {} of requests", slowest_words(report)))
}

const FILLS: [SegmentFill; 7] = [
    SegmentFill::Interrupt,
    SegmentFill::Receive,
    SegmentFill::Passed,
    SegmentFill::Waiting,
    SegmentFill::Idle,
    SegmentFill::Tasks,
    SegmentFill::Transmit,
];

/// Medians of all and of the slowest requests.
fn bars(report: &DelayReport) -> BarChart {
    let sum = |times: &[u64]| times.iter().sum::<u64>();
    let medians: Vec<u64> = report.stages.iter().map(|stage| stage.ns.p50.unwrap_or(0)).collect();
    let slowest_medians: Vec<u64> =
        report.stages.iter().map(|stage| stage.slowest_ns.p50.unwrap_or(0)).collect();
    let scale = sum(&medians).max(sum(&slowest_medians)).max(1) as f64;
    let bar = |name: &str, times: &[u64]| {
        let words = report
            .stages
            .iter()
            .zip(times)
            .map(|(stage, ns)| format!("{} {}", stage_name(stage.stage), time_span(*ns as f64)));
        StackedBar {
            name: name.to_owned(),
            value: time_span(sum(times) as f64),
            description: format!("{name}: {}", comma_list(words)),
            segments: BarChart::segments(FILLS.into_iter().zip(times.iter().map(|ns| *ns as f64 / scale))),
            ..StackedBar::default()
        }
    };
    BarChart {
        legend: FILLS.into_iter().zip(DelayStage::ALL.map(stage_name)).collect(),
        bars: vec![bar("all requests", &medians), bar(&slowest_words(report), &slowest_medians)],
        caption: "Medians of each stage; the sum of medians is not the median of sums.".to_owned(),
        ..BarChart::default()
    }
}

fn reasons(report: &DelayReport) -> Table {
    let rows = report.reasons.iter().map(|SlowReason { stage, cause, requests, share, stage_ns }| {
        [
            percent(*share),
            grouped(*requests),
            stage_name(*stage).to_owned(),
            microseconds(*stage_ns),
            cause_words(cause),
        ]
    });
    Table::new(">share | >requests | stage | >median us | reason")
        .with_rows(rows)
        .with_text_limit(MOST_REASONS, "less frequent reasons")
}

fn cpus(report: &DelayReport) -> Table {
    let rows = report.stages.iter().flat_map(|stage| {
        stage.cpus.iter().map(|cpu| {
            let [p50, p90, p99, p999, max] = quantile_cells(&cpu.ns);
            let name = stage_name(stage.stage).to_owned();
            [name, cpu.cpu.to_string(), grouped(cpu.ns.count), p50, p90, p99, p999, max]
        })
    });
    Table::new("stage | >CPU | >requests | >p50 | >p90 | >p99 | >p99.9 | >max").with_rows(rows)
}

fn softirqs(report: &DelayReport) -> Table {
    let rows = report.softirqs.iter().filter(|cpu| cpu.run_ns.count > 0).map(|cpu| {
        let [p50, _, p99, _, max] = quantile_cells(&cpu.run_ns);
        let packets = |value: Option<u64>| known_text(value, grouped);
        [
            cpu.cpu.to_string(),
            grouped(cpu.run_ns.count),
            p50,
            p99,
            max,
            packets(cpu.poll_packets.p50),
            packets(cpu.poll_packets.max),
            significant(cpu.interrupts_per_second),
            known_text(cpu.time_squeezes.value(), |count| grouped(*count)),
        ]
    });
    Table::new(">CPU | >runs | >run p50 us | >p99 us | >max us | >packets/poll | >max | >irqs/s | >squeezed")
        .with_rows(rows)
        .with_text_limit(MOST_CPUS, "more CPUs")
}

fn longest_table(report: &DelayReport) -> Table {
    let rows = report.longest_softirqs.iter().map(|run| {
        let functions = match &run.functions {
            Known::Value(functions) => functions.join(" < "),
            Known::Unknown { why } => format!("{UNKNOWN} ({why})"),
        };
        [run.cpu.to_string(), run.name.clone(), microseconds(run.ns), functions]
    });
    Table::new(">CPU | softirq | >us | functions in its middle, innermost first").with_rows(rows)
}

fn overhead_text(report: &DelayReport) -> String {
    let overhead = &report.own;
    let programs = match &overhead.ns_a_run {
        Known::Value(ns) => {
            format!("{}, {} ns per event", percent(overhead.programs_cpu_share), significant(*ns))
        }
        Known::Unknown { why } => format!("unknown ({why})"),
    };
    format!(
        "This measurement took of one CPU: its BPF programs {programs}; joining {} events {}. It observed {} \
         windows, {} of the time.",
        grouped(overhead.events),
        percent(overhead.process_cpu_share),
        grouped(report.windows),
        percent(report.observed_seconds / report.seconds.max(1e-9))
    )
}

fn notes(report: &DelayReport) -> Vec<String> {
    let mut notes = Vec::new();
    let ratio = |count: u64, total: u64| count as f64 / total.max(1) as f64;
    if report.requests > 0 && report.requests < ENOUGH_REQUESTS {
        let requests = grouped(report.requests);
        notes.push(format!("With {requests} requests the slowest 1 % are few: use a longer --duration."));
    }
    if ratio(report.unmatched_reads, report.reads) > 0.05 {
        notes.push(format!(
            "The arrival of {} of the datagrams that were read is not known: they came before a window, or \
             several threads read one socket.",
            percent(ratio(report.unmatched_reads, report.reads))
        ));
    }
    if ratio(report.replies_by_order, report.replies) > 0.05 {
        notes.push(
            "Replies do not repeat the first two bytes of requests, so each was taken for the reply to the \
             oldest request of its client: a request without a reply makes later times of its client longer."
                .to_owned(),
        );
    }
    if report.lost_events > 0 {
        notes.push(format!("{} events had no room, and are left out.", grouped(report.lost_events)));
    }
    notes
}
