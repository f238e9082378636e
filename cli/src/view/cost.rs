//! `linerate cost`.

mod words;

use linerate_host::Known;
use linerate_trace::cost::{CostComparison, CostReport, CostResult, CpuCost, TopVictim, VictimGrouping};

use crate::document::{
    Audience, BarChart, Block, Document, Fact, Note, Section, SegmentFill, StackedBar, Table, Tile,
};
use crate::envelope::{CommandResult, Envelope};
use crate::origin::HostSummary;
use crate::render::column::cut;
use crate::render::format::{UNKNOWN, grouped, percent, rate, ratio, significant};
use crate::view::comparison::{figures, mark};
pub(crate) use words::LIVE_HEADER;
pub(crate) use words::live_line;
use words::{
    accounted_share, arrival_rate, calibration_text, device_name, net_rx_runs, own, packets_share,
    per_packet_cost, share, untraced, verdict, wall_ns,
};

/// If there are more CPUs, they are sorted by the time that packets took.
const MOST_CPUS: usize = 16;
const MOST_DEVICES: usize = 12;
/// Largest number of CPUs in the drawing of a page.
const MOST_DRAWN_CPUS: usize = 64;
const LONGEST_NAME: usize = 30;

/// A part of a CPU's time: its colour, its name, and the figure.
type CpuTimePart = (SegmentFill, &'static str, fn(&CpuCost) -> u64);

const PARTS: [CpuTimePart; 6] = [
    (SegmentFill::Receive, "NET_RX", |cpu| cpu.net_rx_ns),
    (SegmentFill::Transmit, "NET_TX", |cpu| cpu.net_tx_ns),
    (SegmentFill::Interrupt, "interrupts for packets", |cpu| cpu.nic_irq_ns),
    (SegmentFill::Other, "other softirqs and interrupts", |cpu| cpu.other_softirq_ns + cpu.other_irq_ns),
    (SegmentFill::Tasks, "processes", |cpu| cpu.tasks_ns),
    (SegmentFill::Idle, "idle", |cpu| cpu.idle_ns),
];

impl CommandResult for CostResult {
    const SCHEMA: &'static str = "linerate.cost/2";

    fn document(envelope: &Envelope<Self>) -> Document {
        let result = &envelope.result;
        let cost = &result.cost;
        let mut document = Document::new(
            "What packets cost",
            verdict(cost, result.by),
            envelope.origin(),
            &envelope.warnings,
        );
        document.about = format!("measured for {:.1} s", cost.seconds);
        document.tiles = tiles(cost);
        document.notes.extend(result.calibrations.iter().map(calibration_text).map(Note::new));
        document.sections = sections(result);
        document.sections.push(
            Section::new("How it was measured").only_for(Audience::Page).with(facts(&envelope.host, cost)),
        );
        document
    }
}

/// The last interval, for `--watch`.
pub(crate) fn interval_document(result: &CostResult) -> Document {
    Document { verdict: verdict(&result.cost, result.by), sections: sections(result), ..Document::default() }
}

fn sections(result: &CostResult) -> Vec<Section> {
    let cost = &result.cost;
    let (by, top) = (result.by, usize::from(result.top));
    let victims = cost.top_victims(by);
    let group = match by {
        VictimGrouping::Process => "Processes",
        VictimGrouping::Thread => "Threads",
        VictimGrouping::Cgroup => "Control groups",
    };
    vec![
        Section::new("CPUs, shares of wall time")
            .with_for(Audience::Page, cpu_bars(cost))
            .with(cpus(cost))
            .with(per_packet_cost(cost)),
        Section::new(format!("{group}, shares of one CPU"))
            .with_for(Audience::Page, victim_bars(cost, victims.get(..top).unwrap_or(&victims)))
            .with(victim_table(cost, &victims, top)),
        Section::new("Paths").with(paths(cost)),
        Section::new("Devices").with(devices(cost)),
        Section::default()
            .with(Block::faint(untraced(cost).unwrap_or_default()))
            .with_for(Audience::Text, Block::faint(own(cost))),
    ]
}

fn tiles(cost: &CostReport) -> Vec<Tile> {
    let all = cost.all_cpus();
    let ns = all.ns_a_packet().map_or_else(|| UNKNOWN.to_owned(), significant);
    let own = cost.own.share.value().map_or_else(|| UNKNOWN.to_owned(), |own| percent(*own));
    vec![
        Tile::new(percent(share(all.packets_ns(), all.elapsed_ns as f64)), "", "of these CPUs, for packets"),
        Tile::new(arrival_rate(cost, &all), "/s", "packets, counted where they enter the host"),
        Tile::new(ns, "ns", "per packet, with interrupts"),
        Tile::new(own, "", "of these CPUs, for this measurement"),
    ]
}

/// CPUs in order of their number; many CPUs in order of the time that packets took, the longest
/// first.
fn sorted_cpus(cost: &CostReport, most: usize) -> Vec<&CpuCost> {
    let mut cpus: Vec<&CpuCost> = cost.cpus.iter().collect();
    if cpus.len() > most {
        cpus.sort_by_key(|cpu| (std::cmp::Reverse(cpu.packets_ns()), cpu.cpu));
    }
    cpus
}

fn cpu_bars(cost: &CostReport) -> BarChart {
    let bars = sorted_cpus(cost, MOST_DRAWN_CPUS).into_iter().take(MOST_DRAWN_CPUS).map(|cpu| {
        let shares = PARTS.map(|(fill, name, part)| (fill, name, share(part(cpu), cpu.elapsed_ns as f64)));
        let words = shares.map(|(_, name, share)| format!("{name} {}", percent(share)));
        StackedBar {
            name: format!("CPU {}", cpu.cpu),
            value: format!("{} packets", percent(packets_share(cpu))),
            description: format!("CPU {}: {}", cpu.cpu, words.join(", ")),
            segments: BarChart::segments(shares.map(|(fill, _, share)| (fill, share))),
            ..StackedBar::default()
        }
    });
    let more = cost.cpus.len().saturating_sub(MOST_DRAWN_CPUS);
    BarChart {
        legend: PARTS.iter().map(|(fill, name, _)| (*fill, *name)).collect(),
        bars: bars.collect(),
        caption: if more > 0 { format!("and {more} CPUs with less packet time") } else { String::new() },
        ..BarChart::default()
    }
}

fn cpus(cost: &CostReport) -> Table {
    let rows = sorted_cpus(cost, MOST_CPUS).into_iter().map(|cpu| {
        let of = |part: u64| percent(share(part, cpu.elapsed_ns as f64));
        [
            cpu.cpu.to_string(),
            of(cpu.packets_ns()),
            of(cpu.net_rx_ns),
            of(cpu.net_tx_ns),
            of(cpu.nic_irq_ns),
            of(cpu.in_ksoftirqd_ns + cpu.in_threads_ns),
            of(cpu.other_softirq_ns + cpu.other_irq_ns),
            of(cpu.tasks_ns),
            of(cpu.idle_ns),
            cpu.steal_ns.value().map_or_else(|| UNKNOWN.to_owned(), |steal| of(*steal)),
            arrival_rate(cost, cpu),
        ]
    });
    Table::new(&[
        ">CPU",
        ">packets",
        ">NET_RX",
        ">NET_TX",
        ">NIC irq",
        ">ksoftirqd",
        ">other irq",
        ">tasks",
        ">idle",
        ">steal",
        ">packets/s",
    ])
    .with_rows(rows)
    .only_for(Audience::Page, &["steal"])
    .with_text_limit(MOST_CPUS, "CPUs with less packet time")
}

fn victim_bars(cost: &CostReport, victims: &[TopVictim]) -> BarChart {
    let wall = wall_ns(cost);
    // A group of several threads can have more than the time of one CPU: the longest bar is the scale.
    let longest = victims.iter().map(|victim| victim.group.on_cpu_ns.max(victim.group.accounted_ns)).max();
    let scale = wall.max(longest.unwrap_or(0) as f64);
    let bars = victims.iter().map(|victim| {
        let group = &victim.group;
        let of = |part: u64| percent(share(part, wall));
        let (says, had, taken) = (accounted_share(group, wall), of(group.had_ns()), of(group.lost_ns()));
        let segments = [
            (SegmentFill::Tasks, group.had_ns()),
            (SegmentFill::Receive, group.lost_ns()),
            (SegmentFill::Other, group.taken_other_ns),
        ];
        StackedBar {
            name: victim.name.clone(),
            value: format!("top shows {says}, had {had}, lost {taken}"),
            description: format!("{}: top shows {says}, packets used {taken}, it had {had}", victim.name),
            segments: BarChart::segments(segments.map(|(fill, part)| (fill, share(part, scale)))),
            tick: group.accounted().map(|accounted| share(accounted, scale)),
            ..StackedBar::default()
        }
    });
    BarChart {
        legend: vec![
            (SegmentFill::Tasks, "had for itself"),
            (SegmentFill::Receive, "taken by packets"),
            (SegmentFill::Other, "taken by other interrupts"),
        ],
        tick_legend: Some("time in top"),
        bars: bars.collect(),
        ..BarChart::default()
    }
}

fn victim_table(cost: &CostReport, victims: &[TopVictim], top: usize) -> Table {
    let wall = wall_ns(cost);
    let rows = victims.iter().map(|victim| {
        let group = &victim.group;
        let of = |part: u64| percent(share(part, wall));
        [
            victim.name.clone(),
            accounted_share(group, wall),
            of(group.on_cpu_ns),
            of(group.taken_ns),
            of(group.displaced_ns),
            of(group.had_ns()),
            of(group.taken_in_own_calls_ns),
        ]
    });
    Table::new(&["name", ">top shows", ">on CPU", ">taken", ">displaced", ">had", ">in own calls"])
        .with_rows(rows)
        .with_text_width("name", LONGEST_NAME)
        .with_text_limit(top, "that lost less")
}

/// Empty unless paths were requested. The last row has the time that belongs to no path.
fn paths(cost: &CostReport) -> Table {
    let Some(paths) = &cost.paths else { return Table::default() };
    let taken: u64 = paths.iter().map(|path| path.taken_ns + path.own_ns).sum();
    let rows = paths.iter().map(|path| {
        [
            path.ingress.clone(),
            path.egress.clone().unwrap_or_else(|| "this host".to_owned()),
            path.owner.clone().unwrap_or_else(|| "-".to_owned()),
            if path.packets == 0 { "-".to_owned() } else { rate(path.packets as f64 / cost.seconds) },
            path.ns_a_packet().map_or_else(|| "-".to_owned(), significant),
            percent(share(path.taken_ns, wall_ns(cost))),
            if path.vhost_ns == 0 { "-".to_owned() } else { percent(share(path.vhost_ns, wall_ns(cost))) },
        ]
    });
    let rest = cost.all_cpus().packets_ns().saturating_sub(taken);
    let rest = ["(no path)", "", "-", "-", "-", &percent(share(rest, wall_ns(cost))), "-"].map(str::to_owned);
    Table::new(&["in", "out", "of", ">packets/s", ">ns/packet", ">of one CPU", ">vhost"])
        .with_rows(rows.chain([rest]))
        .with_text_width("of", LONGEST_NAME)
        .with_text_limit(MOST_DEVICES, "with less packet time")
}

fn devices(cost: &CostReport) -> Table {
    let each = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), significant);
    let rows = cost.devices.iter().map(|device| {
        [
            device_name(device),
            rate(device.packets as f64 / cost.seconds),
            rate(device.polls as f64 / cost.seconds),
            each(device.packets_a_poll()),
            each(device.ns_a_packet()),
            grouped(device.budget_exhausted),
            percent(share(device.taken_ns, wall_ns(cost))),
        ]
    });
    Table::new(&[
        "name",
        ">packets/s",
        ">polls/s",
        ">packets/poll",
        ">ns/packet",
        ">polls at budget",
        ">of one CPU",
    ])
    .with_rows(rows)
    .with_text_width("name", LONGEST_NAME)
    .with_text_limit(MOST_DEVICES, "with less packet time")
    .with_caption(net_rx_runs(cost))
}

