//! The sockets of a server, and what the kernel granted them.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use socket2::{Domain, Protocol, Socket, Type};

use crate::error::ServerError;
use crate::sys::control::{self, ControlRequest, PktinfoMode};
use crate::sys::option;

/// What is done with replies that do not fit the path (`IP_MTU_DISCOVER` and `IPV6_MTU_DISCOVER`, ip(7)).
///
/// With [`Do`](Self::Do) and [`Probe`](Self::Probe) the kernel sets Don't Fragment, and replies without fragments
/// need no IP identification, which saves picking one for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PathMtuDiscovery {
    /// As the system has it (`net.ipv4.ip_no_pmtu_disc`): the option is not touched.
    #[default]
    System,
    /// Always Don't Fragment. Replies longer than the known path MTU fail and are counted as too long.
    Do,
    /// Never Don't Fragment.
    Dont,
    /// Fragments by the known path MTU, else Don't Fragment.
    Want,
    /// Don't Fragment, and the known path MTU is ignored.
    Probe,
    /// Never Don't Fragment, no longer than the interface's MTU, and ICMP cannot lower it (Linux 3.14).
    Interface,
    /// As [`Interface`](Self::Interface), but fragments what is longer (Linux 3.15).
    Omit,
}

impl PathMtuDiscovery {
    /// The kernel's number, the same for both families (include/uapi/linux/in.h, in6.h).
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

/// Something that was asked for and could not be had, so that the server runs without it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fallback {
    /// What was asked for, and what is used instead.
    pub what: String,
    /// Why.
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
    /// The address it is bound to.
    pub address: SocketAddr,
    /// The workers that read it.
    pub workers: Vec<usize>,
    /// The CPUs whose packets are steered to it; empty without steering.
    pub cpus: Vec<u32>,
    /// Bytes of socket memory granted for receiving, as `getsockopt` tells it. The kernel grants twice what is asked
    /// for, to pay for its own bookkeeping of each packet (socket(7)); without the privilege to exceed it, at most
    /// twice `net.core.rmem_max`.
    pub receive_buffer_bytes: usize,
    /// The same for sending, with `net.core.wmem_max`.
    pub send_buffer_bytes: usize,
}

/// How sockets are to be set up.
#[derive(Debug, Clone, Default)]
pub(crate) struct SocketSetup {
    pub(crate) path_mtu_discovery: PathMtuDiscovery,
    pub(crate) busy_poll: Option<Duration>,
    /// Packets a poll, where polling goes before interrupts.
    pub(crate) prefer_busy_poll: Option<u16>,
    pub(crate) receive_buffer: Option<usize>,
    pub(crate) send_buffer: Option<usize>,
    pub(crate) only_v6: bool,
    /// Whether each request is to come with the time at which the kernel received it.
    pub(crate) receive_times: bool,
    /// Whether it is to come with its TOS or traffic class.
    pub(crate) traffic_class: bool,
    /// Whether one may be several datagrams.
    pub(crate) gro: bool,
}

/// How long a send waits for room in the send buffer. Only a link that does not take packets makes it wait so long;
/// without an end to it a worker could not be stopped.
const SEND_TIMEOUT: Duration = Duration::from_millis(500);

/// After how long a worker of an adopted socket looks whether it is to end.
const RECEIVE_TIMEOUT: Duration = Duration::from_millis(100);

/// The control data needed so that replies leave from where requests came to.
pub(crate) fn pktinfo_for(address: SocketAddr) -> PktinfoMode {
    match address {
        _ if !address.ip().to_canonical().is_unspecified() => PktinfoMode::Off,
        SocketAddr::V4(_) => PktinfoMode::V4,
        SocketAddr::V6(_) => PktinfoMode::V6,
    }
}

