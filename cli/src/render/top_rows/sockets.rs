//! Sockets, a block a service.

use linerate_host::live::picture::{FindingSite, ServiceSnapshot, SocketSnapshot};
use linerate_host::live::{HistoryItem, HistoryMetric, Snapshot};

use super::{bytes, empty, figure, gauge, head, lost, mark, share};
use crate::render::top_panel::{PanelHead, PanelRow, PanelStage, RowBlock, TopPanel};

/// From such a fill on bursts are lost, and more is lost than bursts.
const WARN: f64 = 0.5;
const BAD: f64 = 0.9;

pub(super) fn panel(picture: &Snapshot) -> TopPanel {
    let heads = vec![
        PanelHead { title: "", rank: 3, left: true },
        head("fill", 0),
        head("queued", 1),
        head("of", 2),
        head("drops", 0),
    ];
    let services = match (picture.services.value(), picture.services.why()) {
        (Some(services), _) => services,
        (None, why) => return empty(PanelStage::Sockets, heads, why.unwrap_or_default()),
    };
    if services.is_empty() {
        return empty(PanelStage::Sockets, heads, "no UDP service but on the loopback: --port names one");
    }
    let blocks = services.iter().map(|service| block(picture, service)).collect();
    TopPanel { stage: PanelStage::Sockets, heads, blocks, unknown: None, unfiltered: false }
}

fn block(picture: &Snapshot, service: &ServiceSnapshot) -> RowBlock {
    let gone = service.sockets.iter().all(|socket| socket.gone_seconds.is_some());
    let facts = match (gone, service.steering.as_deref(), service.sockets.len()) {
        (true, ..) => "gone".to_owned(),
        (_, Some(steering), number) => format!("{number} by {steering}"),
        _ => String::new(),
    };
    RowBlock {
        item: Some(HistoryItem::Service(service.name.clone())),
        title: service.name.clone(),
        facts,
        mark: mark(picture, &FindingSite::Service(service.name.clone())),
        gone,
        rows: service.sockets.iter().map(|socket| row(service, socket)).collect(),
        folded: None,
    }
}

fn row(service: &ServiceSnapshot, socket: &SocketSnapshot) -> PanelRow {
    let cpu = socket.incoming_cpu.map(|cpu| format!(" cpu {cpu}")).unwrap_or_default();
    let pids: Vec<String> = service.pids.iter().map(|pid| format!("pid {pid}")).collect();
    PanelRow {
        item: HistoryItem::Socket(socket.inode),
        name: format!("#{}{cpu}", socket.place),
        words: format!("{} {}", service.name, pids.join(" ")),
        mark: None,
        gone: socket.gone_seconds.is_some(),
        idle: socket.queued_bytes.unwrap_or(0) == 0
            && socket.drops_per_second.is_none_or(|drops| drops == 0.0),
        cells: vec![
            gauge(socket.fill, WARN, BAD),
            share(socket.fill, WARN, BAD),
            bytes(socket.queued_bytes),
            bytes(socket.receive_buffer_bytes),
            lost(socket.drops_per_second),
        ],
        figures: [figure(socket.fill), figure(socket.drops_per_second)],
        metric: HistoryMetric::Queued,
    }
}
