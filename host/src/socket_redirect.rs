//! Delivers the datagrams of an address to one socket only, even if other sockets are bound to it
//! (`bpf/redirect.bpf.c`, Linux 5.9). With this, a second socket can join a socket that did not
//! request SO_REUSEPORT, and the first socket loses no datagrams.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};

use aya::maps::{MapData, SockMap};
use aya::programs::SkLookup;
use aya::{Ebpf, EbpfLoader};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};

use crate::background::pause_after_burst;
use crate::bpf;

static OBJECT: &[u8] =
    aya::include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/../bpf/redirect.bpf.o"));

const PROGRAM: &str = "linerate_redirect";

/// In effect until it is dropped, or its process ends.
pub struct SocketRedirect {
    sockets: SockMap<MapData>,
    _object: Ebpf,
}

impl Drop for SocketRedirect {
    fn drop(&mut self) {
        // The kernel frees the map later, and until then the socket cannot be in another map.
        let _ = self.sockets.clear_index(&0);
    }
}

impl SocketRedirect {
    /// Delivers the datagrams of this address to this socket: all datagrams, or only those from one
    /// address and port. Datagrams for another address with the same port are left alone, unless
    /// `local` is unspecified.
    ///
    /// # Errors
    /// `EPERM` without CAP_BPF and CAP_NET_ADMIN; `EBUSY` if another program has the socket.
    pub fn attach(socket: &OwnedFd, local: SocketAddr, from: Option<SocketAddr>) -> io::Result<Self> {
        pause_after_burst();
        let (port, from_port) = (local.port(), from.map_or(0, |from| from.port()));
        let (address, from_address) = (octets(local.ip()), from.map_or([0; 16], |from| octets(from.ip())));
        let mut loader = EbpfLoader::new();
        loader.override_global("local_port", &port, true);
        loader.override_global("from_port", &from_port, true);
        loader.override_global("local_address", &address, true);
        loader.override_global("from_address", &from_address, true);
        let mut object = loader.load(OBJECT).map_err(bpf::error)?;
        let map = object.take_map("redirect_socket").ok_or_else(|| bpf::missing("redirect_socket"))?;
        let mut sockets: SockMap<_> = map.try_into().map_err(bpf::error)?;
        let program = object.program_mut(PROGRAM).ok_or_else(|| bpf::missing(PROGRAM))?;
        let program: &mut SkLookup = program.try_into().map_err(bpf::error)?;
        program.load().map_err(bpf::error)?;
        program.attach(std::fs::File::open("/proc/thread-self/ns/net")?).map_err(bpf::error)?;
        // Last: a read that begins while the socket is in the map keeps it there until it ends.
        sockets.set(0, &socket.as_raw_fd(), 0).map_err(bpf::error)?;
        Ok(Self { sockets, _object: object })
    }
}

/// The address in network order, as the program stores it: IPv4 in the first four bytes, also if it
/// is mapped to IPv6.
fn octets(ip: IpAddr) -> [u8; 16] {
    let mut address = [0; 16];
    match ip.to_canonical() {
        IpAddr::V4(ip) => address[..4].copy_from_slice(&ip.octets()),
        IpAddr::V6(ip) => address = ip.octets(),
    }
    address
}

/// Lets other sockets of the same user bind the address of a socket that was bound without
/// SO_REUSEPORT: the kernel checks the option of both sockets when the second one binds
/// (`inet_rcv_saddr_equal` and `udp_lib_lport_inuse` of net/ipv4/udp.c, Linux 6.18).
///
/// # Errors
/// The error of the kernel.
pub fn set_reuseport(socket: &OwnedFd, shared: bool) -> io::Result<()> {
    Ok(sockopt::set_socket_reuseport(socket, shared)?)
}

/// Makes a reuseport group of a single UDP socket, so that a program can steer it.
///
/// The kernel creates a group when a second socket binds (`reuseport_add_sock` of
/// net/core/sock_reuseport.c). The second socket is closed at once, and receives nothing in the
/// meantime.
///
/// # Errors
/// The error of the kernel; then the option is as before.
pub fn make_group(socket: &OwnedFd, local: SocketAddr) -> io::Result<()> {
    set_reuseport(socket, true)?;
    let result = SocketRedirect::attach(socket, local, None).and_then(|redirect| {
        drop(bind_second(socket, local)?);
        drop(redirect);
        Ok(())
    });
    if result.is_err() {
        // The socket may be gone.
        let _ = set_reuseport(socket, false);
    }
    result
}

fn bind_second(socket: &OwnedFd, local: SocketAddr) -> io::Result<OwnedFd> {
    let family = if local.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let second = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_reuseport(&second, true)?;
    if local.is_ipv6() {
        sockopt::set_ipv6_v6only(&second, sockopt::ipv6_v6only(socket)?)?;
    }
    rustix::net::bind(second.as_fd(), &local)?;
    Ok(second)
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::net::UdpSocket;
    use std::time::Duration;

    use linerate_testkit::skip;

    use super::*;

    /// Another host's client may have the source port of a probe.
    #[test]
    fn only_datagrams_from_the_given_source_are_redirected() {
        // IPv6 has one address on loopback, so that there the client differs by its port.
        for (any, loopback, other) in [
            ("0.0.0.0", "127.0.0.1", "127.0.0.2"),
            ("::", "::1", "::1"),
            ("::ffff:127.0.0.1", "127.0.0.1", "127.0.0.2"),
        ] {
            let bind = |ip, port| UdpSocket::bind((ip, port)).expect("a free port");
            let [server, copy, probe] = [any, loopback, loopback].map(|ip| bind(ip, 0));
            let from = probe.local_addr().expect("bound");
            let client = bind(other, if other == loopback { 0 } else { from.port() });
            let local = server.local_addr().expect("bound");
            let copied: OwnedFd = copy.try_clone().expect("a copy").into();
            let _redirect = match SocketRedirect::attach(&copied, local, Some(from)) {
                Ok(redirect) => redirect,
                Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                    return skip("only_datagrams_from_the_given_source_are_redirected", error);
                }
                Err(error) => panic!("{error}"),
            };
            for (sender, receiver) in [(&client, &server), (&probe, &copy)] {
                receiver.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
                sender.send_to(b"request", (loopback, local.port())).expect("sent");
                let (_, source) = receiver.recv_from(&mut [0; 16]).expect("received");
                let source = SocketAddr::new(source.ip().to_canonical(), source.port());
                assert_eq!(source, sender.local_addr().expect("bound"));
            }
        }
    }
}
