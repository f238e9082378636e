//! Backends, clients and CPU binding for the tests.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use linerate_engine::{Backend, Builder, Server};
pub(crate) use linerate_testkit::skip;

pub(crate) type EngineTestResult = Result<(), Box<dyn std::error::Error>>;

/// A read timeout that expires only if a datagram is lost.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// The backends that run on every kernel.
pub(crate) const BACKENDS: [Backend; 3] =
    [Backend::Recvfrom, Backend::Mmsg { batch: 1 }, Backend::Mmsg { batch: 64 }];

/// A server on a free port of loopback.
pub(crate) fn local_server() -> Builder {
    Server::builder().bind(SocketAddr::from(([127, 0, 0, 1], 0)))
}

/// A UDP client with the read timeout [`PATIENCE`].
pub(crate) fn client(local: &str) -> std::io::Result<UdpSocket> {
    let socket = UdpSocket::bind(local)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    Ok(socket)
}

/// Sends one request. Returns the reply and its source address.
pub(crate) fn ask(
    client: &UdpSocket,
    to: SocketAddr,
    request: &[u8],
) -> std::io::Result<(Vec<u8>, SocketAddr)> {
    client.send_to(request, to)?;
    let mut answer = vec![0; 65_536];
    let (length, from) = client.recv_from(&mut answer)?;
    answer.truncate(length);
    Ok((answer, from))
}

/// The CPUs this thread may run on.
pub(crate) fn cpus() -> std::io::Result<Vec<u32>> {
    let set = rustix::thread::sched_getaffinity(None)?;
    Ok((0..rustix::thread::CpuSet::MAX_CPU)
        .filter(|cpu| set.is_set(*cpu))
        .filter_map(|cpu| u32::try_from(cpu).ok())
        .collect())
}

/// Runs `action` on a thread bound to `cpu`.
pub(crate) fn on_cpu<T: Send>(cpu: u32, action: impl FnOnce() -> T + Send) -> std::io::Result<T> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            let mut set = rustix::thread::CpuSet::new();
            set.set(cpu as usize);
            rustix::thread::sched_setaffinity(None, &set)?;
            Ok(action())
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
