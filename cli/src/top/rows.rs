//! The rows of each panel: one table of columns per stage.

use std::collections::BTreeMap;

use linerate_host::live::snapshot::{
    CpuSnapshot, FindingSite, InterfaceSnapshot, ReceiveQueue, ServiceSnapshot, SocketSnapshot,
    ThreadLocality, ThreadSnapshot, TransmitQueueSnapshot,
};
use linerate_host::live::{HistoryItem, HistoryMetric, Snapshot};
use linerate_host::{Known, Severity, StageName};

use super::panel::{PanelCell, PanelHead, PanelRow, PanelStage, RowBlock, RowSelection, TopPanel};
use crate::render::format;
use crate::render::style::TextTone;

/// All panels in the order of a packet's path.
pub(crate) fn panels(snapshot: &Snapshot, selection: &RowSelection) -> Vec<TopPanel> {
    PanelStage::ALL.iter().map(|stage| panel(snapshot, *stage, selection)).collect()
}

pub(crate) fn panel(snapshot: &Snapshot, stage: PanelStage, selection: &RowSelection) -> TopPanel {
    let (heads, blocks) = match stage {
        PanelStage::Queues => (heads(&RECEIVE), interface_blocks(snapshot, receive_block)),
        PanelStage::Cpus => (heads(&CPU), cpu_blocks(snapshot)),
        PanelStage::Sockets => (heads(&SOCKET), socket_blocks(snapshot)),
        PanelStage::Threads => (heads(&THREAD), thread_blocks(snapshot)),
        PanelStage::Out => (heads(&TRANSMIT), interface_blocks(snapshot, transmit_block)),
    };
    let (blocks, unknown) = match blocks {
        Ok(blocks) => (blocks, None),
        Err(reason) => (Vec::new(), Some(reason)),
    };
    TopPanel { stage, heads, blocks, unknown, unfiltered: false }.with_selection(selection)
}

/// A column: its title, its rank (the highest is left out first), and the cell of a row.
struct Column<T> {
    head: PanelHead,
    cell: fn(&T) -> PanelCell,
}

const fn right_aligned<T>(title: &'static str, rank: u8, cell: fn(&T) -> PanelCell) -> Column<T> {
    Column { head: PanelHead { title, rank, left: false }, cell }
}

const fn left_aligned<T>(title: &'static str, rank: u8, cell: fn(&T) -> PanelCell) -> Column<T> {
    Column { head: PanelHead { title, rank, left: true }, cell }
}

fn heads<T>(columns: &[Column<T>]) -> Vec<PanelHead> {
    columns.iter().map(|column| column.head).collect()
}

fn cells<T>(columns: &[Column<T>], row: &T) -> Vec<PanelCell> {
    columns.iter().map(|column| (column.cell)(row)).collect()
}

const RECEIVE: [Column<ReceiveQueue>; 5] = [
    right_aligned("pps", 0, |queue| rate(queue.packets_per_second)),
    right_aligned("drops", 0, |queue| loss_cell(queue.drops_per_second)),
    right_aligned("irq/s", 2, |queue| rate(queue.interrupts_per_second)),
    right_aligned("CPU", 1, |queue| {
        let tone = if queue.far_node { TextTone::Warn } else { TextTone::Plain };
        text(queue.cpu, tone)
    }),
    right_aligned("RPS", 3, |queue| cpu_list(queue.rps.as_deref())),
];

// Shares of time in softirqs: from the first a warning, from the second near the limit of a CPU.
const SOFTIRQ_RATIOS: [f64; 2] = [0.6, 0.9];

const CPU: [Column<CpuSnapshot>; 9] = [
    left_aligned("", 3, |cpu| gauge(cpu.softirq_share, SOFTIRQ_RATIOS)),
    right_aligned("softirq", 0, |cpu| share(cpu.softirq_share, SOFTIRQ_RATIOS)),
    right_aligned("busy", 4, |cpu| share(cpu.busy_share, NEVER)),
    right_aligned("pps", 0, |cpu| rate(cpu.packets_per_second)),
    right_aligned("share", 2, |cpu| share(cpu.packets_share, NEVER)),
    right_aligned("irq/s", 4, |cpu| rate(cpu.interrupts_per_second)),
    right_aligned("RPS/s", 3, |cpu| rate(cpu.rps_per_second)),
    right_aligned("drops", 0, |cpu| loss_cell(cpu.drops_per_second)),
    right_aligned("sqz", 1, |cpu| match cpu.squeezes_per_second {
        Some(rate) if rate > 0.0 => PanelCell::new(compact_small_rate(rate), TextTone::Warn),
        other => rate(other),
    }),
];

