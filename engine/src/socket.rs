//! The sockets of a server, and the buffers that the kernel granted.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use rustix::net::sockopt;
use serde::{Deserialize, Serialize};
use socket2::{Domain, Protocol, Socket, Type};

use crate::error::ServerError;
use crate::sys::control::{self, ControlRequest, PktinfoMode};
use crate::sys::option;

/// Handling of replies that are longer than the path's MTU (`IP_MTU_DISCOVER` and `IPV6_MTU_DISCOVER`, ip(7)).
///
/// With [`Do`](Self::Do) and [`Probe`](Self::Probe) the kernel sets Don't Fragment. Such replies need no IP identification,
/// which saves the kernel some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PathMtuDiscovery {
    /// The system's default (`net.ipv4.ip_no_pmtu_disc`).
    #[default]
    System,
    /// Always Don't Fragment. Replies longer than the known path MTU fail and are counted as too long.
    Do,
    /// Never Don't Fragment.
    Dont,
    /// Fragment replies longer than the known path MTU, Don't Fragment for others.
    Want,
    /// Don't Fragment; ignore the known path MTU.
    Probe,
    /// Never Don't Fragment; at most the interface's MTU, which ICMP cannot lower (Linux 3.14).
    Interface,
    /// As [`Interface`](Self::Interface), but fragment longer replies (Linux 3.15).
    Omit,
}

impl PathMtuDiscovery {
    // The kernel's number, the same for both families (include/uapi/linux/in.h, in6.h).
    fn value(self) -> Option<i32> {
        match self {
            Self::System => None,
            Self::Dont => Some(0),
            Self::Want => Some(1),
            Self::Do => Some(2),
            Self::Probe => Some(3),
            Self::Interface => Some(4),
            Self::Omit => Some(5),
        }
    }
}

/// A setting that could not be applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fallback {
    /// The setting, and its replacement.
    pub what: String,
    /// The reason.
    pub why: String,
}

impl std::fmt::Display for Fallback {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.what, self.why)
    }
}

/// One socket of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketReport {
    /// The bound address.
    pub address: SocketAddr,
    /// The workers that read it.
    pub workers: Vec<usize>,
    /// The CPUs whose packets are steered to it; empty without steering.
    pub cpus: Vec<u32>,
    /// Bytes of socket memory for receiving, as `getsockopt` returns it. The kernel doubles the requested size to account for
    /// its own data per packet (socket(7)), and grants at most twice `net.core.rmem_max` without `CAP_NET_ADMIN`.
    pub receive_buffer_bytes: usize,
    /// Bytes of socket memory for sending, limited by `net.core.wmem_max` in the same way.
    pub send_buffer_bytes: usize,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct SocketSetup {
    pub(crate) path_mtu_discovery: PathMtuDiscovery,
    pub(crate) busy_poll: Option<Duration>,
    pub(crate) receive_buffer: Option<usize>,
    pub(crate) send_buffer: Option<usize>,
    pub(crate) only_v6: bool,
    pub(crate) receive_times: bool,
    pub(crate) traffic_class: bool,
    pub(crate) gro: bool,
}

// Longest wait for room in the send buffer. Only a blocked link makes a worker wait that long; without a limit it could not
// be stopped.
const SEND_TIMEOUT: Duration = Duration::from_millis(500);

/// Interval at which a worker of an adopted socket checks whether to stop.
const RECEIVE_TIMEOUT: Duration = Duration::from_millis(100);

/// The control data that gives replies the destination of their request as source.
pub(crate) fn pktinfo_for(address: SocketAddr) -> PktinfoMode {
    match address {
        _ if !address.ip().to_canonical().is_unspecified() => PktinfoMode::Off,
        SocketAddr::V4(_) => PktinfoMode::V4,
        SocketAddr::V6(_) => PktinfoMode::V6,
    }
}

impl SocketSetup {
    /// Opens and binds one socket. Equal fallbacks of several sockets are noted once.
    pub(crate) fn open(
        &self,
        address: SocketAddr,
        reuseport: bool,
        fallbacks: &mut Vec<Fallback>,
    ) -> Result<Socket, ServerError> {
        let socket = self.open_plain(address)?;
        if reuseport {
            socket.set_reuse_port(true).map_err(socket_error("setting SO_REUSEPORT", address))?;
        }
        self.apply_options(&socket, address, fallbacks)?;
        bind(&socket, address)?;
        Ok(socket)
    }

