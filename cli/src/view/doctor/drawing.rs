//! The path as an SVG drawing: columns from queue to transmit queue, CPUs in the blocks of their nodes, and lines between
//! them, whose width is the packet rate.

use std::collections::BTreeMap;

use askama::Template;
use linerate_host::CpuSet;

use super::paths::{InterfacePaths, QueueFlow, TransmitChoice, packets_per_second};
use super::service::PathService;

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
        let steers = paths.queues.iter().any(|queue| queue.rps.as_ref().is_some_and(|cpus| !cpus.is_empty()));
        let napi = drawing.column(paths, INTERRUPT, "interrupt", |queue| queue.napi.as_ref());
        let rps = steers.then(|| drawing.column(paths, STEERED, "RPS", |queue| queue.rps.as_ref()));
        let bottom = napi.bottom.max(rps.as_ref().map_or(0, |column| column.bottom));
        let queues = drawing.queues(paths, &napi, rps.as_ref());
        let middle = (TOP + bottom.max(queues)) / 2;
        let last = rps.as_ref().unwrap_or(&napi);
        let served = service.map(|service| drawing.service(paths, service, last, middle));
        let sent = drawing.sent(paths, last, served.as_ref());
        drawing.height = bottom.max(queues).max(sent).max(middle + 40) + GAP;
        drawing
    }

    fn label(&mut self, x: u32, y: u32, anchor: &'static str, class: &'static str, text: impl Into<String>) {
        self.labels.push(PictureLabel { x, y, anchor, class, text: text.into() });
    }

    /// Draws the nodes with the CPUs that receive lines.
    fn column<'a>(
        &mut self,
        paths: &'a InterfacePaths,
        x: u32,
        heading: &str,
        pick: impl Fn(&'a QueueFlow) -> Option<&'a CpuSet>,
    ) -> PictureColumn {
        self.label(x + BLOCK / 2, 18, "middle", "head", heading);
        let drawn: CpuSet = paths
            .queues
            .iter()
            .filter_map(pick)
            .filter(|cpus| cpus.len() <= MOST_EACH)
            .flat_map(CpuSet::iter)
            .collect();
        let mut column = PictureColumn { x, cpus: BTreeMap::new(), nodes: Vec::new(), bottom: 0 };
        let mut y = TOP;
        for (node, of_node) in &paths.nodes {
            let top = y;
            y += PITCH + 4;
            let name = node.map_or_else(|| "this host".to_owned(), |node| format!("node {node}"));
            let home =
                if node.is_some() && *node == paths.home && paths.nodes.len() > 1 { ", NIC" } else { "" };
            self.label(x + 8, top + PITCH, "start", "node", format!("{name}{home}"));
            let inside: Vec<u32> = of_node.iter().filter(|cpu| drawn.contains(*cpu)).collect();
            if inside.len() <= MOST_ROWS {
                for cpu in &inside {
                    y += PITCH;
                    column.cpus.insert(*cpu, y - 4);
                    self.label(x + BLOCK / 2, y, "middle", "cpu", format!("CPU {cpu}"));
                }
            }
            let others: CpuSet = of_node.iter().filter(|cpu| !column.cpus.contains_key(cpu)).collect();
            if !others.is_empty() {
                y += PITCH;
                let text = if inside.is_empty() || others.len() > 3 {
                    format!("{} CPUs", others.len())
                } else {
                    format!("CPU {others}")
                };
                let text = if column.cpus.is_empty() { text } else { format!("{text} without") };
                self.label(x + BLOCK / 2, y, "middle", "idle", text);
            }
            y += 8;
            column.nodes.push((of_node.clone(), (top + y) / 2));
            self.blocks.push(PictureBlock { x, y: top, width: BLOCK, height: y - top });
            y += GAP;
        }
        column.bottom = y;
        column
    }

    /// Draws receive queues and their lines to CPUs; returns the lower end.
    fn queues(&mut self, paths: &InterfacePaths, napi: &PictureColumn, rps: Option<&PictureColumn>) -> u32 {
        self.label(QUEUES - 8, 18, "end", "head", "receive queue");
        let most = paths.queues.iter().filter_map(|queue| queue.rate).fold(0.0, f64::max);
        let pitch = if paths.queues.len() > 32 { PITCH - 2 } else { PITCH };
        let mut y = TOP;
        for queue in &paths.queues {
            y += pitch;
            let class = if queue.hot { "hot" } else { "cpu" };
            self.label(QUEUES - 8, y, "end", class, format!("rx {}", queue.queue));
            if let Some(rate) = queue.rate {
                self.label(QUEUES - 46, y, "end", "idle", packets_per_second(rate));
            }
            let from = (QUEUES, y - 4);
            let thickness = thickness(queue.rate, most);
            let line = line_class(queue.rate, queue.hot);
            let told = match &queue.napi {
                Some(cpus) if cpus.is_empty() => {
                    format!("rx {}: no interrupt, on the sender's CPU", queue.queue)
                }
                cpus => format!("rx {}: interrupt on CPU {}", queue.queue, listed(cpus.as_ref())),
            };
            let handled_on = napi.heights(queue.napi.as_ref());
            for &to in &handled_on {
                self.line(from, (napi.x, to), &thickness, line, &told);
            }
            let Some(rps) = rps else { continue };
            let told = format!("rx {}: RPS to CPU {}", queue.queue, listed(queue.rps.as_ref()));
            let to = match &queue.rps {
                Some(cpus) if cpus.is_empty() => rps.heights(queue.napi.as_ref()),
                cpus => rps.heights(cpus.as_ref()),
            };
            for from in handled_on {
                for to in &to {
                    self.line((napi.x + BLOCK, from), (rps.x, *to), &thickness, line, &told);
                }
            }
        }
        y + GAP
    }

    fn line(&mut self, from: (u32, u32), to: (u32, u32), thickness: &str, class: &'static str, told: &str) {
        let middle = u32::midpoint(from.0, to.0);
        let path = format!("M{} {}C{middle} {} {middle} {} {} {}", from.0, from.1, from.1, to.1, to.0, to.1);
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
                told: told.to_owned(),
            });
        }
    }

    /// Draws the service; returns its height and the CPUs of its threads.
    fn service(
        &mut self,
        paths: &InterfacePaths,
        service: &PathService,
        from: &PictureColumn,
        middle: u32,
    ) -> (u32, CpuSet) {
        let all: Vec<usize> = (0..service.sockets.len()).collect();
        let (threads, cpus) = service.threads(&all, &paths.online);
        self.label(SERVICE + 90, 18, "middle", "head", "socket and thread");
        self.blocks.push(PictureBlock { x: SERVICE, y: middle - 34, width: 180, height: 68 });
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
            let y = middle - 18 + 15 * u32::try_from(line).unwrap_or(0);
            self.label(SERVICE + 90, y, "middle", class, shortened(&text));
        }
        let rates = stack_rates(paths);
        let most = rates.values().copied().fold(0.0, f64::max);
        for (cpu, rate) in &rates {
            for height in from.heights(Some(&CpuSet::from_iter([*cpu]))) {
                let told = format!("CPU {cpu}: {}", packets_per_second(*rate));
                self.line(
                    (from.x + BLOCK, height),
                    (SERVICE, middle),
                    &thickness(Some(*rate), most),
                    "way",
                    &told,
                );
            }
        }
        let on_senders_cpu = senders_rate(paths);
        if rates.is_empty() {
            let (rate, told) = match on_senders_cpu {
                Some(rate) => (Some(rate), format!("on the senders' CPUs: {}", packets_per_second(rate))),
                None => (None, service.name.clone()),
            };
            for height in from.stack_heights(paths) {
                let thickness = thickness(rate, rate.unwrap_or(0.0));
                self.line(
                    (from.x + BLOCK, height),
                    (SERVICE, middle),
                    &thickness,
                    line_class(rate, false),
                    &told,
                );
            }
        }
        (middle, cpus)
    }

    /// Draws transmit queues and the lines to them; returns the lower end.
    fn sent(&mut self, paths: &InterfacePaths, from: &PictureColumn, served: Option<&(u32, CpuSet)>) -> u32 {
        self.label(SENT + 8, 18, "start", "head", "transmit queue");
        let stack: CpuSet = paths.queues.iter().filter_map(QueueFlow::stack).flat_map(CpuSet::iter).collect();
        let cpus = served.map_or(&stack, |(_, cpus)| cpus);
        let plain = thickness(None, 0.0);
        let words = paths.transmit.words(cpus);
        let by_cpu = match &paths.transmit {
            TransmitChoice::ByCpu(map) => {
                let mut queues: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
                for (cpu, of_cpu) in map.iter().filter(|(cpu, _)| cpus.contains(**cpu)) {
                    of_cpu.iter().for_each(|queue| queues.entry(queue).or_default().push(*cpu));
                }
                queues
            }
            _ => BTreeMap::new(),
        };
        let starts = |cpus: &CpuSet| match served {
            Some((middle, _)) => vec![(SERVICE + 180, *middle)],
            None if cpus.is_empty() => {
                from.stack_heights(paths).into_iter().map(|height| (from.x + BLOCK, height)).collect()
            }
            None => from.each_height(cpus).into_iter().map(|height| (from.x + BLOCK, height)).collect(),
        };
        let mut y = TOP;
        if by_cpu.is_empty() || by_cpu.len() > MOST_ROWS {
            let y = u32::midpoint(TOP, from.bottom);
            self.label(SENT + 8, y + 4, "start", "cpu", shortened(&words));
            for start in starts(cpus) {
                self.line(start, (SENT, y), &plain, "way", &words);
            }
            return y + GAP;
        }
        let most = paths.sent.values().copied().fold(0.0, f64::max);
        for (queue, cpus) in by_cpu {
            y += PITCH;
            self.label(SENT + 8, y, "start", "cpu", format!("tx {queue}"));
            let rate = paths.transmit_rate(queue);
            let thickness = thickness(rate, most);
            let class = line_class(rate, false);
            let cpus: CpuSet = cpus.into_iter().collect();
            let rate = rate.map(|rate| format!(", {}", packets_per_second(rate))).unwrap_or_default();
            let told = format!("CPU {cpus}: tx {queue} by XPS{rate}");
            for start in starts(&cpus) {
                self.line(start, (SENT, y - 4), &thickness, class, &told);
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
        if cpus.len() <= MOST_EACH { self.each_height(cpus) } else { self.of_nodes(cpus) }
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
        let each: Option<Vec<u32>> = cpus.iter().map(|cpu| self.cpus.get(&cpu).copied()).collect();
        each.filter(|heights| heights.len() <= MOST_ROWS).unwrap_or_else(|| self.of_nodes(cpus))
    }

    fn of_nodes(&self, cpus: &CpuSet) -> Vec<u32> {
        let takes_part = |of_node: &CpuSet| cpus.iter().any(|cpu| of_node.contains(cpu));
        self.nodes.iter().filter(|(of_node, _)| takes_part(of_node)).map(|(_, height)| *height).collect()
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

fn thickness(rate: Option<f64>, most: f64) -> String {
    let share = rate.filter(|_| most > 0.0).map_or(0.06, |rate| rate / most);
    format!("{:.1}", THINNEST + (THICKEST - THINNEST) * share)
}

fn line_class(rate: Option<f64>, hot: bool) -> &'static str {
    match rate {
        _ if hot => "way hot",
        Some(rate) if rate < 1.0 => "way quiet",
        _ => "way",
    }
}

fn listed(cpus: Option<&CpuSet>) -> String {
    cpus.map_or_else(|| "?".to_owned(), ToString::to_string)
}

/// The text, cut to the width of a block.
fn shortened(text: &str) -> String {
    const MOST: usize = 30;
    if text.chars().count() <= MOST {
        return text.to_owned();
    }
    let kept: String = text.chars().take(MOST - 1).collect();
    format!("{kept}…")
}
