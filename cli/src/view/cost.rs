//! `linerate cost`.

mod words;

use linerate_host::Known;
use linerate_trace::cost::{
    CostComparison, CostReport, CostResult, CostVictim, CpuCost, VictimGroup, VictimGrouping,
};

use crate::document::{
    Audience, BarChart, Block, Document, Fact, Note, Section, SegmentFill, StackedBar, Table, Tile,
};
use crate::envelope::{CommandResult, Envelope};
use crate::origin::HostSummary;
use crate::render::column::cut;
use crate::render::format::{UNKNOWN, grouped, known_text, percent, rate, ratio, significant};
use crate::view::comparison::{figures, mark};
pub(crate) use words::LIVE_HEADER;
pub(crate) use words::live_line;
use words::{
    accounted_share, arrival_rate, calibration_text, device_name, net_rx_runs, overhead_text, packets_share,
    per_packet_cost, share, untraced_text, verdict, wall_ns,
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
        let mut document = envelope.new_document("What packets cost", verdict(cost, result.by));
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
    let (grouping, max_victims) = (result.by, usize::from(result.top));
    let victims = cost.top_victims(grouping);
    let group = match grouping {
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
            .with_for(Audience::Page, victim_bars(cost, victims.get(..max_victims).unwrap_or(&victims)))
            .with(victim_table(cost, &victims, max_victims)),
        Section::new("Paths").with(paths(cost)),
        Section::new("Devices").with(devices(cost)),
        Section::default()
            .with(Block::faint(untraced_text(cost).unwrap_or_default()))
            .with_for(Audience::Text, Block::faint(overhead_text(cost))),
    ]
}

fn tiles(cost: &CostReport) -> Vec<Tile> {
    let total = cost.all_cpus();
    let ns_per_packet = known_text(total.ns_a_packet(), significant);
    let own_share = known_text(cost.own.share.value(), |share| percent(*share));
    vec![
        Tile::new(
            percent(share(total.packets_ns(), total.elapsed_ns as f64)),
            "",
            "of these CPUs, for packets",
        ),
        Tile::new(arrival_rate(cost, &total), "/s", "packets, counted where they enter the host"),
        Tile::new(ns_per_packet, "ns", "per packet, with interrupts"),
        Tile::new(own_share, "", "of these CPUs, for this measurement"),
    ]
}

