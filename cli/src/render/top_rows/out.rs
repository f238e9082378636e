//! Transmit queues, a block an interface.

use linerate_host::live::picture::{FindingSite, InterfaceSnapshot, TransmitQueueSnapshot};
use linerate_host::live::{HistoryItem, HistoryMetric, Snapshot};

use super::{empty, figure, head, lost, mark, rate, small};
use crate::render::format;
use crate::render::style::TextTone;
use crate::render::top_panel::{PanelCell, PanelRow, PanelStage, RowBlock, TopPanel};

pub(super) fn panel(picture: &Snapshot) -> TopPanel {
    let heads = vec![head("pps", 0), head("drops", 0), head("waiting", 2), head("XPS", 1)];
    if picture.interfaces.is_empty() {
        return empty(PanelStage::Out, heads, "no interface to look at");
    }
    let blocks = picture.interfaces.iter().map(|interface| block(picture, interface)).collect();
    TopPanel { stage: PanelStage::Out, heads, blocks, unknown: None, unfiltered: false }
}

fn block(picture: &Snapshot, interface: &InterfaceSnapshot) -> RowBlock {
    let name = &interface.interface;
    let mut facts: Vec<String> = Vec::new();
    if interface.gone_seconds.is_some() {
        facts.push("gone".to_owned());
    } else {
        facts.extend(interface.tx_packets_per_second.map(|rate| format!("{} pps", format::rate(rate))));
        let drops = interface.tx_drops_per_second.filter(|drops| *drops > 0.0);
        facts.extend(drops.map(|drops| format!("{} drops/s", small(drops))));
        let root = interface.discipline.value().and_then(Option::as_ref);
        facts.extend(root.map(|root| root.kind.clone()));
        let requeues = root.and_then(|root| root.requeues_per_second).filter(|rate| *rate > 0.0);
        facts.extend(requeues.map(|rate| format!("{} requeues/s", small(rate))));
        facts.extend(interface.transmit.why().map(|_| "queues unknown".to_owned()));
    }
    let queues = interface.transmit.value().into_iter().flatten();
    RowBlock {
        item: Some(HistoryItem::Interface(name.clone())),
        title: name.clone(),
        facts: facts.join(" · "),
        mark: None,
        gone: interface.gone_seconds.is_some(),
        rows: queues.map(|queue| row(picture, interface, queue)).collect(),
        folded: None,
    }
}

fn row(picture: &Snapshot, interface: &InterfaceSnapshot, queue: &TransmitQueueSnapshot) -> PanelRow {
    let name = &interface.interface;
    PanelRow {
        item: HistoryItem::Transmit(name.clone(), queue.queue),
        name: format!("tx-{}", queue.queue),
        words: format!("{name} tx-{}", queue.queue),
        mark: mark(picture, &FindingSite::Transmit(name.clone(), queue.queue)),
        gone: interface.gone_seconds.is_some(),
        idle: queue.packets_per_second.is_none_or(|rate| rate < 0.5)
            && queue.drops_per_second.is_none_or(|rate| rate == 0.0),
        cells: vec![
            rate(queue.packets_per_second),
            lost(queue.drops_per_second),
            match queue.backlog_packets {
                None => PanelCell::unknown(),
                Some(0) => PanelCell::new("0", TextTone::Faint),
                Some(waiting) => PanelCell::new(waiting.to_string(), TextTone::Warn),
            },
            match queue.xps.as_deref() {
                None => PanelCell::unknown(),
                Some("") => PanelCell::new("off", TextTone::Faint),
                Some(cpus) => PanelCell::new(cpus, TextTone::Plain),
            },
        ],
        figures: [figure(queue.packets_per_second), figure(queue.drops_per_second)],
        metric: HistoryMetric::Packets,
    }
}
