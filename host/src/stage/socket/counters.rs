//! Counters of sockets.

use super::{HostSockets, ServiceSockets, SocketState};
use crate::counter::{CountedUnit, Counter};
use crate::stage::PacketPath;
use crate::stage::name::StageName;

pub(in crate::stage) fn counters(path: &PacketPath) -> Vec<Counter> {
    path.socket.counters()
}

impl HostSockets {
    /// The kernel counts no received packets per socket.
    pub fn counters(&self) -> Vec<Counter> {
        let services = self.services().iter();
        let sockets =
            services.flat_map(|service| service.sockets.iter().map(move |socket| (service, socket)));
        let counter = |(service, socket): (&ServiceSockets, &SocketState)| {
            let place = format!("{} ino {}", service.name(), socket.inode);
            let (lost, drops) = (CountedUnit::PacketsLost, socket.drops?);
            Some(Counter::new(StageName::Socket, place, "drops", lost, drops, &service.read_from))
        };
        sockets.filter_map(counter).collect()
    }
}
