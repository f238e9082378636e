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
            Some(Counter {
                stage: StageName::Socket,
                place: format!("{} ino {}", service.name(), socket.inode),
                name: "drops".to_owned(),
                counts: CountedUnit::PacketsLost,
                value: socket.drops?,
                read_from: service.read_from.clone(),
            })
        };
        sockets.filter_map(counter).collect()
    }
}
