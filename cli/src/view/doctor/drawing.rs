//! The path as an SVG drawing: columns from queue to transmit queue, CPUs in the blocks of their nodes, and lines between
//! them, whose width is the packet rate.

use std::collections::BTreeMap;

use askama::Template;
use linerate_host::CpuSet;

use super::paths::{InterfacePaths, QueueFlow, TransmitChoice, packets_per_second};
use super::service::PathService;
use crate::render::column::cut;

/// Characters that fit into the width of a block.
const BLOCK_CHARACTERS: usize = 30;

/// Shapes, in the units of the view box.
#[derive(Template)]
#[template(path = "path.svg")]
pub(crate) struct PathDrawing {
    pub(crate) alternative: String,
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) blocks: Vec<PictureBlock>,
    pub(crate) lines: Vec<PictureEdge>,
    pub(crate) labels: Vec<PictureLabel>,
}

/// A node, or a service.
pub(crate) struct PictureBlock {
    pub(crate) x: u32,
    pub(crate) y: u32,
    pub(crate) width: u32,
    pub(crate) height: u32,
}

/// A line from one column to the next.
pub(crate) struct PictureEdge {
    pub(crate) path: String,
    pub(crate) thickness: String,
    pub(crate) class: &'static str,
    pub(crate) told: String,
}

pub(crate) struct PictureLabel {
    pub(crate) x: u32,
    pub(crate) y: u32,
    pub(crate) anchor: &'static str,
    pub(crate) class: &'static str,
    pub(crate) text: String,
}

/// Distance between rows of a column.
const PITCH: u32 = 15;
const TOP: u32 = 34;
/// Distance between blocks of nodes.
const GAP: u32 = 14;
const QUEUES: u32 = 118;
const BLOCK: u32 = 128;
/// The left edges of the columns: CPUs, service, and transmit queues.
const INTERRUPT: u32 = 250;
const STEERED: u32 = 470;
const SERVICE: u32 = 690;
const SENT: u32 = 960;
const WIDTH: u32 = 1_080;
/// If there are more CPUs, one line is drawn to their node.
const MOST_EACH: usize = 4;
/// A column with more CPUs or queues than this is drawn per node or as one row.
const MOST_ROWS: usize = 64;
const THINNEST: f64 = 1.0;
const THICKEST: f64 = 9.0;

/// The CPUs of one column and their heights.
struct PictureColumn {
    x: u32,
    cpus: BTreeMap<u32, u32>,
    nodes: Vec<(CpuSet, u32)>,
    bottom: u32,
}

impl PathDrawing {
    /// The paths of an interface, to a service if there is one to draw.
    pub(crate) fn new(paths: &InterfacePaths, service: Option<&PathService>) -> Self {
        let mut drawing = Self {
            alternative: format!(
                "The path of packets through {}: {}",
                paths.interface,
                paths.facts.join(", ")
            ),
            width: WIDTH,
            height: 0,
            blocks: Vec::new(),
            lines: Vec::new(),
            labels: Vec::new(),
        };
        let has_rps =
            paths.queues.iter().any(|queue| queue.rps.as_ref().is_some_and(|cpus| !cpus.is_empty()));
        let napi = drawing.draw_column(paths, INTERRUPT, "interrupt", |queue| queue.napi.as_ref());
        let rps = has_rps.then(|| drawing.draw_column(paths, STEERED, "RPS", |queue| queue.rps.as_ref()));
        let bottom = napi.bottom.max(rps.as_ref().map_or(0, |column| column.bottom));
        let queues_bottom = drawing.draw_receive_queues(paths, &napi, rps.as_ref());
        let center_y = (TOP + bottom.max(queues_bottom)) / 2;
        let last_column = rps.as_ref().unwrap_or(&napi);
        let service_end = service.map(|service| drawing.draw_service(paths, service, last_column, center_y));
        let sent_bottom = drawing.draw_transmit_queues(paths, last_column, service_end.as_ref());
        drawing.height = bottom.max(queues_bottom).max(sent_bottom).max(center_y + 40) + GAP;
        drawing
    }

    fn label(&mut self, x: u32, y: u32, anchor: &'static str, class: &'static str, text: impl Into<String>) {
        self.labels.push(PictureLabel { x, y, anchor, class, text: text.into() });
    }

