//! Checks whether copies wait for datagrams and stay in the foreground. The checks run often, next
//! to a server under load, so they read few files.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use linerate_host::Host;
use linerate_host::bind_hooks::BoundSocket;
use linerate_host::setting::SocketAt;
use linerate_host::socket_redirect::SocketRedirect;
use linerate_host::stage::thread::{TaskStat, ThreadSampling, ThreadSightings};

use super::ReplicaProbe;

/// Whether these processes wait for datagrams on each of these sockets (inodes).
pub(super) fn are_read(host: &Host, processes: &[u32], sockets: &BTreeSet<u64>) -> bool {
    let socket_descriptors = processes.iter().map(|pid| (*pid, descriptors(host, *pid, sockets))).collect();
    let mut sampling = ThreadSampling::of_sockets(host, socket_descriptors);
    sampling.take_sample();
    let threads = sampling.threads();
    let is_waiting = |thread: &ThreadSightings, inode: &u64| {
        let registered = thread.ring.as_ref().is_some_and(|ring| ring.is_empty() || ring.contains(inode));
        // The sockets of select and poll are in the thread's memory.
        thread.selecting > 0 || registered || thread.in_call.contains(inode) || thread.polling.contains(inode)
    };
    sockets.iter().all(|inode| threads.iter().any(|thread| is_waiting(thread, inode)))
}

/// Whether one of these processes has a session of its own, like a server that goes to the
/// background (daemon(3)). The started process itself cannot have one, because it leads a process
/// group.
pub(super) fn have_left_session(host: &Host, processes: &[u32]) -> bool {
    let session = |pid| TaskStat::of_process(host, pid).ok()?.session;
    let own_session = session(std::process::id());
    processes.iter().filter_map(|pid| session(*pid)).any(|session| Some(session) != own_session)
}

/// The descriptors of these sockets, with their inodes.
fn descriptors(host: &Host, pid: u32, sockets: &BTreeSet<u64>) -> BTreeMap<u32, u64> {
    let directory = format!("/proc/{pid}/fd");
    let socket_descriptor = |descriptor: u32| {
        let link = host.read_link(&format!("{directory}/{descriptor}")).ok()?;
        let inode = link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()?;
        sockets.contains(&inode).then_some((descriptor, inode))
    };
    let descriptors = host.list_numbers(&directory, "").unwrap_or_default();
    descriptors.into_iter().filter_map(socket_descriptor).collect()
}

/// Sends a probe to one socket of a group, which the port's other datagrams do not reach yet.
pub(super) fn send_probe(host: &Host, socket: &BoundSocket, probe: &ReplicaProbe) -> Result<(), String> {
    let ip = match socket.local.ip().to_canonical() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    let attach_redirect = || {
        let port = UdpSocket::bind((ip, 0))?.local_addr()?.port();
        let copy = socket_of_any_process(socket).copy(host)?;
        let redirect = SocketRedirect::attach(&copy, socket.local, Some((ip, port).into()))?;
        std::io::Result::Ok((redirect, port))
    };
    let (redirect, port) = attach_redirect().map_err(|error| error.to_string())?;
    let result = probe(SocketAddr::new(ip, socket.local.port()), port);
    drop(redirect);
    result
}

/// A socket that is looked for in all processes.
pub(super) fn socket_of_any_process(socket: &BoundSocket) -> SocketAt {
    SocketAt { cookie: socket.cookie, inode: socket.inode, pid: std::process::id(), descriptor: 0 }
}
