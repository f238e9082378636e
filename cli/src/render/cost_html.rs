//! What packets cost as one self-contained page: no script, nothing fetched, light and dark.

use anyhow::Result;
use askama::Template;
use linerate_trace::cost::{CostReport, CpuCost};

use super::cost_summary::{
    TopVictim, accounted, accounted_share, packets_share, share, top_victims, verdict, wall_ns,
};
use super::cost_text::{arrival_rate, calibration_text, name, net_rx_runs, own, per_packet_cost, untraced};
use super::format;
use super::page::{self, FactList, FigureTile, HtmlTable, PageHead, PageNote, PageResult, ResultPosition};
use super::style::non_breaking;
use crate::command::cost::{CostDocument, VictimGrouping};

/// CPUs that are drawn, those that packets took most of.
const MOST_CPUS: usize = 64;

#[derive(Template)]
#[template(path = "cost.html")]
struct CostPageBody<'a> {
    place: &'a ResultPosition,
    tiles: Vec<FigureTile>,
    notes: Vec<PageNote>,
    parts_of_time: [CpuTimeCategory; 6],
    cpus: Vec<StackedBar>,
    more_cpus: Option<String>,
    whom: &'static str,
    victims: Vec<StackedBar>,
    tables: Vec<HtmlTable>,
    facts: FactList,
}

/// A part of a CPU's time.
#[derive(Clone, Copy)]
struct CpuTimeCategory {
    name: &'static str,
    class: &'static str,
    of: fn(&CpuCost) -> u64,
}

/// A bar of pieces beside one another, a thousand wide.
struct StackedBar {
    name: String,
    value: String,
    told: String,
    pieces: Vec<BarPiece>,
    /// Where another figure of the same is.
    mark: Option<String>,
}

struct BarPiece {
    class: &'static str,
    x: String,
    width: String,
}

const PARTS: [CpuTimeCategory; 6] = [
    CpuTimeCategory { name: "NET_RX", class: "rx", of: |cpu| cpu.net_rx_ns },
    CpuTimeCategory { name: "NET_TX", class: "tx", of: |cpu| cpu.net_tx_ns },
    CpuTimeCategory { name: "interrupts for packets", class: "irq", of: |cpu| cpu.nic_irq_ns },
    CpuTimeCategory {
        name: "other softirqs and interrupts",
        class: "other",
        of: |cpu| cpu.other_softirq_ns + cpu.other_irq_ns,
    },
    CpuTimeCategory { name: "processes", class: "tasks", of: |cpu| cpu.tasks_ns },
    CpuTimeCategory { name: "idle", class: "idle", of: |cpu| cpu.idle_ns },
];

/// The page.
///
/// # Errors
/// As [`part`].
pub(crate) fn cost(document: &CostDocument) -> Result<String> {
    page::single_result_page(|place| part(document, place))
}

/// The result in a page.
///
/// # Errors
/// Only if formatting fails, which no document is known to cause.
pub(crate) fn part(document: &CostDocument, place: &ResultPosition) -> Result<PageResult> {
    let cost = &document.cost;
    let losers = top_victims(cost, document.by);
    let top = usize::from(document.top);
    let shown = cost.cpus.len().min(MOST_CPUS);
    let more = cost.cpus.len() - shown;
    let body = CostPageBody {
        place,
        tiles: tiles(cost),
        notes: std::iter::once(per_packet_cost(cost))
            .chain(untraced(cost))
            .chain(document.calibrations.iter().map(calibration_text))
            .chain(cost.notes.iter().cloned())
            .map(PageNote::new)
            .collect(),
        parts_of_time: PARTS,
        cpus: cpus(cost),
        more_cpus: (more > 0).then(|| format!("and {more} CPUs that packets took less of")),
        whom: match document.by {
            VictimGrouping::Process => "What processes had, as shares of one CPU",
            VictimGrouping::Thread => "What threads had, as shares of one CPU",
            VictimGrouping::Cgroup => "What control groups had, as shares of one CPU",
        },
        victims: victims(cost, losers.get(..top.min(losers.len())).unwrap_or_default()),
        tables: vec![devices(cost), each_cpu(cost)],
        facts: facts(document),
    };
    page::part(head(document), &body)
}

