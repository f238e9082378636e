//! The server that is measured.

use std::net::SocketAddr;
use std::time::Duration;

use linerate_engine::{
    Backend, Builder, Echo, PathMtuDiscovery, RunningServer, Server, SocketMode, SteeringProgram,
    WorkerPinning,
};
use linerate_services::start::StartService;
use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::host::LabHost;
use crate::ladder::configuration::{BATCH, BUSY_POLL_US, PortSharing, ServerConfiguration};
use crate::ladder::error::TestbedError;

/// Receive buffer of every server socket, so that a moment without CPU is not a loss.
const RECEIVE_BUFFER: usize = 4 << 20;

/// A server with one worker per CPU of `cpus`.
pub(crate) fn builder(
    configuration: &ServerConfiguration,
    address: SocketAddr,
    cpus: &[u32],
    largest: usize,
) -> Builder {
    Server::builder()
        .bind(address)
        .workers(cpus.len())
        .cpus(cpus)
        .sockets(match configuration.sharing {
            PortSharing::OneSocket => SocketMode::Shared,
            PortSharing::Reuseport => SocketMode::Reuseport,
            PortSharing::SteeredByCpu => SocketMode::SteeredByCpu(SteeringProgram::Cbpf),
        })
        .pinning(if configuration.pinned { WorkerPinning::Own } else { WorkerPinning::None })
        .backend(if configuration.batched_calls { Backend::Mmsg { batch: BATCH } } else { Backend::Recvfrom })
        .path_mtu_discovery(if configuration.skip_ip_id {
            PathMtuDiscovery::Do
        } else {
            PathMtuDiscovery::System
        })
        .busy_poll(configuration.busy_poll.then_some(Duration::from_micros(BUSY_POLL_US.into())))
        .receive_buffer(RECEIVE_BUFFER)
        .max_request(largest.max(2048))
        .drain_limit(Duration::ZERO)
}

/// Runs `start` while the calling thread may use these CPUs only. The threads and processes that it
/// starts inherit that.
pub(crate) fn confined<T>(cpus: &[u32], start: impl FnOnce() -> T) -> Result<T, TestbedError> {
    let failed = |errno: Errno| {
        let cpus: linerate_host::CpuSet = cpus.iter().copied().collect();
        TestbedError::Server(format!("the server cannot be limited to CPUs {cpus}: {errno}"))
    };
    let allowed_before = sched_getaffinity(None).map_err(failed)?;
    let mut allowed = CpuSet::new();
    for cpu in cpus {
        // `set` panics on a CPU beyond its size.
        if *cpu as usize >= CpuSet::MAX_CPU {
            return Err(failed(Errno::INVAL));
        }
        allowed.set(*cpu as usize);
    }
    sched_setaffinity(None, &allowed).map_err(failed)?;
    let started = start();
    sched_setaffinity(None, &allowed_before).map_err(failed)?;
    Ok(started)
}

/// Starts an echo server on a host of a lab.
pub(crate) fn start_in_lab(
    host: &LabHost,
    configuration: &ServerConfiguration,
    address: SocketAddr,
    cpus: &[u32],
    nice: Option<i32>,
    largest: usize,
) -> Result<RunningServer, TestbedError> {
    let mut builder = builder(configuration, address, cpus, largest);
    if let Some(nice) = nice {
        builder = builder.nice(nice);
    }
    Ok(host.run(|| confined(cpus, || Echo::start_server(builder.prepare()?, Box::new(|_| Echo))))???)
}

pub(crate) fn stop(server: &mut Option<RunningServer>) -> Result<(), TestbedError> {
    match server.take() {
        Some(running) => Ok(running.stop().map(drop)?),
        None => Ok(()),
    }
}

/// Options that the server had to replace, one line each.
pub(crate) fn fallbacks(server: Option<&RunningServer>) -> Vec<String> {
    server.map_or_else(Vec::new, |server| server.fallbacks().iter().map(ToString::to_string).collect())
}

/// Why busy polling is impossible here, tried on a server without clients.
pub(crate) fn busy_poll_refusal() -> Option<String> {
    let configuration = ServerConfiguration { busy_poll: true, ..ServerConfiguration::baseline() };
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    match builder(&configuration, loopback, &[0], 0).pinning(WorkerPinning::None).prepare() {
        Ok(server) => server
            .fallbacks()
            .iter()
            .find(|fallback| fallback.what.contains("BUSY_POLL"))
            .map(ToString::to_string),
        Err(error) => Some(error.to_string()),
    }
}
