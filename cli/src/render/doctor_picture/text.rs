//! The picture on a terminal.

use linerate_host::CpuSet;

use super::{DrawnService, InterfacePaths, PathPicture, QueueLane, packets_per_second};
use crate::render::style::{TextStyle, TextTone, wrap};

const MOST_INTERFACES: usize = 4;
const MOST_SERVICES: usize = 6;
/// A list of CPUs longer than this says less than how many there are.
const LONGEST_LIST: usize = 16;
const ARROW: &str = " → ";

/// The picture; no line where nothing can be drawn.
pub(crate) fn lines(picture: &PathPicture, style: TextStyle) -> Vec<String> {
    let mut lines = Vec::new();
    for ways in picture.interfaces.iter().take(MOST_INTERFACES) {
        lines.extend(interface(ways, picture.service.as_ref(), style));
        lines.push(String::new());
    }
    if let more @ 1.. = picture.interfaces.len().saturating_sub(MOST_INTERFACES) {
        lines.push(
            style.paint(TextTone::Faint, &format!("and {more} more interfaces: --interface draws one")),
        );
        lines.push(String::new());
    }
    let online = picture.interfaces.first().map(|ways| ways.online.clone()).unwrap_or_default();
    if picture.service.is_none() && !picture.others.is_empty() {
        for service in picture.others.iter().take(MOST_SERVICES) {
            lines.push(cut(&service.line(&online), style.width));
        }
        let more = match picture.others.len().saturating_sub(MOST_SERVICES) {
            0 => String::new(),
            more => format!("and {more} more services; "),
        };
        lines.push(style.paint(TextTone::Faint, &format!("{more}--port draws the way to one")));
        lines.push(String::new());
    }
    lines
}

fn interface(ways: &InterfacePaths, service: Option<&DrawnService>, style: TextStyle) -> Vec<String> {
    let rates = ways.rates.map_or_else(String::new, |(receive, transmit)| {
        format!("; {} in, {} out", packets_per_second(receive), packets_per_second(transmit))
    });
    let facts = wrap(
        &format!("{}{rates}", ways.facts.join(", ")),
        style.width.saturating_sub(2 + ways.interface.len()),
    );
    let mut lines: Vec<String> = Vec::new();
    for line in facts {
        let name = if lines.is_empty() { ways.interface.as_str() } else { "" };
        let name = format!("{name:<width$}", width = ways.interface.len());
        lines.push(format!("{}  {line}", style.paint(TextTone::Strong, &name)));
    }
    if let Some(service) = service {
        let processes = if service.processes.is_empty() { "a process unknown" } else { &service.processes };
        lines.push(cut(&format!("to {} of {processes}", service.name), style.width));
    }
    let lanes = ways.lanes();
    let rows: Vec<(Option<u32>, Vec<String>)> =
        lanes.iter().map(|lane| (lane.node, cells(ways, lane, service))).collect();
    let widths = widths(rows.iter().map(|(_, cells)| cells));
    for (index, (node, cpus)) in ways.nodes.iter().enumerate() {
        let corner = if index == 0 { "┌" } else { "├" };
        lines.push(format!("{corner} {}", block(ways, *node, cpus, style)));
        let inside: Vec<_> = rows.iter().filter(|(of, _)| node.is_some() && of == node).collect();
        if inside.is_empty() && node.is_some() {
            lines.push(format!(
                "│ {}",
                style.paint(TextTone::Faint, "no receive queue's interrupt comes here")
            ));
        }
        lines.extend(inside.iter().flat_map(|(_, cells)| row(cells, &widths, style)));
    }
    // What belongs to no node, or to several.
    lines.extend(
        rows.iter().filter(|(node, _)| node.is_none()).flat_map(|(_, cells)| row(cells, &widths, style)),
    );
    lines.push("└".to_owned());
    lines
}

fn block(ways: &InterfacePaths, node: Option<u32>, cpus: &CpuSet, style: TextStyle) -> String {
    let name = match node {
        Some(node) => format!("node {node}"),
        None => "this host".to_owned(),
    };
    let home =
        if node.is_some() && node == ways.home && ways.nodes.len() > 1 { ", with the NIC" } else { "" };
    style.paint(TextTone::Strong, &format!("{name}: CPU {cpus}{home}"))
}

/// What a lane passes, in order.
fn cells(ways: &InterfacePaths, lane: &QueueLane, service: Option<&DrawnService>) -> Vec<String> {
    let rate = lane.rate.map_or_else(String::new, |rate| format!(" ({})", packets_per_second(rate)));
    let mut cells = vec![format!("rx {}{rate}", lane.queues)];
    cells.push(match &lane.napi {
        None => "CPU ?".to_owned(),
        Some(cpus) if cpus.is_empty() => "the sender's CPU".to_owned(),
        Some(cpus) => named(cpus, ways),
    });
    cells.push(match &lane.rps {
        None => "RPS ?".to_owned(),
        Some(cpus) if cpus.is_empty() => "no RPS".to_owned(),
        Some(cpus) => format!("RPS to {}", named(cpus, ways)),
    });
    let nowhere = CpuSet::new();
    let stack = lane.stack().unwrap_or(&nowhere);
    match service {
        Some(service) => {
            let (threads, cpus) = service.threads(&service.reachable_sockets(stack), &ways.online);
            cells.push(service.sockets_words(stack));
            cells.push(threads);
            cells.push(ways.transmit.words(&cpus));
        }
        None => cells.push(format!("back by {}", ways.transmit.words(stack))),
    }
    cells
}

fn named(cpus: &CpuSet, ways: &InterfacePaths) -> String {
    let list = cpus.to_string();
    match ways.node_of(cpus) {
        _ if *cpus == ways.online && cpus.len() > 1 => "any CPU".to_owned(),
        Some(node) if list.len() > LONGEST_LIST => format!("{} CPUs of node {node}", cpus.len()),
        None if list.len() > LONGEST_LIST => format!("{} CPUs", cpus.len()),
        _ => format!("CPU {list}"),
    }
}

fn widths<'a>(rows: impl Iterator<Item = &'a Vec<String>>) -> Vec<usize> {
    let mut widths = Vec::new();
    for cells in rows {
        widths.resize(cells.len().max(widths.len()), 0);
        for (width, cell) in widths.iter_mut().zip(cells) {
            *width = cell.chars().count().max(*width);
        }
    }
    widths
}

/// A lane in one line, or where that is too long in several, broken before an arrow.
fn row(cells: &[String], widths: &[usize], style: TextStyle) -> Vec<String> {
    let room = style.width.saturating_sub(2).max(30);
    let arrows = ARROW.chars().count() * cells.len().saturating_sub(1);
    let fits = widths.iter().sum::<usize>() + arrows <= room;
    let mut lines = Vec::new();
    let mut line = String::new();
    for (index, cell) in cells.iter().enumerate() {
        let width = if fits { widths.get(index).copied().unwrap_or(0) } else { 0 };
        let cell = format!("{cell:<width$}");
        if line.is_empty() {
            line = cell;
        } else if line.chars().count() + ARROW.chars().count() + cell.trim_end().chars().count() > room {
            lines.push(std::mem::replace(&mut line, format!("   {}{cell}", ARROW.trim_start())));
        } else {
            line = format!("{line}{ARROW}{cell}");
        }
    }
    lines.push(line);
    lines.iter().map(|line| format!("│ {}", line.trim_end())).collect()
}

fn cut(line: &str, width: usize) -> String {
    if line.chars().count() <= width {
        return line.to_owned();
    }
    let kept: String = line.chars().take(width.saturating_sub(1)).collect();
    format!("{kept}…")
}
