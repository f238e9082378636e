//! Which services are judged: those that were named, and those on which something depends.

use super::{ServiceSockets, SocketProtocol, SocketState};
use crate::CpuSet;
use crate::stage::thread::ServingThread;
use crate::stage::{HostView, PacketPath};

/// `ip_local_port_range` as kernels have it unless told otherwise (inet_init_net in net/ipv4/af_inet.c).
const USUAL_LOCAL_PORTS: (u16, u16) = (32_768, 60_999);

/// CPUs' worth of time from which on a service is worth a judgement, between two readings and on average since boot.
const BUSY_NOW: f64 = 0.2;
const BUSY_SINCE_BOOT: f64 = 0.02;

impl<'a> HostView<'a> {
    /// The UDP services that are judged: not the ports that clients are given.
    pub(in crate::stage) fn udp_services(&self) -> impl Iterator<Item = &'a ServiceSockets> + use<'a> {
        let now = self.now;
        let (first, last) = now.socket.local_ports.value().copied().unwrap_or(USUAL_LOCAL_PORTS);
        now.socket.services().iter().filter(move |service| {
            let port = service.local.port();
            service.protocol == SocketProtocol::Udp && (service.named || port < first || port > last)
        })
    }

    /// Whether somebody asked about a service, or it loses packets or takes time worth a judgement.
    pub(in crate::stage) fn matters(&self, service: &ServiceSockets) -> bool {
        let busy = if self.before.is_some() { BUSY_NOW } else { BUSY_SINCE_BOOT };
        service.named || self.loses(service) || self.cpus_of(service) >= busy
    }

    /// Whether a service lost packets: between two readings, or with one reading since its sockets were made.
    pub(in crate::stage) fn loses(&self, service: &ServiceSockets) -> bool {
        match self.before {
            Some(_) => self.loss_rate(service).is_some_and(|rate| rate > 0.0),
            None => service.drops().is_some_and(|drops| drops > 0),
        }
    }

    /// Packets that the sockets of a service lose in a second. None without two readings, or where it is not told.
    pub(in crate::stage) fn loss_rate(&self, service: &ServiceSockets) -> Option<f64> {
        service
            .sockets
            .iter()
            .filter_map(|socket| self.socket_loss_rate(socket))
            .reduce(|one, other| one + other)
    }

    /// Packets that a socket loses in a second.
    pub(in crate::stage) fn socket_loss_rate(&self, socket: &SocketState) -> Option<f64> {
        self.rate(|path| path.socket_of(socket.inode)?.drops)
    }

    /// CPUs' worth of time that the threads of a service take together.
    fn cpus_of(&self, service: &ServiceSockets) -> f64 {
        self.threads_of(service).into_iter().filter_map(|thread| self.cpus_taken(thread)).sum()
    }

    /// The threads that serve any socket of a service.
    pub(in crate::stage) fn threads_of(&self, service: &ServiceSockets) -> Vec<&'a ServingThread> {
        let mut threads: Vec<&ServingThread> =
            service.sockets.iter().flat_map(|socket| self.serving_socket(socket.inode)).collect();
        threads.sort_by_key(|thread| (thread.pid, thread.tid));
        threads.dedup_by_key(|thread| (thread.pid, thread.tid));
        threads
    }
}

impl PacketPath {
    /// The socket with this inode.
    fn socket_of(&self, inode: u64) -> Option<&SocketState> {
        self.socket
            .services()
            .iter()
            .flat_map(|service| &service.sockets)
            .find(|socket| socket.inode == inode)
    }

    /// CPUs on which packets for a service meet the network stack. None where that of one queue is unknown, so that nobody
    /// is told that no packet comes by a CPU where one may, and for a service on the loopback, which has no queues.
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
