//! What sockets count.

use crate::counter::{Counter, Counts};
use crate::stage::{PacketPath, StageName};

/// Packets that each UDP socket lost. The kernel counts none that it got.
pub(super) fn counters(path: &PacketPath) -> Vec<Counter> {
    let services = path.socket.services().iter();
    let sockets = services.flat_map(|service| service.sockets.iter().map(move |socket| (service, socket)));
    let counter = |(service, socket): (&super::Service, &super::Socket)| {
        Some(Counter {
            stage: StageName::Socket,
            place: format!("{} ino {}", service.name(), socket.inode),
            name: "drops".to_owned(),
            counts: Counts::PacketsLost,
            value: socket.drops?,
            read_from: service.read_from.clone(),
        })
    };
    sockets.filter_map(counter).collect()
}
