//! Transmit queues, a block an interface.

use linerate_host::live::picture::{Interface, Place, TransmitQueue};
use linerate_host::live::{Item, Metric, Picture};

use super::{empty, figure, head, lost, mark, rate, small};
use crate::render::format;
use crate::render::style::Tone;
use crate::render::top_panel::{Block, Cell, Panel, Row, Stage};

pub(super) fn panel(picture: &Picture) -> Panel {
    let heads = vec![head("pps", 0), head("drops", 0), head("waiting", 2), head("XPS", 1)];
    if picture.interfaces.is_empty() {
        return empty(Stage::Out, heads, "no interface to look at");
    }
    let blocks = picture.interfaces.iter().map(|interface| block(picture, interface)).collect();
    Panel { stage: Stage::Out, heads, blocks, unknown: None, unfiltered: false }
}

fn block(picture: &Picture, interface: &Interface) -> Block {
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
    Block {
        item: Some(Item::Interface(name.clone())),
        title: name.clone(),
        facts: facts.join(" · "),
        mark: None,
        gone: interface.gone_seconds.is_some(),
        rows: queues.map(|queue| row(picture, interface, queue)).collect(),
        folded: None,
    }
}

fn row(picture: &Picture, interface: &Interface, queue: &TransmitQueue) -> Row {
    let name = &interface.interface;
    Row {
        item: Item::Transmit(name.clone(), queue.queue),
        name: format!("tx-{}", queue.queue),
        words: format!("{name} tx-{}", queue.queue),
        mark: mark(picture, &Place::Transmit(name.clone(), queue.queue)),
        gone: interface.gone_seconds.is_some(),
        idle: queue.packets_per_second.is_none_or(|rate| rate < 0.5)
            && queue.drops_per_second.is_none_or(|rate| rate == 0.0),
        cells: vec![
            rate(queue.packets_per_second),
            lost(queue.drops_per_second),
            match queue.backlog_packets {
                None => Cell::untold(),
                Some(0) => Cell::new("0", Tone::Faint),
                Some(waiting) => Cell::new(waiting.to_string(), Tone::Warn),
            },
            match queue.xps.as_deref() {
                None => Cell::untold(),
                Some("") => Cell::new("off", Tone::Faint),
                Some(cpus) => Cell::new(cpus, Tone::Plain),
            },
        ],
        figures: [figure(queue.packets_per_second), figure(queue.drops_per_second)],
        metric: Metric::Packets,
    }
}