fn head(document: &CostDocument) -> PageHead {
    let host = &document.host;
    PageHead {
        schema: document.schema.clone(),
        version: document.version.clone(),
        title: "What packets cost",
        verdict: non_breaking(&verdict(&document.cost, document.by)),
        mark: None,
        host: page::host(host.name.as_deref(), host.kernel.as_deref(), host.cpu_model.as_deref(), host.cpus),
        time: page::time(document.started_unix_seconds),
        unix_seconds: document.started_unix_seconds,
        about: non_breaking(&format!("looked at for {:.1} s", document.cost.seconds)),
        command: format::command_line(&document.argv),
    }
}

fn tiles(cost: &CostReport) -> Vec<FigureTile> {
    let all = cost.all_cpus();
    let ns = all.ns_a_packet().map_or_else(|| format::UNKNOWN.to_owned(), format::significant);
    let own = cost.own.share.value().map_or_else(|| format::UNKNOWN.to_owned(), |own| format::percent(*own));
    let of_all = format::percent(share(all.packets_ns(), all.elapsed_ns as f64));
    vec![
        FigureTile::new(of_all, "", "of the CPUs looked at, taken by packets"),
        FigureTile::new(arrival_rate(cost, &all), "/s", "packets, counted where they enter the host"),
        FigureTile::new(ns, "ns", "a packet, with interrupts"),
        FigureTile::new(own, "", "of these CPUs, taken by looking"),
    ]
}

fn cpus(cost: &CostReport) -> Vec<StackedBar> {
    let mut cpus: Vec<&CpuCost> = cost.cpus.iter().collect();
    cpus.sort_by_key(|cpu| (std::cmp::Reverse(cpu.packets_ns()), cpu.cpu));
    cpus.truncate(MOST_CPUS);
    cpus.sort_by_key(|cpu| cpu.cpu);
    cpus.into_iter().map(cpu_bar).collect()
}

fn cpu_bar(cpu: &CpuCost) -> StackedBar {
    let whole = cpu.elapsed_ns as f64;
    let shares: Vec<_> = PARTS.iter().map(|part| (part, share((part.of)(cpu), whole))).collect();
    let told: Vec<String> =
        shares.iter().map(|(part, share)| format!("{} {}", part.name, format::percent(*share))).collect();
    StackedBar {
        name: format!("CPU {}", cpu.cpu),
        value: format!("{} packets", format::percent(packets_share(cpu))),
        told: format!("CPU {}: {}", cpu.cpu, told.join(", ")),
        pieces: pieces(shares.iter().map(|(part, share)| (part.class, *share))),
        mark: None,
    }
}

fn victims(cost: &CostReport, losers: &[TopVictim]) -> Vec<StackedBar> {
    // Of several threads more than one CPU's time may be there: the longest bar is the scale.
    let longest = losers.iter().map(|loser| loser.group.on_cpu_ns.max(loser.group.accounted_ns)).max();
    let scale = wall_ns(cost).max(longest.unwrap_or(0) as f64);
    losers.iter().map(|loser| victim_bar(loser, wall_ns(cost), scale)).collect()
}

fn victim_bar(loser: &TopVictim, wall: f64, scale: f64) -> StackedBar {
    let group = &loser.group;
    let of = |part: u64| format::percent(share(part, wall));
    let says = accounted_share(group, wall);
    let parts = [("tasks", group.had_ns()), ("rx", group.lost_ns()), ("other", group.taken_other_ns)];
    let (taken, had) = (of(group.lost_ns()), of(group.had_ns()));
    StackedBar {
        name: loser.name.clone(),
        value: format!("top {says}, had {had}, lost {taken}"),
        told: format!("{}: top says {says}, packets took {taken}, it had {had}", loser.name),
        pieces: pieces(parts.map(|(class, part)| (class, share(part, scale)))),
        mark: accounted(group).map(|told| format!("{:.1}", share(told, scale).min(1.0) * 1e3)),
    }
}

