//! Threads, a block a process.

use std::collections::BTreeMap;

use linerate_host::live::picture::{FindingSite, ThreadLocality, ThreadSnapshot};
use linerate_host::live::{HistoryItem, HistoryMetric, Snapshot};

use super::{empty, figure, head, mark, share};
use crate::render::style::TextTone;
use crate::render::top_panel::{PanelCell, PanelHead, PanelRow, PanelStage, RowBlock, TopPanel};

pub(super) fn panel(picture: &Snapshot) -> TopPanel {
    let heads = vec![
        head("time", 0),
        head("system", 2),
        head("CPU", 0),
        PanelHead { title: "packets", rank: 1, left: true },
        PanelHead { title: "may run", rank: 3, left: true },
    ];
    let threads = match (picture.threads.value(), picture.threads.why()) {
        (Some(threads), _) => threads,
        (None, why) => return empty(PanelStage::Threads, heads, why.unwrap_or_default()),
    };
    if threads.is_empty() {
        return empty(PanelStage::Threads, heads, "no thread that serves one of the sockets");
    }
    let mut processes: BTreeMap<u32, Vec<&ThreadSnapshot>> = BTreeMap::new();
    for thread in threads {
        processes.entry(thread.pid).or_default().push(thread);
    }
    let blocks = processes.into_iter().map(|(pid, threads)| block(picture, pid, &threads)).collect();
    TopPanel { stage: PanelStage::Threads, heads, blocks, unknown: None, unfiltered: false }
}

fn block(picture: &Snapshot, pid: u32, threads: &[&ThreadSnapshot]) -> RowBlock {
    let name = threads.iter().find(|thread| thread.tid == pid).or(threads.first());
    let services = name.and_then(|thread| thread.services.first()).cloned().unwrap_or_default();
    let gone = threads.iter().all(|thread| thread.gone_seconds.is_some());
    let marks = threads.iter().flat_map(|thread| &thread.services);
    let marks = marks.filter_map(|service| {
        let here = picture.findings_at_stage(service, linerate_host::StageName::Thread);
        here.map(|found| found.severity).max()
    });
    RowBlock {
        item: None,
        title: format!("pid {pid}"),
        facts: if gone { "gone".to_owned() } else { services },
        mark: marks.max(),
        gone,
        rows: threads.iter().map(|thread| row(picture, thread)).collect(),
        folded: None,
    }
}

fn row(picture: &Snapshot, thread: &ThreadSnapshot) -> PanelRow {
    let (seat, tone) = match thread.seat {
        Some(ThreadLocality::WithPackets) => ("here", TextTone::Good),
        Some(ThreadLocality::OffQueue) => ("off", TextTone::Warn),
        Some(ThreadLocality::FarNode) => ("far node", TextTone::Bad),
        None => ("–", TextTone::Faint),
    };
    let moved = thread.moved_from.is_some();
    PanelRow {
        item: HistoryItem::Thread(thread.tid),
        name: format!("{} {}", thread.tid, thread.name),
        words: format!("{} {} pid {} {}", thread.name, thread.tid, thread.pid, thread.services.join(" ")),
        mark: mark(picture, &FindingSite::Thread(thread.tid)),
        gone: thread.gone_seconds.is_some(),
        idle: thread.cpu_share.is_none_or(|share| share < 0.005),
        cells: vec![
            share(thread.cpu_share, 0.9, 0.98),
            share(thread.system_share, 2.0, 2.0),
            thread.cpu.map_or_else(PanelCell::unknown, |cpu| {
                PanelCell::new(format!("{}{cpu}", if moved { "»" } else { "" }), TextTone::Plain)
            }),
            PanelCell::new(seat, tone),
            thread
                .allowed
                .as_ref()
                .map_or_else(PanelCell::unknown, |cpus| PanelCell::new(cpus.clone(), TextTone::Faint)),
        ],
        figures: [figure(thread.cpu_share), figure(thread.cpu.map(f64::from))],
        metric: HistoryMetric::Time,
    }
}