fn facts(host: &HostSummary, cost: &CostReport) -> Vec<Fact> {
    let unknown = || "unknown".to_owned();
    let hypervisor = match host.hypervisor {
        Some(true) => "yes; all figures include its time".to_owned(),
        Some(false) => "no".to_owned(),
        None => unknown(),
    };
    vec![
        Fact::new("kernel", host.kernel.clone().unwrap_or_else(unknown)),
        Fact::new("CPU", host.cpu_model.clone().unwrap_or_else(unknown)),
        Fact::new("CPUs online", host.cpus.map_or_else(unknown, |cpus| cpus.to_string())),
        Fact::new("hypervisor", hypervisor),
        Fact::new("this measurement", own(cost)),
    ]
}

/// A figure's key, its words, and how a value is printed.
type ComparisonRow = (&'static str, &'static str, fn(f64) -> String);

const COMPARISON_ROWS: [ComparisonRow; 18] = [
    ("seconds", "duration, s", significant),
    ("cpus", "CPUs measured", |cpus| format!("{cpus:.0}")),
    ("packets_per_second", "packets per second", rate),
    ("packets_cpu_ratio", "taken by packets, of all CPUs", percent),
    ("highest_cpu_packets_ratio", "the same, of the CPU with most", percent),
    ("packets_ns_a_packet", "ns per packet", significant),
    ("net_rx_ns_a_packet", "  of it in NET_RX", significant),
    ("net_tx_ns_a_packet", "  of it in NET_TX", significant),
    ("nic_irq_ns_a_packet", "  of it in interrupts", significant),
    ("packets_a_poll", "packets per poll", significant),
    ("polls_a_run", "polls per run of NET_RX", significant),
    ("budget_exhausted_ratio", "polls that used up their budget", percent),
    ("ksoftirqd_ratio", "share that ran in ksoftirqd", percent),
    ("threads_of_napi_ratio", "share that ran in NAPI threads", percent),
    ("taken_from_tasks_cpu_ratio", "taken from processes, of all CPUs", percent),
    ("tasks_cpu_ratio", "left to processes, of all CPUs", percent),
    ("idle_cpu_ratio", "idle, of all CPUs", percent),
    ("own_cpu_ratio", "this measurement, of all CPUs", percent),
];