// Fill levels of a receive buffer: from the first, bursts may be lost; from the second, more than
// bursts.
const FILL_RATIOS: [f64; 2] = [0.5, 0.9];

const SOCKET: [Column<SocketSnapshot>; 5] = [
    left_aligned("", 3, |socket| gauge(socket.fill, FILL_RATIOS)),
    right_aligned("fill", 0, |socket| share(socket.fill, FILL_RATIOS)),
    right_aligned("queued", 1, |socket| bytes(socket.queued_bytes)),
    right_aligned("of", 2, |socket| bytes(socket.receive_buffer_bytes)),
    right_aligned("drops", 0, |socket| loss_cell(socket.drops_per_second)),
];

const THREAD: [Column<ThreadSnapshot>; 5] = [
    right_aligned("time", 0, |thread| share(thread.cpu_share, [0.9, 0.98])),
    right_aligned("system", 2, |thread| share(thread.system_share, NEVER)),
    right_aligned("CPU", 0, |thread| {
        let moved = if thread.moved_from.is_some() { "»" } else { "" };
        text(thread.cpu.map(|cpu| format!("{moved}{cpu}")), TextTone::Plain)
    }),
    left_aligned("packets", 1, |thread| match thread.seat {
        Some(ThreadLocality::WithPackets) => PanelCell::new("here", TextTone::Good),
        Some(ThreadLocality::OffQueue) => PanelCell::new("off", TextTone::Warn),
        Some(ThreadLocality::FarNode) => PanelCell::new("far node", TextTone::Bad),
        None => PanelCell::unknown(),
    }),
    left_aligned("may run", 3, |thread| text(thread.allowed.as_ref(), TextTone::Faint)),
];

const TRANSMIT: [Column<TransmitQueueSnapshot>; 4] = [
    right_aligned("pps", 0, |queue| rate(queue.packets_per_second)),
    right_aligned("drops", 0, |queue| loss_cell(queue.drops_per_second)),
    right_aligned("waiting", 2, |queue| match queue.backlog_packets {
        Some(0) => PanelCell::new("0", TextTone::Faint),
        waiting => text(waiting, TextTone::Warn),
    }),
    right_aligned("XPS", 1, |queue| cpu_list(queue.xps.as_deref())),
];

fn interface_blocks(
    snapshot: &Snapshot,
    block: fn(&Snapshot, &InterfaceSnapshot) -> RowBlock,
) -> Result<Vec<RowBlock>, String> {
    if snapshot.interfaces.is_empty() {
        return Err("no interface to look at: --interface names one".to_owned());
    }
    Ok(snapshot.interfaces.iter().map(|interface| block(snapshot, interface)).collect())
}

fn interface_block(
    interface: &InterfaceSnapshot,
    (packets, drops): (Option<f64>, Option<f64>),
    extra_facts: Vec<String>,
) -> RowBlock {
    let is_gone = interface.gone_seconds.is_some();
    let mut facts: Vec<String> =
        packets.map(|rate| format!("{} pps", format::rate(rate))).into_iter().collect();
    facts.extend(drops.filter(|drops| *drops > 0.0).map(|drops| format!("{} drops/s", small_rate(drops))));
    facts.extend(extra_facts);
    RowBlock {
        item: Some(HistoryItem::Interface(interface.interface.clone())),
        title: interface.interface.clone(),
        facts: if is_gone { "gone".to_owned() } else { facts.join(" · ") },
        gone: is_gone,
        ..RowBlock::default()
    }
}