    /// Draws the nodes with the CPUs that receive lines.
    fn draw_column<'a>(
        &mut self,
        paths: &'a InterfacePaths,
        x: u32,
        heading: &str,
        cpus_of: impl Fn(&'a QueueFlow) -> Option<&'a CpuSet>,
    ) -> PictureColumn {
        self.label(x + BLOCK / 2, 18, "middle", "head", heading);
        let listed_cpus: CpuSet = paths
            .queues
            .iter()
            .filter_map(cpus_of)
            .filter(|cpus| cpus.len() <= MOST_EACH)
            .flat_map(CpuSet::iter)
            .collect();
        let mut column = PictureColumn { x, cpus: BTreeMap::new(), nodes: Vec::new(), bottom: 0 };
        let mut y = TOP;
        for (node, node_cpus) in &paths.nodes {
            let top = y;
            y += PITCH + 4;
            let name = node.map_or_else(|| "this host".to_owned(), |node| format!("node {node}"));
            let home_text =
                if node.is_some() && *node == paths.home && paths.nodes.len() > 1 { ", NIC" } else { "" };
            self.label(x + 8, top + PITCH, "start", "node", format!("{name}{home_text}"));
            let drawn_cpus: Vec<u32> = node_cpus.iter().filter(|cpu| listed_cpus.contains(*cpu)).collect();
            if drawn_cpus.len() <= MOST_ROWS {
                for cpu in &drawn_cpus {
                    y += PITCH;
                    column.cpus.insert(*cpu, y - 4);
                    self.label(x + BLOCK / 2, y, "middle", "cpu", format!("CPU {cpu}"));
                }
            }
            let others: CpuSet = node_cpus.iter().filter(|cpu| !column.cpus.contains_key(cpu)).collect();
            if !others.is_empty() {
                y += PITCH;
                let text = if drawn_cpus.is_empty() || others.len() > 3 {
                    format!("{} CPUs", others.len())
                } else {
                    format!("CPU {others}")
                };
                let text = if column.cpus.is_empty() { text } else { format!("{text} without") };
                self.label(x + BLOCK / 2, y, "middle", "idle", text);
            }
            y += 8;
            column.nodes.push((node_cpus.clone(), (top + y) / 2));
            self.blocks.push(PictureBlock { x, y: top, width: BLOCK, height: y - top });
            y += GAP;
        }
        column.bottom = y;
        column
    }

    /// Draws receive queues and their lines to CPUs; returns the lower end.
    fn draw_receive_queues(
        &mut self,
        paths: &InterfacePaths,
        napi: &PictureColumn,
        rps: Option<&PictureColumn>,
    ) -> u32 {
        self.label(QUEUES - 8, 18, "end", "head", "receive queue");
        let max_rate = paths.queues.iter().filter_map(|queue| queue.rate).fold(0.0, f64::max);
        let pitch = if paths.queues.len() > 32 { PITCH - 2 } else { PITCH };
        let mut y = TOP;
        for queue in &paths.queues {
            y += pitch;
            let class = if queue.hot { "hot" } else { "cpu" };
            self.label(QUEUES - 8, y, "end", class, format!("rx {}", queue.queue));
            if let Some(rate) = queue.rate {
                self.label(QUEUES - 46, y, "end", "idle", packets_per_second(rate));
            }
            let queue_end = (QUEUES, y - 4);
            let thickness = thickness(queue.rate, max_rate);
            let line = line_class(queue.rate, queue.hot);
            let description = match &queue.napi {
                Some(cpus) if cpus.is_empty() => {
                    format!("rx {}: no interrupt, on the sender's CPU", queue.queue)
                }
                cpus => format!("rx {}: interrupt on CPU {}", queue.queue, cpus_text(cpus.as_ref())),
            };
            let napi_heights = napi.heights(queue.napi.as_ref());
            for &napi_height in &napi_heights {
                self.line(queue_end, (napi.x, napi_height), &thickness, line, &description);
            }
            let Some(rps) = rps else { continue };
            let description = format!("rx {}: RPS to CPU {}", queue.queue, cpus_text(queue.rps.as_ref()));
            let rps_heights = match &queue.rps {
                Some(cpus) if cpus.is_empty() => rps.heights(queue.napi.as_ref()),
                cpus => rps.heights(cpus.as_ref()),
            };
            for napi_height in napi_heights {
                for rps_height in &rps_heights {
                    self.line(
                        (napi.x + BLOCK, napi_height),
                        (rps.x, *rps_height),
                        &thickness,
                        line,
                        &description,
                    );
                }
            }
        }
        y + GAP
    }

