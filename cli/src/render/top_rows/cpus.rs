//! CPUs, a block a NUMA node.

use std::collections::BTreeMap;

use linerate_host::live::picture::{CpuSnapshot, FindingSite};
use linerate_host::live::{HistoryItem, HistoryMetric, Snapshot};

use super::{empty, figure, gauge, head, lost, mark, rate, share};
use crate::render::style::TextTone;
use crate::render::top_panel::{PanelCell, PanelHead, PanelRow, PanelStage, RowBlock, TopPanel};

/// From such a share of time in softirqs on a CPU is worth a look, and near the end of what it can do.
const WARN: f64 = 0.6;
const BAD: f64 = 0.9;

pub(super) fn panel(picture: &Snapshot) -> TopPanel {
    let heads = vec![
        PanelHead { title: "", rank: 3, left: true },
        head("softirq", 0),
        head("busy", 4),
        head("pps", 0),
        head("share", 2),
        head("irq/s", 4),
        head("RPS/s", 3),
        head("drops", 0),
        head("sqz", 1),
    ];
    let cpus = match (picture.cpus.value(), picture.cpus.why()) {
        (Some(cpus), _) => cpus,
        (None, why) => return empty(PanelStage::Cpus, heads, why.unwrap_or_default()),
    };
    let mut nodes: BTreeMap<Option<u32>, Vec<&CpuSnapshot>> = BTreeMap::new();
    for cpu in cpus {
        nodes.entry(cpu.node).or_default().push(cpu);
    }
    let blocks = nodes.into_iter().map(|(node, cpus)| block(picture, node, &cpus)).collect();
    TopPanel { stage: PanelStage::Cpus, heads, blocks, unknown: None, unfiltered: false }
}

fn block(picture: &Snapshot, node: Option<u32>, cpus: &[&CpuSnapshot]) -> RowBlock {
    let softirq: f64 = cpus.iter().filter_map(|cpu| cpu.softirq_share).sum();
    let of = crate::render::top_text::plural(cpus.len(), "CPU");
    let facts = match cpus.iter().any(|cpu| cpu.softirq_share.is_some()) {
        true => format!("{of} · softirq {softirq:.2}"),
        false => of,
    };
    RowBlock {
        item: None,
        title: node.map_or_else(|| "node not known".to_owned(), |node| format!("node {node}")),
        facts,
        mark: None,
        gone: false,
        rows: cpus.iter().map(|cpu| row(picture, cpu)).collect(),
        folded: None,
    }
}

fn row(picture: &Snapshot, cpu: &CpuSnapshot) -> PanelRow {
    let quiet = |rate: Option<f64>, least: f64| rate.is_none_or(|rate| rate < least);
    let steal = cpu.steal_share.filter(|steal| *steal >= 0.01);
    let squeezes = match cpu.squeezes_per_second {
        Some(rate) if rate > 0.0 => PanelCell::new(super::small(rate).replace(' ', ""), TextTone::Warn),
        other => rate(other),
    };
    PanelRow {
        item: HistoryItem::Cpu(cpu.cpu),
        name: cpu.cpu.to_string(),
        words: format!("cpu {}", cpu.cpu),
        mark: mark(picture, &FindingSite::Cpu(cpu.cpu)),
        gone: false,
        idle: quiet(cpu.packets_per_second, 10.0)
            && quiet(cpu.drops_per_second, f64::MIN_POSITIVE)
            && quiet(cpu.softirq_share, 0.02)
            && steal.is_none(),
        cells: vec![
            gauge(cpu.softirq_share, WARN, BAD),
            share(cpu.softirq_share, WARN, BAD),
            share(cpu.busy_share, 2.0, 2.0),
            rate(cpu.packets_per_second),
            share(cpu.packets_share, 2.0, 2.0),
            rate(cpu.interrupts_per_second),
            rate(cpu.rps_per_second),
            lost(cpu.drops_per_second),
            squeezes,
        ],
        figures: [figure(cpu.softirq_share), figure(cpu.packets_per_second)],
        metric: HistoryMetric::Softirq,
    }
}