    pub(crate) fn adopt(
        &self,
        socket: &Socket,
        address: SocketAddr,
        fallbacks: &mut Vec<Fallback>,
    ) -> Result<(), ServerError> {
        socket.set_nonblocking(false).map_err(socket_error("making it blocking", address))?;
        // A shutdown would affect other owners of the socket, so workers wake up from time to time instead.
        socket
            .set_read_timeout(Some(RECEIVE_TIMEOUT))
            .map_err(socket_error("setting SO_RCVTIMEO", address))?;
        self.apply_options(socket, address, fallbacks)
    }

    /// The control data of each message of a socket on `address`.
    pub(crate) fn control_request(&self, address: SocketAddr) -> ControlRequest {
        ControlRequest {
            pktinfo: pktinfo_for(address),
            times: self.receive_times,
            traffic_class: self.traffic_class,
            gro: self.gro,
        }
    }

    fn apply_options(
        &self,
        socket: &Socket,
        address: SocketAddr,
        fallbacks: &mut Vec<Fallback>,
    ) -> Result<(), ServerError> {
        socket.set_write_timeout(Some(SEND_TIMEOUT)).map_err(socket_error("setting SO_SNDTIMEO", address))?;
        if pktinfo_for(address) != PktinfoMode::Off {
            // Both on a dual-stack socket: IP_PKTINFO gives the local address that answers a broadcast,
            // IPV6_PKTINFO does not.
            self.set_ip_option(socket, address, libc::IP_PKTINFO, libc::IPV6_RECVPKTINFO, 1)
                .map_err(socket_error("asking for the destination address (IP_PKTINFO)", address))?;
            // Replies from addresses that only a local route has (AnyIP), as IPv4 sends them without an option
            // (net/ipv6/datagram.c, `ip6_datagram_send_ctl`). It fails on IPv4 sockets and on old kernels.
            let _ = option::set(socket, libc::IPPROTO_IPV6, libc::IPV6_FREEBIND, 1);
        }
        if self.receive_times {
            option::set(socket, libc::SOL_SOCKET, control::SO_TIMESTAMPNS, 1)
                .map_err(socket_error("asking for receive times (SO_TIMESTAMPNS)", address))?;
        }
        if self.traffic_class {
            self.set_ip_option(socket, address, libc::IP_RECVTOS, libc::IPV6_RECVTCLASS, 1).map_err(
                socket_error("asking for the traffic class (IP_RECVTOS, IPV6_RECVTCLASS)", address),
            )?;
        }
        if self.gro
            && let Err(error) = option::set(socket, libc::SOL_UDP, libc::UDP_GRO, 1)
        {
            let what = "several datagrams at once (UDP_GRO, Linux 5.0); each comes alone".to_owned();
            add_fallback(fallbacks, what, error.to_string());
        }
        if let Some(value) = self.path_mtu_discovery.value() {
            self.set_ip_option(socket, address, libc::IP_MTU_DISCOVER, libc::IPV6_MTU_DISCOVER, value)
                .map_err(socket_error("setting IP_MTU_DISCOVER", address))?;
        }
        self.set_buffers(socket, fallbacks).map_err(socket_error("setting the socket's buffers", address))?;
        self.set_busy_poll(socket, fallbacks).map_err(socket_error("setting SO_BUSY_POLL", address))?;
        Ok(())
    }

    // Fails if another process has the port, even if it shares it. `SO_REUSEPORT` alone would join any process of the same
    // user silently.
    pub(crate) fn check_free(&self, address: SocketAddr) -> Result<(), ServerError> {
        self.open_plain(address).and_then(|socket| bind(&socket, address)).map_err(|error| match error {
            ServerError::InUse { address, .. } => {
                let is_shared =
                    |socket: Socket| socket.set_reuse_port(true).is_ok() && bind(&socket, address).is_ok();
                ServerError::InUse { address, shareable: self.open_plain(address).is_ok_and(is_shared) }
            }
            other => other,
        })
    }