impl SocketSetup {
    /// Opens and binds one socket. Fallbacks are noted once: the next sockets meet the same ones.
    pub(crate) fn open(
        &self,
        address: SocketAddr,
        reuseport: bool,
        fallbacks: &mut Vec<Fallback>,
    ) -> Result<Socket, ServerError> {
        let failed = |what: &'static str| move |source| ServerError::Socket { what, address, source };
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))
            .map_err(failed("opening a UDP socket"))?;
        if address.is_ipv6() {
            socket.set_only_v6(self.only_v6).map_err(failed("setting IPV6_V6ONLY"))?;
        }
        if reuseport {
            socket.set_reuse_port(true).map_err(failed("setting SO_REUSEPORT"))?;
        }
        self.set_up(&socket, address, fallbacks)?;
        bind(&socket, address)?;
        Ok(socket)
    }

    /// Sets up a socket that others made.
    pub(crate) fn adopt(
        &self,
        socket: &Socket,
        address: SocketAddr,
        fallbacks: &mut Vec<Fallback>,
    ) -> Result<(), ServerError> {
        let what = "making it blocking";
        socket.set_nonblocking(false).map_err(|source| ServerError::Socket { what, address, source })?;
        // It is not shut down at the end, since that would be so for all who have it. So workers look up now and then.
        let what = "setting SO_RCVTIMEO";
        socket.set_read_timeout(Some(RECEIVE_TIMEOUT)).map_err(|source| ServerError::Socket {
            what,
            address,
            source,
        })?;
        self.set_up(socket, address, fallbacks)
    }

    /// The control data that comes with each message of a socket on `address`.
    pub(crate) fn asked(&self, address: SocketAddr) -> ControlRequest {
        ControlRequest {
            pktinfo: pktinfo_for(address),
            times: self.receive_times,
            traffic_class: self.traffic_class,
            gro: self.gro,
        }
    }

    fn set_up(
        &self,
        socket: &Socket,
        address: SocketAddr,
        fallbacks: &mut Vec<Fallback>,
    ) -> Result<(), ServerError> {
        let failed = |what: &'static str| move |source| ServerError::Socket { what, address, source };
        socket.set_write_timeout(Some(SEND_TIMEOUT)).map_err(failed("setting SO_SNDTIMEO"))?;
        self.ask_for_pktinfo(socket, address)
            .map_err(failed("asking for the destination address (IP_PKTINFO)"))?;
        if self.receive_times {
            option::set(socket, libc::SOL_SOCKET, control::SO_TIMESTAMPNS_NEW, 1)
                .map_err(failed("asking for receive times (SO_TIMESTAMPNS_NEW, Linux 5.1)"))?;
        }
        if self.traffic_class {
            self.ask_for_traffic_class(socket, address)
                .map_err(failed("asking for the traffic class (IP_RECVTOS, IPV6_RECVTCLASS)"))?;
        }
        if self.gro
            && let Err(error) = option::set(socket, libc::SOL_UDP, libc::UDP_GRO, 1)
        {
            let what = "several datagrams at once (UDP_GRO, Linux 5.0); each comes alone".to_owned();
            note(fallbacks, what, error.to_string());
        }
        self.set_path_mtu_discovery(socket, address).map_err(failed("setting IP_MTU_DISCOVER"))?;
        self.set_buffers(socket, fallbacks).map_err(failed("setting the socket's buffers"))?;
        self.set_busy_poll(socket, fallbacks).map_err(failed("setting SO_BUSY_POLL"))?;
        self.set_prefer_busy_poll(socket, fallbacks);
        Ok(())
    }

    /// Whether somebody else holds the port, even one who would share it. To be asked before joining by
    /// `SO_REUSEPORT`, which lets any process of the same user in without a word.
    pub(crate) fn check_free(&self, address: SocketAddr) -> Result<(), ServerError> {
        self.open_plain(address).and_then(|socket| bind(&socket, address)).map_err(|error| match error {
            ServerError::InUse { address, .. } => {
                ServerError::InUse { address, shareable: self.is_shareable(address) }
            }
            other => other,
        })
    }

    fn is_shareable(&self, address: SocketAddr) -> bool {
        self.open_plain(address)
            .and_then(|socket| {
                socket.set_reuse_port(true).map_err(|source| ServerError::Socket {
                    what: "setting",
                    address,
                    source,
                })?;
                bind(&socket, address)
            })
            .is_ok()
    }

    fn open_plain(&self, address: SocketAddr) -> Result<Socket, ServerError> {
        let failed = |source| ServerError::Socket { what: "opening a UDP socket", address, source };
        let socket =
            Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP)).map_err(failed)?;
        if address.is_ipv6() {
            socket.set_only_v6(self.only_v6).map_err(failed)?;
        }
        Ok(socket)
    }

    fn ask_for_pktinfo(&self, socket: &Socket, address: SocketAddr) -> io::Result<()> {
        let pktinfo = pktinfo_for(address);
        if pktinfo == PktinfoMode::V6 {
            option::set(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1)?;
        }
        // On a dual-stack socket it says which local address answers a broadcast; IPV6_PKTINFO does not.
        if pktinfo == PktinfoMode::V4 || pktinfo == PktinfoMode::V6 && !self.only_v6 {
            option::set(socket, libc::IPPROTO_IP, libc::IP_PKTINFO, 1)?;
        }
        Ok(())
    }

    fn ask_for_traffic_class(&self, socket: &Socket, address: SocketAddr) -> io::Result<()> {
        if address.is_ipv6() {
            option::set(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1)?;
        }
        if address.is_ipv4() || !self.only_v6 {
            option::set(socket, libc::IPPROTO_IP, libc::IP_RECVTOS, 1)?;
        }
        Ok(())
    }

    fn set_path_mtu_discovery(&self, socket: &Socket, address: SocketAddr) -> io::Result<()> {
        let Some(value) = self.path_mtu_discovery.value() else {
            return Ok(());
        };
        if address.is_ipv6() {
            option::set(socket, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, value)?;
        }
        if address.is_ipv4() || !self.only_v6 {
            option::set(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, value)?;
        }
        Ok(())
    }

    fn set_buffers(&self, socket: &Socket, fallbacks: &mut Vec<Fallback>) -> io::Result<()> {
        if let Some(wanted) = self.receive_buffer {
            let force = libc::SO_RCVBUFFORCE;
            let granted =
                grant(socket, wanted, force, Socket::set_recv_buffer_size, Socket::recv_buffer_size)?;
            note_buffer(fallbacks, "receive", wanted, granted, "net.core.rmem_max");
        }
        if let Some(wanted) = self.send_buffer {
            let force = libc::SO_SNDBUFFORCE;
            let granted =
                grant(socket, wanted, force, Socket::set_send_buffer_size, Socket::send_buffer_size)?;
            note_buffer(fallbacks, "send", wanted, granted, "net.core.wmem_max");
        }
        Ok(())
    }

    fn set_busy_poll(&self, socket: &Socket, fallbacks: &mut Vec<Fallback>) -> io::Result<()> {
        let Some(wanted) = self.busy_poll else {
            return Ok(());
        };
        let microseconds = i32::try_from(wanted.as_micros()).unwrap_or(i32::MAX);
        let Err(error) = option::set(socket, libc::SOL_SOCKET, libc::SO_BUSY_POLL, microseconds) else {
            return Ok(());
        };
        let why = match error.raw_os_error() {
            Some(libc::EPERM) => "raising SO_BUSY_POLL over net.core.busy_read needs CAP_NET_ADMIN",
            Some(libc::ENOPROTOOPT) => "this kernel was built without CONFIG_NET_RX_BUSY_POLL",
            _ => return Err(error),
        };
        note(fallbacks, format!("busy polling for {microseconds} us; not used"), why.to_owned());
        Ok(())
    }

    fn set_prefer_busy_poll(&self, socket: &Socket, fallbacks: &mut Vec<Fallback>) {
        let Some(packets) = self.prefer_busy_poll else {
            return;
        };
        let what = "busy polling before interrupts (SO_PREFER_BUSY_POLL); not used";
        if self.busy_poll.is_none_or(|time| time.is_zero()) {
            return note(fallbacks, what.to_owned(), "no time to poll was given (busy_poll)".to_owned());
        }
        let set = |name, value| option::set(socket, libc::SOL_SOCKET, name, value);
        let done = set(SO_PREFER_BUSY_POLL, 1).and_then(|()| set(SO_BUSY_POLL_BUDGET, packets.into()));
        if let Err(error) = done {
            let why = match error.raw_os_error() {
                Some(libc::EPERM) => "it needs CAP_NET_ADMIN".to_owned(),
                Some(libc::ENOPROTOOPT) => "it needs Linux 5.11 with CONFIG_NET_RX_BUSY_POLL".to_owned(),
                _ => error.to_string(),
            };
            note(fallbacks, what.to_owned(), why);
        }
    }
}