fn receive_block(snapshot: &Snapshot, interface: &InterfaceSnapshot) -> RowBlock {
    let mut facts = Vec::new();
    if interface.receive.value().is_some() && interface.receive_told_by.is_none() {
        facts.push("queues not counted".to_owned());
    }
    facts.extend(interface.receive.why().map(|_| "queues unknown".to_owned()));
    facts.extend(interface.driver.clone());
    facts.extend(interface.speed_bits_per_second.map(format::link));
    facts
        .extend(interface.node.filter(|_| snapshot.host.node_count() > 1).map(|node| format!("node {node}")));
    let rates = (interface.rx_packets_per_second, interface.rx_drops_per_second);
    let name = &interface.interface;
    let row = |queue: &ReceiveQueue| PanelRow {
        item: HistoryItem::Receive(name.clone(), queue.queue),
        name: format!("rx-{}", queue.queue),
        words: format!("{name} rx-{}", queue.queue),
        mark: worst_severity(snapshot, &FindingSite::Receive(name.clone(), queue.queue)),
        gone: interface.gone_seconds.is_some(),
        idle: is_below(queue.packets_per_second, 0.5) && is_below(queue.drops_per_second, f64::MIN_POSITIVE),
        cells: cells(&RECEIVE, queue),
        figures: figures(queue.packets_per_second, queue.drops_per_second),
        metric: HistoryMetric::Packets,
    };
    RowBlock {
        mark: worst_severity(snapshot, &FindingSite::Interface(name.clone())),
        rows: interface.receive.value().into_iter().flatten().map(row).collect(),
        ..interface_block(interface, rates, facts)
    }
}

fn transmit_block(snapshot: &Snapshot, interface: &InterfaceSnapshot) -> RowBlock {
    let mut facts = Vec::new();
    let root = interface.discipline.value().and_then(Option::as_ref);
    facts.extend(root.map(|root| root.kind.clone()));
    let requeues = root.and_then(|root| root.requeues_per_second).filter(|rate| *rate > 0.0);
    facts.extend(requeues.map(|rate| format!("{} requeues/s", small_rate(rate))));
    facts.extend(interface.transmit.why().map(|_| "queues unknown".to_owned()));
    let rates = (interface.tx_packets_per_second, interface.tx_drops_per_second);
    let name = &interface.interface;
    let row = |queue: &TransmitQueueSnapshot| PanelRow {
        item: HistoryItem::Transmit(name.clone(), queue.queue),
        name: format!("tx-{}", queue.queue),
        words: format!("{name} tx-{}", queue.queue),
        mark: worst_severity(snapshot, &FindingSite::Transmit(name.clone(), queue.queue)),
        gone: interface.gone_seconds.is_some(),
        idle: is_below(queue.packets_per_second, 0.5) && is_below(queue.drops_per_second, f64::MIN_POSITIVE),
        cells: cells(&TRANSMIT, queue),
        figures: figures(queue.packets_per_second, queue.drops_per_second),
        metric: HistoryMetric::Packets,
    };
    RowBlock {
        rows: interface.transmit.value().into_iter().flatten().map(row).collect(),
        ..interface_block(interface, rates, facts)
    }
}

/// One block per NUMA node.
fn cpu_blocks(snapshot: &Snapshot) -> Result<Vec<RowBlock>, String> {
    let mut nodes: BTreeMap<Option<u32>, Vec<&CpuSnapshot>> = BTreeMap::new();
    for cpu in known_items(&snapshot.cpus)? {
        nodes.entry(cpu.node).or_default().push(cpu);
    }
    let row = |cpu: &&CpuSnapshot| PanelRow {
        item: HistoryItem::Cpu(cpu.cpu),
        name: cpu.cpu.to_string(),
        words: format!("cpu {}", cpu.cpu),
        mark: worst_severity(snapshot, &FindingSite::Cpu(cpu.cpu)),
        gone: false,
        idle: is_below(cpu.packets_per_second, 10.0)
            && is_below(cpu.drops_per_second, f64::MIN_POSITIVE)
            && is_below(cpu.softirq_share, 0.02)
            && is_below(cpu.steal_share, 0.01),
        cells: cells(&CPU, cpu),
        figures: figures(cpu.softirq_share, cpu.packets_per_second),
        metric: HistoryMetric::Softirq,
    };
    let block = |(node, cpus): (Option<u32>, Vec<&CpuSnapshot>)| {
        let count = format::count_with_noun(cpus.len(), "CPU");
        let softirq: Vec<f64> = cpus.iter().filter_map(|cpu| cpu.softirq_share).collect();
        RowBlock {
            title: node.map_or_else(|| "node not known".to_owned(), |node| format!("node {node}")),
            facts: match softirq.is_empty() {
                true => count,
                false => format!("{count} · softirq {:.2}", softirq.iter().sum::<f64>()),
            },
            rows: cpus.iter().map(row).collect(),
            ..RowBlock::default()
        }
    };
    Ok(nodes.into_iter().map(block).collect())
}

