//! The service that receives the packets: sockets and threads.

use std::collections::BTreeSet;

use linerate_host::stage::PacketPath;
use linerate_host::stage::socket::{ServiceSockets, SocketProtocol, SteeringState};
use linerate_host::stage::thread::ServingThread;
use linerate_host::{CpuSet, Known};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct PathService {
    /// `UDP 0.0.0.0:53`.
    pub(crate) name: String,
    /// `nsd[812]`; empty if unknown.
    pub(crate) processes: String,
    pub(crate) sockets: Vec<SocketReader>,
    pub(crate) steering: Option<SteeringState>,
}

/// A socket and the threads that serve it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct SocketReader {
    /// `SO_INCOMING_CPU`.
    pub(crate) incoming: Option<u32>,
    /// The CPUs each of its threads may run on.
    pub(crate) threads: Vec<CpuSet>,
    /// The ids of its threads, in the same order.
    #[serde(default)]
    pub(crate) thread_ids: Vec<u32>,
}

/// The service to draw, and the other services.
pub(super) fn choose_service(path: &PacketPath) -> (Option<PathService>, Vec<PathService>) {
    let services = path.socket.services().iter().filter(|service| !path.socket.is_ephemeral(service));
    let is_udp = |service: &&ServiceSockets| service.protocol == SocketProtocol::Udp;
    // A service on a loopback address receives nothing from an interface with queues.
    let reachable_services = || services.clone().filter(|service| !service.local.ip().is_loopback());
    let named_services = reachable_services().filter(|service| service.named);
    let drawn_service =
        named_services.clone().find(is_udp).or_else(|| named_services.clone().next()).or_else(|| {
            let mut udp_services = reachable_services().filter(is_udp);
            udp_services.next().filter(|_| udp_services.next().is_none())
        });
    let other_services =
        services.clone().filter(|service| !drawn_service.is_some_and(|drawn| std::ptr::eq(drawn, *service)));
    (
        drawn_service.map(|service| PathService::from_service(path, service)),
        other_services.map(|service| PathService::from_service(path, service)).collect(),
    )
}

impl PathService {
    fn from_service(path: &PacketPath, service: &ServiceSockets) -> Self {
        let processes = match &service.processes {
            Known::Value(processes) => {
                let names: Vec<String> =
                    processes.iter().map(|process| format!("{}[{}]", process.name, process.pid)).collect();
                match names.as_slice() {
                    [first, .., _] => format!("{first} and {} more", names.len() - 1),
                    _ => names.concat(),
                }
            }
            Known::Unknown { .. } => String::new(),
        };
        let threads = |inode| {
            let threads = path.thread.threads_of_socket(inode);
            threads
                .filter_map(|thread: &ServingThread| Some((thread.allowed.value()?.clone(), thread.tid)))
                .unzip()
        };
        let protocol = match service.protocol {
            SocketProtocol::Udp => "UDP",
            SocketProtocol::Tcp => "TCP",
        };
        Self {
            name: format!("{protocol} {}", service.local),
            processes,
            sockets: service
                .sockets
                .iter()
                .map(|socket| {
                    let (threads, thread_ids) = threads(socket.inode);
                    SocketReader { incoming: socket.incoming_cpu(), threads, thread_ids }
                })
                .collect(),
            steering: service.steering.value().copied().flatten(),
        }
    }

    /// Indices of the sockets that packets from these CPUs can reach.
    pub(crate) fn reachable_sockets(&self, stack: &CpuSet) -> Vec<usize> {
        let is_on_stack = |socket: &SocketReader| socket.incoming.is_some_and(|cpu| stack.contains(cpu));
        let indices = 0..self.sockets.len();
        // A BPF program that steers by CPU does not report which socket belongs to which CPU.
        let has_incoming_cpus =
            !stack.is_empty() && self.sockets.iter().all(|socket| socket.incoming.is_some());
        match self.steering {
            Some(SteeringState::Cpu) if has_incoming_cpus => {
                indices.filter(|index| self.sockets.get(*index).is_some_and(is_on_stack)).collect()
            }
            _ => indices.collect(),
        }
    }

    /// The reachable sockets in words.
    pub(crate) fn sockets_words(&self, stack: &CpuSet) -> String {
        let count = self.sockets.len();
        let reachable: CpuSet =
            self.reachable_sockets(stack).into_iter().filter_map(|index| u32::try_from(index).ok()).collect();
        match (count, self.steering) {
            (0, _) => "no socket".to_owned(),
            (1, _) => "the one socket".to_owned(),
            (_, Some(SteeringState::Cpu)) if reachable.len() == count => format!("{count} sockets by CPU"),
            (_, Some(SteeringState::Cpu)) if reachable.is_empty() => "no socket of these CPUs".to_owned(),
            (_, Some(SteeringState::Cpu)) => format!("socket {reachable} by CPU"),
            (_, Some(SteeringState::Hash)) => format!("any of {count} sockets by hash"),
            (_, Some(SteeringState::Program)) => format!("{count} sockets by program"),
            (_, None) => format!("{count} sockets"),
        }
    }