/// `SO_PREFER_BUSY_POLL` and `SO_BUSY_POLL_BUDGET` (include/uapi/asm-generic/socket.h, Linux 5.11).
const SO_PREFER_BUSY_POLL: i32 = 69;
const SO_BUSY_POLL_BUDGET: i32 = 70;

/// Sets a buffer size, past the system's limit where privilege allows it. Returns what `getsockopt` says then.
fn grant(
    socket: &Socket,
    wanted: usize,
    force: i32,
    set: impl Fn(&Socket, usize) -> io::Result<()>,
    get: impl Fn(&Socket) -> io::Result<usize>,
) -> io::Result<usize> {
    let forced = i32::try_from(wanted).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    if option::set(socket, libc::SOL_SOCKET, force, forced).is_err() {
        set(socket, wanted)?;
    }
    get(socket)
}

fn note_buffer(fallbacks: &mut Vec<Fallback>, which: &str, wanted: usize, granted: usize, limit: &str) {
    if granted < wanted.saturating_mul(2) {
        let what = format!("a {which} buffer of {wanted} bytes; {} bytes granted", granted / 2);
        note(fallbacks, what, format!("exceeding {limit} needs CAP_NET_ADMIN in the initial user namespace"));
    }
}

fn note(fallbacks: &mut Vec<Fallback>, what: String, why: String) {
    let fallback = Fallback { what, why };
    if !fallbacks.contains(&fallback) {
        fallbacks.push(fallback);
    }
}

fn bind(socket: &Socket, address: SocketAddr) -> Result<(), ServerError> {
    socket.bind(&address.into()).map_err(|source| match source.raw_os_error() {
        Some(libc::EADDRINUSE) => ServerError::InUse { address, shareable: false },
        Some(libc::EACCES) => ServerError::BindNotPermitted { address },
        Some(libc::EADDRNOTAVAIL) => ServerError::NotLocal { address },
        _ => ServerError::Socket { what: "binding", address, source },
    })
}

/// The address a socket is really bound to.
pub(crate) fn local_address(socket: &Socket, asked: SocketAddr) -> Result<SocketAddr, ServerError> {
    let failed = |source| ServerError::Socket { what: "reading the bound address", address: asked, source };
    let address = socket.local_addr().map_err(failed)?;
    address.as_socket().ok_or_else(|| failed(io::Error::from_raw_os_error(libc::EAFNOSUPPORT)))
}

/// Bytes granted for receiving and sending.
pub(crate) fn buffers(socket: &Socket, address: SocketAddr) -> Result<(usize, usize), ServerError> {
    let read = || Ok((socket.recv_buffer_size()?, socket.send_buffer_size()?));
    read().map_err(|source| ServerError::Socket { what: "reading the buffer sizes", address, source })
}
