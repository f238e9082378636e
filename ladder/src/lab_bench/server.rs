//! A configuration's server.

use std::net::SocketAddr;
use std::time::Duration;

use linerate_engine::{Backend, Builder, PathMtuDiscovery, Pinning, Program, Server, Sockets};

use crate::configuration::{Calls, Configuration, Sharing};

/// Receive buffer of every server socket, so that a moment without CPU is not a loss.
const RECEIVE_BUFFER: usize = 4 << 20;

/// The server a configuration asks for, a worker for each of `cpus`.
pub(super) fn builder(
    configuration: &Configuration,
    address: SocketAddr,
    cpus: &[u32],
    largest: usize,
) -> Builder {
    Server::builder()
        .bind(address)
        .workers(cpus.len())
        .cpus(cpus)
        .sockets(match configuration.sharing {
            Sharing::OneSocket => Sockets::Shared,
            Sharing::Reuseport => Sockets::Reuseport,
            Sharing::SteeredByCpu => Sockets::SteeredByCpu(Program::Cbpf),
        })
        .pinning(if configuration.pinned { Pinning::Own } else { Pinning::None })
        .backend(match configuration.calls {
            Calls::One => Backend::Recvfrom,
            Calls::Batched(batch) => Backend::Mmsg { batch },
        })
        .path_mtu_discovery(if configuration.skip_ip_id {
            PathMtuDiscovery::Do
        } else {
            PathMtuDiscovery::System
        })
        .busy_poll(configuration.busy_poll)
        .receive_buffer(RECEIVE_BUFFER)
        .max_request(largest.max(2048))
        .drain_limit(Duration::ZERO)
}