    /// The threads that serve these sockets in words, and the CPUs that they may run on.
    pub(crate) fn threads(&self, sockets: &[usize], online: &CpuSet) -> (String, CpuSet) {
        let readers = sockets.iter().filter_map(|index| self.sockets.get(*index));
        // A thread may serve several of the sockets. Documents of version 0.1 have no ids.
        let mut counted = BTreeSet::new();
        let threads: Vec<&CpuSet> = readers
            .flat_map(|reader| {
                reader.threads.iter().enumerate().map(move |(index, cpus)| (reader, index, cpus))
            })
            .filter(|(reader, index, _)| reader.thread_ids.get(*index).is_none_or(|id| counted.insert(*id)))
            .map(|(.., cpus)| cpus)
            .collect();
        let cpus: CpuSet =
            threads.iter().flat_map(|cpus| cpus.iter()).filter(|cpu| online.contains(*cpu)).collect();
        let count = match threads.len() {
            0 => return ("thread ?".to_owned(), CpuSet::new()),
            1 => "one thread".to_owned(),
            count => format!("{count} threads"),
        };
        let is_pinned = threads.iter().all(|cpus| cpus.len() == 1);
        let placement = match (is_pinned, cpus == *online) {
            (true, _) => format!("pinned to CPU {cpus}"),
            (false, true) => "on any CPU".to_owned(),
            (false, false) => format!("on CPU {cpus}"),
        };
        (format!("{count} {placement}"), cpus)
    }

    /// The whole service in a line.
    pub(crate) fn line(&self, online: &CpuSet) -> String {
        let indices: Vec<usize> = (0..self.sockets.len()).collect();
        let steering_text = match self.steering {
            Some(SteeringState::Hash) => " by hash",
            Some(SteeringState::Cpu) => " by CPU",
            Some(SteeringState::Program) => " by program",
            None => "",
        };
        let sockets = match self.sockets.len() {
            1 => "one socket".to_owned(),
            count => format!("{count} sockets{steering_text}"),
        };
        let processes = if self.processes.is_empty() { "process ?" } else { &self.processes };
        format!("{}, {processes}, {sockets}, {}", self.name, self.threads(&indices, online).0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path_service(incoming: [Option<u32>; 2]) -> PathService {
        let thread = |cpu: u32| [cpu].into_iter().collect();
        let socket_reader =
            |incoming| SocketReader { incoming, threads: vec![thread(0), thread(1)], thread_ids: vec![7, 8] };
        PathService {
            name: "UDP 0.0.0.0:53".to_owned(),
            processes: String::new(),
            sockets: incoming.map(socket_reader).into(),
            steering: Some(SteeringState::Cpu),
        }
    }

    #[test]
    fn sockets_with_an_incoming_cpu_are_reached_from_that_cpu() {
        let words =
            |incoming, cpus: &[u32]| path_service(incoming).sockets_words(&cpus.iter().copied().collect());
        assert_eq!(words([Some(0), Some(1)], &[1]), "socket 1 by CPU");
        assert_eq!(words([Some(0), Some(1)], &[0, 1]), "2 sockets by CPU");
        assert_eq!(words([Some(0), Some(1)], &[7]), "no socket of these CPUs");
    }

    #[test]
    fn a_thread_that_serves_several_sockets_is_counted_once() {
        let online: CpuSet = [0, 1].into_iter().collect();
        let mut service = path_service([None, None]);
        assert_eq!(service.threads(&[0, 1], &online).0, "2 threads pinned to CPU 0-1");
        for (socket, id) in service.sockets.iter_mut().zip([1, 2]) {
            (socket.threads, socket.thread_ids) = (vec![online.clone()], vec![id]);
        }
        assert_eq!(service.threads(&[0, 1], &online).0, "2 threads on any CPU");
    }

    #[test]
    fn all_sockets_are_reachable_if_cpus_are_unknown() {
        let none = CpuSet::new();
        assert_eq!(path_service([Some(0), Some(1)]).sockets_words(&none), "2 sockets by CPU");
        let program = path_service([None, None]);
        assert_eq!(program.sockets_words(&[1].into_iter().collect()), "2 sockets by CPU");
        assert_eq!(program.reachable_sockets(&none), [0, 1]);
    }
}