impl CommandResult for CostComparison {
    const SCHEMA: &'static str = "linerate.cost-comparison/2";

    fn document(envelope: &Envelope<Self>) -> Document {
        let comparison = &envelope.result;
        let names = comparison.names.iter().zip(&comparison.kernels).zip(["A", "B"]);
        let names = names.map(|((name, kernel), letter)| {
            let kernel = kernel.as_ref().map_or_else(String::new, |kernel| format!(", Linux {kernel}"));
            Fact::new(letter, cut(&format!("{name}{kernel}"), 90))
        });
        let rows = COMPARISON_ROWS.iter().filter_map(|(key, words, show)| {
            let figure = comparison.figure(key)?;
            let [one, other] = figure.values.map(|value| value.map_or_else(|| UNKNOWN.to_owned(), show));
            Some([(*words).to_owned(), one, other, figure.ratio.map_or_else(|| "-".to_owned(), ratio)])
        });
        let table = Table::new(&["", ">A", ">B", ">B by A"]).with_rows(rows);
        let verdict = comparison_verdict(comparison);
        let mut document =
            Document::new("Comparison of packet costs", verdict, envelope.origin(), &envelope.warnings);
        match &comparison.judged {
            Known::Value(judged) => document.mark = Some(mark(judged.verdict)),
            Known::Unknown { why } => document.notes.push(Note::new(format!("Not judged: {why}."))),
        }
        let judged = comparison.judged.value().map(|judged| figures(&judged.figures));
        document.sections = vec![
            Section::new("Results").with(names.collect::<Vec<_>>()),
            Section::new("Figures").with(table),
            Section::new("Time per packet").with(judged.unwrap_or_default()),
        ];
        document
    }
}