/// One block per service.
fn socket_blocks(snapshot: &Snapshot) -> Result<Vec<RowBlock>, String> {
    let services = known_items(&snapshot.services)?;
    if services.is_empty() {
        return Err("no UDP service but on the loopback: --port names one".to_owned());
    }
    let block = |service: &ServiceSnapshot| {
        let open_sockets = service.sockets.iter().filter(|socket| socket.gone_seconds.is_none()).count();
        let is_gone = open_sockets == 0;
        let pids: Vec<String> = service.pids.iter().map(|pid| format!(" pid {pid}")).collect();
        let words = format!("{}{}", service.name, pids.concat());
        RowBlock {
            item: Some(HistoryItem::Service(service.name.clone())),
            title: service.name.clone(),
            facts: match (is_gone, service.steering.as_deref(), open_sockets) {
                (true, ..) => "gone".to_owned(),
                (_, Some(steering), count) => format!("{count} by {steering}"),
                _ => String::new(),
            },
            mark: worst_severity(snapshot, &FindingSite::Service(service.name.clone())),
            gone: is_gone,
            rows: service.sockets.iter().map(|socket| socket_row(socket, &words)).collect(),
            ..RowBlock::default()
        }
    };
    Ok(services.iter().map(block).collect())
}

fn socket_row(socket: &SocketSnapshot, words: &str) -> PanelRow {
    let cpu = socket.incoming_cpu.map(|cpu| format!(" cpu {cpu}")).unwrap_or_default();
    PanelRow {
        item: HistoryItem::Socket(socket.inode),
        name: format!("#{}{cpu}", socket.place),
        words: words.to_owned(),
        mark: None,
        gone: socket.gone_seconds.is_some(),
        idle: socket.queued_bytes.unwrap_or(0) == 0 && is_below(socket.drops_per_second, f64::MIN_POSITIVE),
        cells: cells(&SOCKET, socket),
        figures: figures(socket.fill, socket.drops_per_second),
        metric: HistoryMetric::Queued,
    }
}

/// One block per process.
fn thread_blocks(snapshot: &Snapshot) -> Result<Vec<RowBlock>, String> {
    let mut processes: BTreeMap<u32, Vec<&ThreadSnapshot>> = BTreeMap::new();
    for thread in known_items(&snapshot.threads)? {
        processes.entry(thread.pid).or_default().push(thread);
    }
    if processes.is_empty() {
        return Err("no thread that serves one of the sockets".to_owned());
    }
    let row = |thread: &&ThreadSnapshot| PanelRow {
        item: HistoryItem::Thread(thread.tid),
        name: format!("{} {}", thread.tid, thread.name),
        words: format!("{} {} pid {} {}", thread.name, thread.tid, thread.pid, thread.services.join(" ")),
        mark: worst_severity(snapshot, &FindingSite::Thread(thread.tid)),
        gone: thread.gone_seconds.is_some(),
        idle: is_below(thread.cpu_share, 0.005),
        cells: cells(&THREAD, thread),
        figures: figures(thread.cpu_share, thread.cpu.map(f64::from)),
        metric: HistoryMetric::Time,
    };
    let block = |(pid, threads): (u32, Vec<&ThreadSnapshot>)| {
        let main_thread = threads.iter().find(|thread| thread.tid == pid).or(threads.first());
        let service = main_thread.and_then(|thread| thread.services.first()).cloned().unwrap_or_default();
        let is_gone = threads.iter().all(|thread| thread.gone_seconds.is_some());
        let services = threads.iter().flat_map(|thread| &thread.services);
        let findings = services.flat_map(|service| snapshot.findings_at_stage(service, StageName::Thread));
        RowBlock {
            title: format!("pid {pid}"),
            facts: if is_gone { "gone".to_owned() } else { service },
            mark: findings.map(|finding| finding.severity).max(),
            gone: is_gone,
            rows: threads.iter().map(row).collect(),
            ..RowBlock::default()
        }
    };
    Ok(processes.into_iter().map(block).collect())
}

