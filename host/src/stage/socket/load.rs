//! Which services are judged: those that the user named, and those with load or losses.

use super::{HostSockets, ServiceSockets, SocketProtocol, SocketState};
use crate::CpuSet;
use crate::stage::thread::ServingThread;
use crate::stage::{HostView, PacketPath};

/// Default of `ip_local_port_range` (inet_init_net in net/ipv4/af_inet.c).
const USUAL_LOCAL_PORTS: (u16, u16) = (32_768, 60_999);

/// CPUs' worth of time from which on a service is judged, between two readings and on average since
/// boot.
const BUSY_NOW: f64 = 0.2;
const BUSY_SINCE_BOOT: f64 = 0.02;

impl HostSockets {
    /// UDP services, without ephemeral ports unless named.
    pub(crate) fn udp_services(&self) -> impl Iterator<Item = &ServiceSockets> {
        let (first, last) = self.local_ports.value().copied().unwrap_or(USUAL_LOCAL_PORTS);
        self.services().iter().filter(move |service| {
            let port = service.local.port();
            service.protocol == SocketProtocol::Udp && (service.named || port < first || port > last)
        })
    }
}

impl<'a> HostView<'a> {
    pub(in crate::stage) fn udp_services(&self) -> impl Iterator<Item = &'a ServiceSockets> + use<'a> {
        self.now.socket.udp_services()
    }

    /// Whether the user named the service, or it loses packets or uses enough CPU time to be
    /// judged.
    pub(in crate::stage) fn matters(&self, service: &ServiceSockets) -> bool {
        let busy = if self.before.is_some() { BUSY_NOW } else { BUSY_SINCE_BOOT };
        service.named || self.loses(service) || self.cpus_of(service) >= busy
    }

    /// Between two readings, or with one reading since its sockets were created.
    pub(in crate::stage) fn loses(&self, service: &ServiceSockets) -> bool {
        match self.before {
            Some(_) => self.loss_rate(service).is_some_and(|rate| rate > 0.0),
            None => service.drops().is_some_and(|drops| drops > 0),
        }
    }

    /// Per second. `None` without two readings, or if unknown.
    pub(in crate::stage) fn loss_rate(&self, service: &ServiceSockets) -> Option<f64> {
        service
            .sockets
            .iter()
            .filter_map(|socket| self.socket_loss_rate(socket))
            .reduce(|one, other| one + other)
    }

    /// Per second.
    pub(in crate::stage) fn socket_loss_rate(&self, socket: &SocketState) -> Option<f64> {
        self.rate(|path| path.socket_of(socket.inode)?.drops)
    }

    /// CPUs' worth of time of all threads of a service.
    fn cpus_of(&self, service: &ServiceSockets) -> f64 {
        self.threads_of(service).into_iter().filter_map(|thread| self.cpus_taken(thread)).sum()
    }

    pub(in crate::stage) fn threads_of(&self, service: &ServiceSockets) -> Vec<&'a ServingThread> {
        let mut threads: Vec<&ServingThread> =
            service.sockets.iter().flat_map(|socket| self.serving_socket(socket.inode)).collect();
        threads.sort_by_key(|thread| (thread.pid, thread.tid));
        threads.dedup_by_key(|thread| (thread.pid, thread.tid));
        threads
    }
}

impl PacketPath {
    fn socket_of(&self, inode: u64) -> Option<&SocketState> {
        self.socket
            .services()
            .iter()
            .flat_map(|service| &service.sockets)
            .find(|socket| socket.inode == inode)
    }

    /// CPUs on which packets for a service meet the network stack. `None` if the CPU of one queue
    /// is unknown, so that no CPU is wrongly reported as without packets, and for a service on the
    /// loopback, which has no queues.
    pub(in crate::stage) fn receive_cpus(&self, service: &ServiceSockets) -> Option<CpuSet> {
        if service.is_on_loopback() {
            return None;
        }
        let mut found = Vec::new();
        for link in self.link.iter().filter(|link| link.up.value() != Some(&false)) {
            for queue in 0..*link.receive_queues.value()? {
                found.extend(self.stack_cpus(&link.interface, queue)?);
            }
        }
        let cpus: CpuSet = found.into_iter().collect();
        (!cpus.is_empty()).then_some(cpus)
    }
}
