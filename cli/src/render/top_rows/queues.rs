//! Receive queues, a block an interface.

use linerate_host::live::picture::{Interface, Place, ReceiveQueue};
use linerate_host::live::{Item, Metric, Picture};

use super::{empty, figure, head, lost, mark, rate};
use crate::render::format;
use crate::render::style::Tone;
use crate::render::top_panel::{Block, Cell, Panel, Row, Stage};

pub(super) fn panel(picture: &Picture) -> Panel {
    let heads = vec![head("pps", 0), head("drops", 0), head("irq/s", 2), head("CPU", 1), head("RPS", 3)];
    if picture.interfaces.is_empty() {
        return empty(Stage::Queues, heads, "no interface to look at: --interface names one");
    }
    let blocks = picture.interfaces.iter().map(|interface| block(picture, interface)).collect();
    Panel { stage: Stage::Queues, heads, blocks, unknown: None, unfiltered: false }
}

fn block(picture: &Picture, interface: &Interface) -> Block {
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
    Block {
        item: Some(Item::Interface(name.clone())),
        title: name.clone(),
        facts: facts.join(" · "),
        mark: mark(picture, &Place::Interface(name.clone())),
        gone: interface.gone_seconds.is_some(),
        rows: queues.map(|queue| row(picture, interface, queue)).collect(),
        folded: None,
    }
}

fn row(picture: &Picture, interface: &Interface, queue: &ReceiveQueue) -> Row {
    let name = &interface.interface;
    let tone = if queue.far_node { Tone::Warn } else { Tone::Plain };
    let drops = queue.drops_per_second;
    Row {
        item: Item::Receive(name.clone(), queue.queue),
        name: format!("rx-{}", queue.queue),
        words: format!("{name} rx-{}", queue.queue),
        mark: mark(picture, &Place::Receive(name.clone(), queue.queue)),
        gone: interface.gone_seconds.is_some(),
        idle: queue.packets_per_second.is_none_or(|rate| rate < 0.5) && drops.is_none_or(|rate| rate == 0.0),
        cells: vec![
            rate(queue.packets_per_second),
            lost(drops),
            rate(queue.interrupts_per_second),
            queue.cpu.map_or_else(Cell::untold, |cpu| Cell::new(cpu.to_string(), tone)),
            match queue.rps.as_deref() {
                None => Cell::untold(),
                Some("") => Cell::new("off", Tone::Faint),
                Some(cpus) => Cell::new(cpus, Tone::Plain),
            },
        ],
        figures: [figure(queue.packets_per_second), figure(drops)],
        metric: Metric::Packets,
    }
}
