//! Receive queues, a block an interface.

use linerate_host::live::picture::{FindingSite, InterfaceSnapshot, ReceiveQueue};
use linerate_host::live::{HistoryItem, HistoryMetric, Snapshot};

use super::{empty, figure, head, lost, mark, rate};
use crate::render::format;
use crate::render::style::TextTone;
use crate::render::top_panel::{PanelCell, PanelRow, PanelStage, RowBlock, TopPanel};

pub(super) fn panel(picture: &Snapshot) -> TopPanel {
    let heads = vec![head("pps", 0), head("drops", 0), head("irq/s", 2), head("CPU", 1), head("RPS", 3)];
    if picture.interfaces.is_empty() {
        return empty(PanelStage::Queues, heads, "no interface to look at: --interface names one");
    }
    let blocks = picture.interfaces.iter().map(|interface| block(picture, interface)).collect();
    TopPanel { stage: PanelStage::Queues, heads, blocks, unknown: None, unfiltered: false }
}

fn block(picture: &Snapshot, interface: &InterfaceSnapshot) -> RowBlock {
    let name = &interface.interface;
    let mut facts: Vec<String> = Vec::new();
    if interface.gone_seconds.is_some() {
        facts.push("gone".to_owned());
    } else {
        facts.extend(interface.rx_packets_per_second.map(|rate| format!("{} pps", format::rate(rate))));
        let drops = interface.rx_drops_per_second.filter(|drops| *drops > 0.0);
        facts.extend(drops.map(|drops| format!("{} drops/s", super::small(drops))));
        if interface.receive.value().is_some() && interface.receive_told_by.is_none() {
            facts.push("queues not counted".to_owned());
        }
        facts.extend(interface.receive.why().map(|_| "queues unknown".to_owned()));
        facts.extend(interface.driver.clone());
        facts.extend(interface.speed_bits_per_second.map(format::link));
        facts.extend(interface.node.filter(|_| picture.host.node_count() > 1).map(|n| format!("node {n}")));
    }
    let queues = interface.receive.value().into_iter().flatten();
    RowBlock {
        item: Some(HistoryItem::Interface(name.clone())),
        title: name.clone(),
        facts: facts.join(" · "),
        mark: mark(picture, &FindingSite::Interface(name.clone())),
        gone: interface.gone_seconds.is_some(),
        rows: queues.map(|queue| row(picture, interface, queue)).collect(),
        folded: None,
    }
}

fn row(picture: &Snapshot, interface: &InterfaceSnapshot, queue: &ReceiveQueue) -> PanelRow {
    let name = &interface.interface;
    let tone = if queue.far_node { TextTone::Warn } else { TextTone::Plain };
    let drops = queue.drops_per_second;
    PanelRow {
        item: HistoryItem::Receive(name.clone(), queue.queue),
        name: format!("rx-{}", queue.queue),
        words: format!("{name} rx-{}", queue.queue),
        mark: mark(picture, &FindingSite::Receive(name.clone(), queue.queue)),
        gone: interface.gone_seconds.is_some(),
        idle: queue.packets_per_second.is_none_or(|rate| rate < 0.5) && drops.is_none_or(|rate| rate == 0.0),
        cells: vec![
            rate(queue.packets_per_second),
            lost(drops),
            rate(queue.interrupts_per_second),
            queue.cpu.map_or_else(PanelCell::unknown, |cpu| PanelCell::new(cpu.to_string(), tone)),
            match queue.rps.as_deref() {
                None => PanelCell::unknown(),
                Some("") => PanelCell::new("off", TextTone::Faint),
                Some(cpus) => PanelCell::new(cpus, TextTone::Plain),
            },
        ],
        figures: [figure(queue.packets_per_second), figure(drops)],
        metric: HistoryMetric::Packets,
    }
}