/// Compares the time per packet, because two measurements seldom have the same load.
fn comparison_verdict(comparison: &CostComparison) -> String {
    let figure = comparison.figure("packets_ns_a_packet").map(|figure| (figure.values, figure.ratio));
    match figure {
        Some(([Some(one), Some(other)], Some(by))) => format!(
            "A packet took {} ns in A and {} ns in B: {}. Each packet counts once, where it enters the host \
             (counting point \"{}\").",
            significant(one),
            significant(other),
            ratio(by),
            comparison.counting_point.value().map_or(UNKNOWN, String::as_str),
        ),
        _ => "The time per packet cannot be compared, because one of the two measured no packets.".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::made_up_cost::{cost, envelope, hostile};
    use crate::render::style::TextStyle;
    use crate::render::{html, text};

    const PLAIN: TextStyle = TextStyle { width: 100, colour: false };

    #[test]
    fn a_measurement_as_text() {
        let text = text::text(&envelope().document(), PLAIN);
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        insta::assert_snapshot!(text);
    }

    #[test]
    fn a_measurement_as_a_page() {
        let page = html::page(&envelope().document()).expect("a page");
        assert!(page.contains("CPU 2: NET_RX 38 %") && page.contains("openssl (812)"), "{page}");
        assert_eq!(page.matches("class=\"top\"").count(), 2, "a tick for each process that top knows");
        let page = html::page(&hostile().document()).expect("a page");
        assert!(!page.contains("<script"), "{page}");
    }

    #[test]
    fn two_measurements_compared() {
        let (one, mut other) = (cost(), cost());
        for cpu in &mut other.cpus {
            cpu.net_rx_ns /= 2;
        }
        let names = ["kernel.json".to_owned(), "xdp.json".to_owned()];
        let comparison = CostComparison::new(
            names,
            [None, Some("6.18.0".to_owned())],
            [&one, &other],
            Known::unknown("too short"),
        );
        let keys: Vec<&str> = comparison.figures.iter().map(|figure| figure.key.as_str()).collect();
        assert_eq!(keys, COMPARISON_ROWS.map(|(key, ..)| key));
        let envelope = Envelope::new(HostSummary::default(), None, comparison);
        insta::assert_snapshot!(text::text(&envelope.document(), PLAIN));
    }

    #[test]
    fn other_documents_are_refused_by_their_schema() {
        for (text, words) in [
            (r#"{"schema": "linerate.load/1"}"#, "its schema is linerate.load/1"),
            ("{}", "it names no schema"),
            ("", "EOF"),
            (r#"{"schema": "linerate.cost/2"}"#, "missing field"),
        ] {
            let error = Envelope::<CostResult>::parse(text).expect_err(text);
            assert!(format!("{error:#}").contains(words), "{error:#}");
        }
        let written = serde_json::to_string(&envelope()).expect("JSON");
        let read = Envelope::<CostResult>::parse(&written).expect("read");
        assert_eq!(read.result.cost, envelope().result.cost);
    }
}