fn pieces(shares: impl IntoIterator<Item = (&'static str, f64)>) -> Vec<BarPiece> {
    let mut x = 0.0;
    let mut pieces = Vec::new();
    for (class, share) in shares {
        let width = (share * 1e3).clamp(0.0, 1e3 - x);
        pieces.push(BarPiece { class, x: format!("{x:.1}"), width: format!("{width:.1}") });
        x += width;
    }
    pieces
}

fn devices(cost: &CostReport) -> HtmlTable {
    let each = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), format::significant);
    let rows = cost.devices.iter().map(|device| {
        vec![
            name(device),
            format::rate(device.packets as f64 / cost.seconds),
            format::rate(device.polls as f64 / cost.seconds),
            each(device.packets_a_poll()),
            each(device.ns_a_packet()),
            format::grouped(device.budget_exhausted),
            format::percent(share(device.taken_ns, wall_ns(cost))),
        ]
    });
    HtmlTable {
        heading: "Devices",
        columns: vec![
            "device",
            "packets/s",
            "polls/s",
            "packets a poll",
            "ns each",
            "polls that used up their budget",
            "of a CPU",
        ],
        rows: rows.collect(),
        below: net_rx_runs(cost),
        ..HtmlTable::default()
    }
}

fn each_cpu(cost: &CostReport) -> HtmlTable {
    let row = |cpu: &CpuCost| {
        let of = |part: u64| format::percent(share(part, cpu.elapsed_ns as f64));
        vec![
            cpu.cpu.to_string(),
            of(cpu.net_rx_ns),
            of(cpu.net_tx_ns),
            of(cpu.nic_irq_ns),
            of(cpu.in_ksoftirqd_ns),
            of(cpu.in_threads_ns),
            of(cpu.other_softirq_ns + cpu.other_irq_ns),
            of(cpu.tasks_ns),
            of(cpu.idle_ns),
            cpu.steal_ns.value().map_or_else(|| format::UNKNOWN.to_owned(), |steal| of(*steal)),
            arrival_rate(cost, cpu),
        ]
    };
    HtmlTable {
        heading: "CPUs",
        columns: vec![
            "CPU",
            "NET_RX",
            "NET_TX",
            "interrupts for packets",
            "of these in ksoftirqd",
            "of these in threads of NAPI",
            "other softirqs and interrupts",
            "processes",
            "idle",
            "taken by the hypervisor",
            "packets/s",
        ],
        rows: cost.cpus.iter().map(row).collect(),
        ..HtmlTable::default()
    }
}

fn facts(document: &CostDocument) -> FactList {
    let unknown = || "unknown".to_owned();
    let host = &document.host;
    let hypervisor = match host.hypervisor {
        Some(true) => "yes: what it takes is in all figures".to_owned(),
        Some(false) => "no".to_owned(),
        None => unknown(),
    };
    vec![
        ("kernel", host.kernel.clone().unwrap_or_else(unknown)),
        ("CPU", host.cpu_model.clone().unwrap_or_else(unknown)),
        ("CPUs online", host.cpus.map_or_else(unknown, |cpus| cpus.to_string())),
        ("hypervisor", hypervisor),
        ("looking itself", own(&document.cost)),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::made_up_cost::{document, hostile};
    use super::*;

    #[test]
    fn the_page_stands_alone_and_draws_every_cpu() {
        let page = cost(&document()).expect("a page");
        assert!(page.contains("CPU 2: NET_RX 38 %") && page.contains("openssl (812)"), "{page}");
        for foreign in ["<script", "http://", "https://", "@import", "src="] {
            assert!(!page.contains(foreign), "{foreign}");
        }
        assert_eq!(page.matches("class=\"top\"").count(), 2, "a mark for each process that top knows");
    }

    #[test]
    fn no_text_breaks_out_of_the_page() {
        let page = cost(&hostile()).expect("a page");
        assert!(!page.contains("<script"));
        assert_eq!(page.matches("</title>").count(), 1 + page.matches("<title>").count() - 1);
    }

    #[test]
    fn bars_never_run_over_their_end() {
        let all = pieces([("rx", 0.7), ("tx", 0.6), ("idle", 0.1)]);
        let widths: Vec<&str> = all.iter().map(|piece| piece.width.as_str()).collect();
        assert_eq!(widths, ["700.0", "300.0", "0.0"]);
    }
}