fn known_items<T>(items: &Known<Vec<T>>) -> Result<&[T], String> {
    items.value().map(Vec::as_slice).ok_or_else(|| items.why().unwrap_or_default().to_owned())
}

/// Unknown figures are below any limit.
fn is_below(figure: Option<f64>, limit: f64) -> bool {
    figure.is_none_or(|figure| figure < limit)
}

/// Figures to sort by. Unknown figures are NaN and come last.
fn figures(first: Option<f64>, second: Option<f64>) -> [f64; 2] {
    [first.unwrap_or(f64::NAN), second.unwrap_or(f64::NAN)]
}

/// The worst finding at a site.
fn worst_severity(snapshot: &Snapshot, site: &FindingSite) -> Option<Severity> {
    snapshot.findings_at(site).map(|finding| finding.severity).max()
}

fn text(value: Option<impl ToString>, tone: TextTone) -> PanelCell {
    value.map_or_else(PanelCell::unknown, |value| PanelCell::new(value.to_string(), tone))
}

fn cpu_list(cpus: Option<&str>) -> PanelCell {
    match cpus {
        Some("") => PanelCell::new("off", TextTone::Faint),
        cpus => text(cpus, TextTone::Plain),
    }
}

/// A rate that is neither good nor bad.
fn rate(per_second: Option<f64>) -> PanelCell {
    match per_second {
        Some(rate) if rate < 0.5 => PanelCell::new("0", TextTone::Faint),
        rate => text(rate.map(compact_rate), TextTone::Plain),
    }
}

/// A rate of losses.
fn loss_cell(per_second: Option<f64>) -> PanelCell {
    match per_second {
        Some(0.0) => PanelCell::new("0", TextTone::Faint),
        rate => text(rate.map(compact_small_rate), TextTone::Bad),
    }
}

/// `34.9k`, without the blank before the unit.
fn compact_rate(figure: f64) -> String {
    format::rate(figure).replace(' ', "")
}

fn compact_small_rate(rate: f64) -> String {
    small_rate(rate).replace(' ', "")
}

/// A rate that matters although it is below one per second.
fn small_rate(rate: f64) -> String {
    if rate < 1.0 { "<1".to_owned() } else { format::rate(rate) }
}

// Limits for ratios that are never too high.
const NEVER: [f64; 2] = [2.0, 2.0];

fn share(share: Option<f64>, [warn, bad]: [f64; 2]) -> PanelCell {
    let tone = match share {
        Some(share) if share >= bad => TextTone::Bad,
        Some(share) if share >= warn => TextTone::Warn,
        Some(share) if share < 0.005 => TextTone::Faint,
        _ => TextTone::Plain,
    };
    text(share.map(|share| format!("{:.0}%", share * 100.0)), tone)
}

/// A bar of six characters in steps of an eighth.
fn gauge(ratio: Option<f64>, limits: [f64; 2]) -> PanelCell {
    const WIDTH: usize = 6;
    const PARTS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let Some(fill_share) = ratio else { return PanelCell::new(" ".repeat(WIDTH), TextTone::Faint) };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 48")]
    let eighths = (fill_share.clamp(0.0, 1.0) * (WIDTH * 8) as f64).round() as usize;
    let full_cells = eighths / 8;
    let mut text = "█".repeat(full_cells);
    if full_cells < WIDTH {
        text.push(PARTS.get(eighths % 8).copied().unwrap_or(' '));
    }
    PanelCell::new(format!("{text:<WIDTH$}"), share(ratio, limits).tone)
}

fn bytes(count: Option<u64>) -> PanelCell {
    match count {
        Some(0) => PanelCell::new("0", TextTone::Faint),
        #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
        count => text(count.map(|count| format!("{}B", compact_rate(count as f64))), TextTone::Plain),
    }
}