    fn open_plain(&self, address: SocketAddr) -> Result<Socket, ServerError> {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))
            .map_err(socket_error("opening a UDP socket", address))?;
        if address.is_ipv6() {
            socket.set_only_v6(self.only_v6).map_err(socket_error("setting IPV6_V6ONLY", address))?;
        }
        Ok(socket)
    }

    /// Sets an option of each IP version that the socket serves.
    fn set_ip_option(
        &self,
        socket: &Socket,
        address: SocketAddr,
        v4_option: i32,
        v6_option: i32,
        value: i32,
    ) -> io::Result<()> {
        if address.is_ipv6() {
            option::set(socket, libc::IPPROTO_IPV6, v6_option, value)?;
        }
        if address.is_ipv4() || !self.only_v6 {
            option::set(socket, libc::IPPROTO_IP, v4_option, value)?;
        }
        Ok(())
    }

    fn set_buffers(&self, socket: &Socket, fallbacks: &mut Vec<Fallback>) -> io::Result<()> {
        let mut note_granted = |direction, limit, requested_bytes: usize, granted_bytes| {
            if granted_bytes < requested_bytes.saturating_mul(2) {
                let granted_bytes = granted_bytes / 2;
                add_fallback(
                    fallbacks,
                    format!("a {direction} buffer of {requested_bytes} bytes; {granted_bytes} bytes granted"),
                    format!("exceeding {limit} needs CAP_NET_ADMIN in the initial user namespace"),
                );
            }
        };
        // Above the system's limit with `CAP_NET_ADMIN`.
        if let Some(bytes) = self.receive_buffer {
            if sockopt::set_socket_recv_buffer_size_force(socket, bytes).is_err() {
                socket.set_recv_buffer_size(bytes)?;
            }
            note_granted("receive", "net.core.rmem_max", bytes, socket.recv_buffer_size()?);
        }
        if let Some(bytes) = self.send_buffer {
            if sockopt::set_socket_send_buffer_size_force(socket, bytes).is_err() {
                socket.set_send_buffer_size(bytes)?;
            }
            note_granted("send", "net.core.wmem_max", bytes, socket.send_buffer_size()?);
        }
        Ok(())
    }

    fn set_busy_poll(&self, socket: &Socket, fallbacks: &mut Vec<Fallback>) -> io::Result<()> {
        let Some(duration) = self.busy_poll else { return Ok(()) };
        let microseconds = i32::try_from(duration.as_micros()).unwrap_or(i32::MAX);
        let Err(error) = option::set(socket, libc::SOL_SOCKET, libc::SO_BUSY_POLL, microseconds) else {
            return Ok(());
        };
        let why = match error.raw_os_error() {
            Some(libc::EPERM) => "raising SO_BUSY_POLL over net.core.busy_read needs CAP_NET_ADMIN",
            Some(libc::ENOPROTOOPT) => "this kernel was built without CONFIG_NET_RX_BUSY_POLL",
            _ => return Err(error),
        };
        add_fallback(fallbacks, format!("busy polling for {microseconds} us; not used"), why.to_owned());
        Ok(())
    }
}

fn add_fallback(fallbacks: &mut Vec<Fallback>, what: String, why: String) {
    let fallback = Fallback { what, why };
    if !fallbacks.contains(&fallback) {
        fallbacks.push(fallback);
    }
}

/// Makes the error of a step in opening a socket.
fn socket_error(what: &'static str, address: SocketAddr) -> impl Fn(io::Error) -> ServerError {
    move |source| ServerError::Socket { what, address, source }
}

fn bind(socket: &Socket, address: SocketAddr) -> Result<(), ServerError> {
    socket.bind(&address.into()).map_err(|source| match source.raw_os_error() {
        Some(libc::EADDRINUSE) => ServerError::InUse { address, shareable: false },
        Some(libc::EACCES) => ServerError::BindNotPermitted { address },
        Some(libc::EADDRNOTAVAIL) => ServerError::NotLocal { address },
        _ => ServerError::Socket { what: "binding", address, source },
    })
}

/// The address of a bound socket.
pub(crate) fn local_address(
    socket: &Socket,
    requested_address: SocketAddr,
) -> Result<SocketAddr, ServerError> {
    let read_error = socket_error("reading the bound address", requested_address);
    let address = socket.local_addr().map_err(&read_error)?;
    address.as_socket().ok_or_else(|| read_error(io::Error::from_raw_os_error(libc::EAFNOSUPPORT)))
}

/// Bytes of the receive and the send buffer.
pub(crate) fn buffers(socket: &Socket, address: SocketAddr) -> Result<(usize, usize), ServerError> {
    let read = || Ok((socket.recv_buffer_size()?, socket.send_buffer_size()?));
    read().map_err(socket_error("reading the buffer sizes", address))
}
