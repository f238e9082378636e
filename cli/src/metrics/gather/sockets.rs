//! Sockets and the threads that serve them, by port.

use std::collections::{BTreeMap, BTreeSet};

use linerate_host::PacketPath;
use linerate_host::stage::socket::{ServiceSockets, SocketProtocol, SteeringState};
use linerate_host::stage::thread::ServingThread;

use super::{CounterReset, GatheredSamples, source_id};
use crate::metrics::exporter::{ExporterOptions, OptionalMetrics};
use crate::metrics::families::{
    LOST_PACKETS, SOCKET_BUFFER, SOCKET_DROPPED, SOCKET_FILL, SOCKET_QUEUED, SOCKET_STEERING, SOCKETS,
    THREAD_CPU_SECONDS, THREAD_ID_SECONDS, THREADS,
};

// The kernel's default of `ip_local_port_range` (inet_init_net in net/ipv4/af_inet.c).
const USUAL_LOCAL_PORTS: (u16, u16) = (32_768, 60_999);

// One label for all ports that the kernel gave to clients, because their number has no limit.
const EPHEMERAL: &str = "ephemeral";

pub(super) fn services(path: &PacketPath, options: &ExporterOptions, samples: &mut GatheredSamples) {
    for service in path.socket.services().iter().filter(|service| options.selects(service)) {
        service_sockets(service, &port_of(path, options, service), samples);
    }
}

impl ExporterOptions {
    /// Whether the service is selected.
    fn selects(&self, service: &ServiceSockets) -> bool {
        self.ports.is_empty() || self.ports.contains(&service.local.port())
    }
}

fn port_of(path: &PacketPath, options: &ExporterOptions, service: &ServiceSockets) -> String {
    let port = service.local.port();
    let (first, last) = path.socket.local_ports.value().copied().unwrap_or(USUAL_LOCAL_PORTS);
    let is_named = service.named || options.ports.contains(&port);
    if !is_named && (first..=last).contains(&port) { EPHEMERAL.to_owned() } else { port.to_string() }
}

fn service_sockets(service: &ServiceSockets, port: &str, samples: &mut GatheredSamples) {
    let labels = [service.protocol.name(), port];
    samples.add_integer_gauge(&SOCKETS, &labels, service.sockets.len() as u64);
    if let Some(Some(steering)) = service.steering.value() {
        let steering = match steering {
            SteeringState::Hash => "hash",
            SteeringState::Cpu => "cpu",
            SteeringState::Program => "program",
        };
        samples.add_gauge(&SOCKET_STEERING, &[labels[0], port, steering], 1.0);
    }
    // The queue of a TCP listener holds connections, not packets.
    if service.protocol != SocketProtocol::Udp {
        return;
    }
    for socket in &service.sockets {
        samples.add_integer_gauge(&SOCKET_QUEUED, &labels, socket.queued_bytes);
        if let Some(limit) = socket.receive_buffer_bytes.filter(|limit| *limit > 0) {
            samples.add_integer_gauge(&SOCKET_BUFFER, &labels, limit);
            #[expect(clippy::cast_precision_loss, reason = "a ratio is shown with two digits")]
            samples.add_gauge(&SOCKET_FILL, &labels, socket.queued_bytes as f64 / limit as f64);
        }
        if let Some(drops) = socket.drops {
            let source = (source_id((socket.inode, socket.cookie)), CounterReset::At32Bits);
            samples.add_source_counter(&SOCKET_DROPPED, &labels, source, drops);
            samples.add_source_counter(&LOST_PACKETS, &["socket", "receive_buffer", "", port], source, drops);
        }
    }
}

/// The label of threads that serve several ports.
const SEVERAL: &str = "several";

pub(super) fn thread(path: &PacketPath, options: &ExporterOptions, samples: &mut GatheredSamples) {
    let mut ports: BTreeMap<u64, String> = BTreeMap::new();
    for service in path.socket.services().iter().filter(|service| options.selects(service)) {
        let port = port_of(path, options, service);
        ports.extend(service.sockets.iter().map(|socket| (socket.inode, port.clone())));
    }
    for thread in path.thread.serving.value().into_iter().flatten() {
        let served_ports: BTreeSet<&String> =
            thread.sockets.iter().filter_map(|inode| ports.get(inode)).collect();
        let port = match served_ports.len() {
            0 => continue,
            1 => served_ports.first().map_or(SEVERAL, |port| port.as_str()),
            _ => SEVERAL,
        };
        thread_times(thread, port, options, samples);
    }
}

fn thread_times(
    thread: &ServingThread,
    port: &str,
    options: &ExporterOptions,
    samples: &mut GatheredSamples,
) {
    samples.add_gauge(&THREADS, &[port], 1.0);
    for (mode, ticks) in [("user", &thread.user_ticks), ("system", &thread.system_ticks)] {
        let Some(ticks) = ticks.value() else { continue };
        // The sockets of a thread are guessed from what it does at this moment, so its port changes.
        let source = source_id((thread.pid, thread.tid, mode));
        samples.add_moving_counter(&THREAD_CPU_SECONDS, &[port, mode], source, *ticks);
        if options.with.contains(&OptionalMetrics::Pids) {
            let labels = [&*thread.pid.to_string(), &*thread.tid.to_string(), port, mode];
            samples.add_moving_counter(&THREAD_ID_SECONDS, &labels, source, *ticks);
        }
    }
}