/// CPUs in order of their number; many CPUs in order of the time that packets took, the longest
/// first.
fn sorted_cpus(cost: &CostReport, max_cpus: usize) -> Vec<&CpuCost> {
    let mut cpus: Vec<&CpuCost> = cost.cpus.iter().collect();
    if cpus.len() > max_cpus {
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
    let hidden_cpus = cost.cpus.len().saturating_sub(MOST_DRAWN_CPUS);
    BarChart {
        legend: PARTS.iter().map(|(fill, name, _)| (*fill, *name)).collect(),
        bars: bars.collect(),
        caption: if hidden_cpus > 0 {
            format!("and {hidden_cpus} CPUs with less packet time")
        } else {
            String::new()
        },
        ..BarChart::default()
    }
}

fn cpus(cost: &CostReport) -> Table {
    let rows = sorted_cpus(cost, MOST_CPUS).into_iter().map(|cpu| {
        let share_of_cpu = |part: u64| percent(share(part, cpu.elapsed_ns as f64));
        [
            cpu.cpu.to_string(),
            share_of_cpu(cpu.packets_ns()),
            share_of_cpu(cpu.net_rx_ns),
            share_of_cpu(cpu.net_tx_ns),
            share_of_cpu(cpu.nic_irq_ns),
            share_of_cpu(cpu.in_ksoftirqd_ns + cpu.in_threads_ns),
            share_of_cpu(cpu.other_softirq_ns + cpu.other_irq_ns),
            share_of_cpu(cpu.tasks_ns),
            share_of_cpu(cpu.idle_ns),
            known_text(cpu.steal_ns.value(), |steal| share_of_cpu(*steal)),
            arrival_rate(cost, cpu),
        ]
    });
    Table::new(
        ">CPU | >packets | >NET_RX | >NET_TX | >NIC irq | >ksoftirqd | >other irq | >tasks | \
        >idle | >steal | >packets/s",
    )
    .with_rows(rows)
    .only_for(Audience::Page, &["steal"])
    .with_text_limit(MOST_CPUS, "CPUs with less packet time")
}

fn victim_bars(cost: &CostReport, victims: &[VictimGroup<'_>]) -> BarChart {
    let wall_time = wall_ns(cost);
    // A group of several threads can have more than the time of one CPU: the longest bar is the scale.
    let longest = victims
        .iter()
        .map(|group| group.sum(|thread| thread.on_cpu_ns).max(group.accounted().unwrap_or_default()));
    let scale = wall_time.max(longest.max().unwrap_or(0) as f64);
    let bars = victims.iter().map(|group| {
        let (had_ns, lost_ns) = (group.had_ns(), group.sum(CostVictim::lost_ns));
        let share_of_wall = |part: u64| percent(share(part, wall_time));
        let (top_share, own_share, lost_share) =
            (accounted_share(group, wall_time), share_of_wall(had_ns), share_of_wall(lost_ns));
        let segments = [
            (SegmentFill::Tasks, had_ns),
            (SegmentFill::Receive, lost_ns),
            (SegmentFill::Other, group.sum(|thread| thread.taken_other_ns)),
        ];
        StackedBar {
            name: group.name.clone(),
            value: format!("top shows {top_share}, had {own_share}, lost {lost_share}"),
            description: format!(
                "{}: top shows {top_share}, packets used {lost_share}, it had {own_share}",
                group.name
            ),
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

fn victim_table(cost: &CostReport, victims: &[VictimGroup<'_>], max_victims: usize) -> Table {
    let wall_time = wall_ns(cost);
    let rows = victims.iter().map(|group| {
        let share_of = |figure: fn(&CostVictim) -> u64| percent(share(group.sum(figure), wall_time));
        [
            group.name.clone(),
            accounted_share(group, wall_time),
            share_of(|thread| thread.on_cpu_ns),
            share_of(|thread| thread.taken_ns),
            share_of(|thread| thread.displaced_ns),
            percent(share(group.had_ns(), wall_time)),
            share_of(|thread| thread.taken_in_own_calls_ns.value().copied().unwrap_or_default()),
        ]
    });
    Table::new("name | >top shows | >on CPU | >taken | >displaced | >had | >in own calls")
        .with_rows(rows)
        .with_text_width("name", LONGEST_NAME)
        .with_text_limit(max_victims, "that lost less")
}

/// Empty unless paths were requested. One row has the time that belongs to no path, in its place by
/// time, because the text has only the first rows.
fn paths(cost: &CostReport) -> Table {
    let Some(paths) = &cost.paths else { return Table::default() };
    let path_ns: u64 = paths.iter().map(|path| path.taken_ns + path.own_ns).sum();
    let mut rows: Vec<[String; 7]> = Vec::new();
    rows.extend(paths.iter().map(|path| {
        [
            path.ingress.clone(),
            path.egress.clone().unwrap_or_else(|| "this host".to_owned()),
            path.owner.clone().unwrap_or_else(|| "-".to_owned()),
            if path.packets == 0 { "-".to_owned() } else { rate(path.packets as f64 / cost.seconds) },
            path.ns_a_packet().map_or_else(|| "-".to_owned(), significant),
            percent(share(path.taken_ns, wall_ns(cost))),
            if path.vhost_ns == 0 { "-".to_owned() } else { percent(share(path.vhost_ns, wall_ns(cost))) },
        ]
    }));
    let unattributed_ns = cost.all_cpus().packets_ns().saturating_sub(path_ns);
    let unattributed_row =
        ["(no path)", "", "-", "-", "-", &percent(share(unattributed_ns, wall_ns(cost))), "-"]
            .map(str::to_owned);
    let place = paths.partition_point(|path| path.taken_ns + path.vhost_ns >= unattributed_ns);
    rows.insert(place, unattributed_row);
    Table::new("in | out | of | >packets/s | >ns/packet | >of one CPU | >vhost")
        .with_rows(rows)
        .with_text_width("of", LONGEST_NAME)
        .with_text_limit(MOST_DEVICES, "with less packet time")
}

fn devices(cost: &CostReport) -> Table {
    let number_cell = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), significant);
    let rows = cost.devices.iter().map(|device| {
        [
            device_name(device),
            rate(device.packets as f64 / cost.seconds),
            rate(device.polls as f64 / cost.seconds),
            number_cell(device.packets_a_poll()),
            number_cell(device.ns_a_packet()),
            grouped(device.budget_exhausted),
            percent(share(device.taken_ns, wall_ns(cost))),
        ]
    });
    Table::new("name | >packets/s | >polls/s | >packets/poll | >ns/packet | >polls at budget | >of one CPU")
        .with_rows(rows)
        .with_text_width("name", LONGEST_NAME)
        .with_text_limit(MOST_DEVICES, "with less packet time")
        .with_caption(net_rx_runs(cost))
}

fn facts(host: &HostSummary, cost: &CostReport) -> Vec<Fact> {
    let unknown_text = || "unknown".to_owned();
    let hypervisor = match host.hypervisor {
        Some(true) => "yes; all figures include its time".to_owned(),
        Some(false) => "no".to_owned(),
        None => unknown_text(),
    };
    vec![
        Fact::new("kernel", host.kernel.clone().unwrap_or_else(unknown_text)),
        Fact::new("CPU", host.cpu_model.clone().unwrap_or_else(unknown_text)),
        Fact::new("CPUs online", host.cpus.map_or_else(unknown_text, |cpus| cpus.to_string())),
        Fact::new("hypervisor", hypervisor),
        Fact::new("this measurement", overhead_text(cost)),
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
        let names = names.map(|((name, kernel), label)| {
            let kernel = kernel.as_ref().map_or_else(String::new, |kernel| format!(", Linux {kernel}"));
            Fact::new(label, cut(&format!("{name}{kernel}"), 90))
        });
        let rows = COMPARISON_ROWS.iter().filter_map(|(key, row_title, to_text)| {
            let figure = comparison.figure(key)?;
            let [value_a, value_b] = figure.values.map(|value| known_text(value, to_text));
            Some([
                (*row_title).to_owned(),
                value_a,
                value_b,
                figure.ratio.map_or_else(|| "-".to_owned(), ratio),
            ])
        });
        let table = Table::new(" | >A | >B | >B by A").with_rows(rows);
        let verdict = comparison_verdict(comparison);
        let mut document = envelope.new_document("Comparison of packet costs", verdict);
        match &comparison.judged {
            Known::Value(judgement) => document.mark = Some(mark(judgement.verdict)),
            Known::Unknown { why } => document.notes.push(Note::new(format!("Not judged: {why}."))),
        }
        let judgement_table = comparison.judged.value().map(|judged| figures(&judged.figures));
        document.sections = vec![
            Section::new("Results").with(names.collect::<Vec<_>>()),
            Section::new("Figures").with(table),
            Section::new("Time per packet").with(judgement_table.unwrap_or_default()),
        ];
        document
    }
}

/// Compares the time per packet, because two measurements seldom have the same load.
fn comparison_verdict(comparison: &CostComparison) -> String {
    let figure = comparison.figure("packets_ns_a_packet").map(|figure| (figure.values, figure.ratio));
    match figure {
        Some(([Some(ns_a), Some(ns_b)], Some(ns_ratio))) => format!(
            "A packet took {} ns in A and {} ns in B: {}. Each packet counts once, where it enters the host \
             (counting point \"{}\").",
            significant(ns_a),
            significant(ns_b),
            ratio(ns_ratio),
            comparison.counting_point.value().map_or(UNKNOWN, String::as_str),
        ),
        _ => "The time per packet cannot be compared, because one of the two measured no packets.".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::cost_fixtures::{cost, envelope, hostile};
    use crate::render::style::TextStyle;
    use crate::render::{html, text};
    use linerate_trace::cost::PathCost;

    const PLAIN: TextStyle = TextStyle { width: 100, colour: false };

    #[test]
    fn text_of_a_measurement_fits_100_columns() {
        let text = text::text(&envelope().document(), PLAIN);
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        insta::assert_snapshot!(text);
    }

    #[test]
    fn time_of_no_path_is_in_the_text_next_to_many_paths() {
        let path = PathCost {
            ingress: "tap0".to_owned(),
            egress: None,
            network_namespace: 0,
            owner: None,
            packets: 1,
            taken_ns: 1_000,
            own_ns: 0,
            vhost_ns: 0,
        };
        let mut envelope = envelope();
        envelope.result.cost.paths = Some(vec![path; 15]);
        let text = text::text(&envelope.document(), PLAIN);
        assert!(text.contains("(no path)") && text.contains("with less packet time"), "{text}");
    }

    #[test]
    fn the_page_shows_cpus_and_victims_and_escapes_host_text() {
        let page = html::page(&envelope().document()).expect("a page");
        assert!(page.contains("CPU 2: NET_RX 38 %") && page.contains("openssl (812)"), "{page}");
        assert_eq!(page.matches("class=\"top\"").count(), 2, "a tick for each process that top shows");
        let page = html::page(&hostile().document()).expect("a page");
        assert!(!page.contains("<script"), "{page}");
    }

    #[test]
    fn the_comparison_has_every_figure_of_two_measurements() {
        let (kernel_cost, mut xdp_cost) = (cost(), cost());
        for cpu in &mut xdp_cost.cpus {
            cpu.net_rx_ns /= 2;
        }
        let names = ["kernel.json".to_owned(), "xdp.json".to_owned()];
        let comparison = CostComparison::new(
            names,
            [None, Some("6.18.0".to_owned())],
            [&kernel_cost, &xdp_cost],
            Known::unknown("too short"),
        );
        let keys: Vec<&str> = comparison.figures.iter().map(|figure| figure.key.as_str()).collect();
        assert_eq!(keys, COMPARISON_ROWS.map(|(key, ..)| key));
        let envelope = Envelope::new(HostSummary::default(), None, comparison);
        insta::assert_snapshot!(text::text(&envelope.document(), PLAIN));
    }
}