    fn line(
        &mut self,
        start: (u32, u32),
        end: (u32, u32),
        thickness: &str,
        class: &'static str,
        description: &str,
    ) {
        let middle_x = u32::midpoint(start.0, end.0);
        let path = format!(
            "M{} {}C{middle_x} {} {middle_x} {} {} {}",
            start.0, start.1, start.1, end.1, end.0, end.1
        );
        // Equal lines are drawn once.
        if !self
            .lines
            .iter()
            .rev()
            .take(MOST_ROWS)
            .any(|line| line.path == path && line.thickness == thickness)
        {
            self.lines.push(PictureEdge {
                path,
                thickness: thickness.to_owned(),
                class,
                told: description.to_owned(),
            });
        }
    }

    /// Draws the service; returns its height and the CPUs of its threads.
    fn draw_service(
        &mut self,
        paths: &InterfacePaths,
        service: &PathService,
        column: &PictureColumn,
        center_y: u32,
    ) -> (u32, CpuSet) {
        let all_sockets: Vec<usize> = (0..service.sockets.len()).collect();
        let (threads, cpus) = service.threads(&all_sockets, &paths.online);
        self.label(SERVICE + 90, 18, "middle", "head", "socket and thread");
        self.blocks.push(PictureBlock { x: SERVICE, y: center_y - 34, width: 180, height: 68 });
        let sockets = match service.sockets.len() {
            1 => "one socket".to_owned(),
            _ => service.sockets_words(&paths.online),
        };
        for (line, (class, text)) in [
            ("node", service.name.clone()),
            ("cpu", service.processes.clone()),
            ("cpu", sockets),
            ("cpu", threads),
        ]
        .into_iter()
        .enumerate()
        {
            let y = center_y - 18 + 15 * u32::try_from(line).unwrap_or(0);
            self.label(SERVICE + 90, y, "middle", class, cut(&text, BLOCK_CHARACTERS));
        }
        let rates = stack_rates(paths);
        let max_rate = rates.values().copied().fold(0.0, f64::max);
        for (cpu, rate) in &rates {
            for height in column.heights(Some(&CpuSet::from_iter([*cpu]))) {
                let description = format!("CPU {cpu}: {}", packets_per_second(*rate));
                self.line(
                    (column.x + BLOCK, height),
                    (SERVICE, center_y),
                    &thickness(Some(*rate), max_rate),
                    "way",
                    &description,
                );
            }
        }
        let rate_on_senders_cpu = senders_rate(paths);
        if rates.is_empty() {
            let (rate, description) = match rate_on_senders_cpu {
                Some(rate) => (Some(rate), format!("on the senders' CPUs: {}", packets_per_second(rate))),
                None => (None, service.name.clone()),
            };
            for height in column.stack_heights(paths) {
                let thickness = thickness(rate, rate.unwrap_or(0.0));
                self.line(
                    (column.x + BLOCK, height),
                    (SERVICE, center_y),
                    &thickness,
                    line_class(rate, false),
                    &description,
                );
            }
        }
        (center_y, cpus)
    }

    /// Draws transmit queues and the lines to them; returns the lower end.
    fn draw_transmit_queues(
        &mut self,
        paths: &InterfacePaths,
        column: &PictureColumn,
        service_end: Option<&(u32, CpuSet)>,
    ) -> u32 {
        self.label(SENT + 8, 18, "start", "head", "transmit queue");
        let stack: CpuSet = paths.queues.iter().filter_map(QueueFlow::stack).flat_map(CpuSet::iter).collect();
        let cpus = service_end.map_or(&stack, |(_, cpus)| cpus);
        let plain_thickness = thickness(None, 0.0);
        let words = paths.transmit.words(cpus);
        let by_cpu = match &paths.transmit {
            TransmitChoice::ByCpu(map) => {
                let mut queues: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
                for (cpu, cpu_queues) in map.iter().filter(|(cpu, _)| cpus.contains(**cpu)) {
                    cpu_queues.iter().for_each(|queue| queues.entry(queue).or_default().push(*cpu));
                }
                queues
            }
            _ => BTreeMap::new(),
        };
        let line_starts = |cpus: &CpuSet| match service_end {
            Some((center_y, _)) => vec![(SERVICE + 180, *center_y)],
            None if cpus.is_empty() => {
                column.stack_heights(paths).into_iter().map(|height| (column.x + BLOCK, height)).collect()
            }
            None => column.each_height(cpus).into_iter().map(|height| (column.x + BLOCK, height)).collect(),
        };
        let mut y = TOP;
        if by_cpu.is_empty() || by_cpu.len() > MOST_ROWS {
            let y = u32::midpoint(TOP, column.bottom);
            self.label(SENT + 8, y + 4, "start", "cpu", cut(&words, BLOCK_CHARACTERS));
            for start in line_starts(cpus) {
                self.line(start, (SENT, y), &plain_thickness, "way", &words);
            }
            return y + GAP;
        }
        let max_rate = paths.sent.values().copied().fold(0.0, f64::max);
        for (queue, cpus) in by_cpu {
            y += PITCH;
            self.label(SENT + 8, y, "start", "cpu", format!("tx {queue}"));
            let rate = paths.transmit_rate(queue);
            let thickness = thickness(rate, max_rate);
            let class = line_class(rate, false);
            let cpus: CpuSet = cpus.into_iter().collect();
            let rate = rate.map(|rate| format!(", {}", packets_per_second(rate))).unwrap_or_default();
            let description = format!("CPU {cpus}: tx {queue} by XPS{rate}");
            for start in line_starts(&cpus) {
                self.line(start, (SENT, y - 4), &thickness, class, &description);
            }
        }
        y + GAP
    }
}

impl PictureColumn {
    /// The ends of lines to these CPUs: each CPU, or the nodes of many CPUs. An empty set means the
    /// CPUs of the senders, which can be any.
    fn heights(&self, cpus: Option<&CpuSet>) -> Vec<u32> {
        let Some(cpus) = cpus else { return Vec::new() };
        if cpus.is_empty() {
            return self.nodes.iter().map(|(_, height)| *height).collect();
        }
        if cpus.len() <= MOST_EACH { self.each_height(cpus) } else { self.node_heights(cpus) }
    }

    /// The beginnings of lines from the CPUs on which packets enter the stack.
    fn stack_heights(&self, paths: &InterfacePaths) -> Vec<u32> {
        let stacks: Vec<&CpuSet> = paths.queues.iter().filter_map(QueueFlow::stack).collect();
        let stack: CpuSet = stacks.iter().flat_map(|cpus| cpus.iter()).collect();
        if stack.is_empty() && !stacks.is_empty() {
            self.heights(Some(&stack))
        } else {
            self.each_height(&stack)
        }
    }

    fn each_height(&self, cpus: &CpuSet) -> Vec<u32> {
        let cpu_heights: Option<Vec<u32>> = cpus.iter().map(|cpu| self.cpus.get(&cpu).copied()).collect();
        cpu_heights.filter(|heights| heights.len() <= MOST_ROWS).unwrap_or_else(|| self.node_heights(cpus))
    }

    fn node_heights(&self, cpus: &CpuSet) -> Vec<u32> {
        let has_cpu = |node_cpus: &CpuSet| cpus.iter().any(|cpu| node_cpus.contains(cpu));
        self.nodes.iter().filter(|(node_cpus, _)| has_cpu(node_cpus)).map(|(_, height)| *height).collect()
    }
}

/// Packets per second by the CPU on which they enter the stack; empty with one reading.
fn stack_rates(paths: &InterfacePaths) -> BTreeMap<u32, f64> {
    let mut rates: BTreeMap<u32, f64> = BTreeMap::new();
    for queue in &paths.queues {
        let (Some(rate), Some(stack)) = (queue.rate, queue.stack()) else { continue };
        for cpu in stack.iter() {
            *rates.entry(cpu).or_default() += rate / stack.len() as f64;
        }
    }
    rates.retain(|_, rate| *rate >= 1.0);
    rates
}

/// Packets per second of queues without an interrupt, whose packets are processed on their senders' CPUs; `None` if there
/// are none, or with one reading.
fn senders_rate(paths: &InterfacePaths) -> Option<f64> {
    let unbound = paths.queues.iter().filter(|queue| queue.stack().is_some_and(CpuSet::is_empty));
    let rates: Vec<f64> = unbound.filter_map(|queue| queue.rate).collect();
    let total = paths.rates.map(|(receive, _)| receive);
    match rates.as_slice() {
        [] => total.filter(|_| paths.queues.iter().any(|queue| queue.stack().is_some_and(CpuSet::is_empty))),
        rates => Some(rates.iter().sum()),
    }
}

fn thickness(rate: Option<f64>, max_rate: f64) -> String {
    let share = rate.filter(|_| max_rate > 0.0).map_or(0.06, |rate| rate / max_rate);
    format!("{:.1}", THINNEST + (THICKEST - THINNEST) * share)
}

fn line_class(rate: Option<f64>, hot: bool) -> &'static str {
    match rate {
        _ if hot => "way hot",
        Some(rate) if rate < 1.0 => "way quiet",
        _ => "way",
    }
}

fn cpus_text(cpus: Option<&CpuSet>) -> String {
    cpus.map_or_else(|| "?".to_owned(), ToString::to_string)
}
