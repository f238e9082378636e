//! BPF programs at the bind hooks of a control group (`bpf/replicas.bpf.c`): several processes in
//! the group can bind one port, although they do not request SO_REUSEPORT.
//!
//! Linux 6.1. The programs are detached when [`BindHooks`] is dropped or its process ends. Sockets
//! that are bound already keep the option.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use aya::maps::{MapData, RingBuf};
use aya::programs::{CgroupAttachMode, Program};
use aya::{Ebpf, EbpfLoader};

use crate::background::pause_after_burst;
use crate::bpf;
use crate::netlink::diag_sockets;
use crate::netlink::sock_diag::SocketProtocol;
use crate::root::ExplainedErrno;

static OBJECT: &[u8] =
    aya::include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/../bpf/replicas.bpf.o"));

const PROGRAMS: [&str; 4] =
    ["linerate_bind4", "linerate_bind6", "linerate_post_bind4", "linerate_post_bind6"];

/// Bytes of struct bind_event.
const EVENT_BYTES: usize = 56;

pub struct BindHooks {
    events: RingBuf<MapData>,
    /// Holds the links.
    _object: Ebpf,
}

/// A call of bind(2) with a port other than 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BindEvent {
    pub stage: BindStage,
    /// Socket cookie.
    pub cookie: u64,
    /// Inode of the directory of the process's control group.
    pub cgroup: u64,
    pub pid: u32,
    pub uid: u32,
    pub protocol: SocketProtocol,
    /// The address is unspecified in [`BindStage::Asked`].
    pub local: SocketAddr,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BindStage {
    Asked {
        /// Whether the hook set SO_REUSEPORT.
        shared: bool,
        /// The errno(3) with which the kernel refused the option; 0 if it did not.
        errno: i32,
    },
    /// The socket has the port.
    Bound,
}

impl BindHooks {
    /// Attaches the programs to the directory of a control group (v2), for this port only, or for
    /// every port.
    ///
    /// # Errors
    /// `EPERM` without CAP_BPF and CAP_NET_ADMIN; a kernel without the hooks.
    pub fn attach(cgroup: BorrowedFd<'_>, port: Option<u16>) -> io::Result<Self> {
        Self::load(cgroup, port).map_err(explain_error)
    }

    fn load(cgroup: BorrowedFd<'_>, port: Option<u16>) -> io::Result<Self> {
        pause_after_burst();
        let port = port.unwrap_or_default();
        let mut loader = EbpfLoader::new();
        let mut object =
            loader.override_global("shared_port", &port, true).load(OBJECT).map_err(bpf::error)?;
        // Programs that report a bound socket are attached last, so that the request of each
        // reported bind was seen.
        for name in PROGRAMS {
            pause_after_burst();
            match object.program_mut(name).ok_or_else(|| bpf::missing(name))? {
                // A link never replaces another program, so it needs no flag.
                Program::CgroupSockAddr(program) => {
                    program.load().map_err(bpf::error)?;
                    program.attach(cgroup, CgroupAttachMode::Single).map_err(bpf::error)?;
                }
                Program::CgroupSock(program) => {
                    program.load().map_err(bpf::error)?;
                    program.attach(cgroup, CgroupAttachMode::Single).map_err(bpf::error)?;
                }
                _ => return Err(bpf::missing(name)),
            }
        }
        let events = object.take_map("bind_events").ok_or_else(|| bpf::missing("bind_events"))?;
        Ok(Self { events: events.try_into().map_err(bpf::error)?, _object: object })
    }

    /// The next event, without waiting. The descriptor is readable when there is one.
    pub fn next_event(&mut self) -> Option<BindEvent> {
        loop {
            let item = self.events.next()?;
            if let Some(event) = parse(&item) {
                return Some(event);
            }
        }
    }
}

impl AsFd for BindHooks {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}

fn explain_error(error: io::Error) -> io::Error {
    let message = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => "it requires CAP_BPF and CAP_NET_ADMIN: run it as root",
        Some(libc::EINVAL) => {
            "the kernel does not let a BPF program set SO_REUSEPORT at bind: it requires Linux 6.1 with \
             CONFIG_CGROUP_BPF"
        }
        _ => return error,
    };
    ExplainedErrno::error(error.raw_os_error().unwrap_or_default(), message)
}

// Reads a struct bind_event; `None` for other protocols.
fn parse(bytes: &[u8]) -> Option<BindEvent> {
    let bytes: &[u8; EVENT_BYTES] = bytes.first_chunk()?;
    let long = |offset: usize| bytes[offset..].first_chunk().copied().map(u64::from_ne_bytes);
    let word = |offset: usize| bytes[offset..].first_chunk().copied().map(u32::from_ne_bytes);
    let [kind, protocol, family, shared] = *bytes[24..].first_chunk()?;
    let address: [u8; 16] = *bytes[36..].first_chunk()?;
    let [a, b, c, d, ..] = address;
    let ip = match libc::c_int::from(family) {
        libc::AF_INET => IpAddr::from(Ipv4Addr::new(a, b, c, d)),
        libc::AF_INET6 => IpAddr::from(Ipv6Addr::from(address)),
        _ => return None,
    };
    let protocol = match libc::c_int::from(protocol) {
        libc::IPPROTO_UDP => SocketProtocol::Udp,
        libc::IPPROTO_TCP => SocketProtocol::Tcp,
        _ => return None,
    };
    let request_stage = || Some(BindStage::Asked { shared: shared != 0, errno: -word(32)?.cast_signed() });
    Some(BindEvent {
        stage: if kind == 0 { request_stage()? } else { BindStage::Bound },
        cookie: long(0)?,
        cgroup: long(8)?,
        pid: word(16)?,
        uid: word(20)?,
        protocol,
        local: SocketAddr::new(ip, u16::try_from(word(28)?).ok()?),
    })
}

/// An unconnected UDP socket of this network namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BoundSocket {
    pub cookie: u64,
    pub inode: u64,
    pub local: SocketAddr,
    /// IPV6_V6ONLY of an IPv6 socket; `None` if the kernel does not report it.
    pub v6_only: Option<bool>,
    /// Memory of the datagrams in its buffer, bytes.
    pub queued: u64,
    /// Datagrams dropped because the buffer was full; `None` if the kernel does not report it.
    pub drops: Option<u64>,
}

/// The UDP sockets that are bound to this port, on any address.
///
/// # Errors
/// `ENOENT` without the module udp_diag.
pub fn sockets_on(port: u16) -> io::Result<Vec<BoundSocket>> {
    let mut sockets = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        let entries = diag_sockets(family, SocketProtocol::Udp)?;
        sockets.extend(entries.into_iter().filter(|socket| socket.local.port() == port).map(|socket| {
            BoundSocket {
                cookie: socket.cookie.unwrap_or_default(),
                inode: socket.inode,
                local: socket.local,
                v6_only: socket.v6_only,
                queued: socket.queued,
                drops: socket.drops,
            }
        }));
    }
    Ok(sockets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bind_events_parse_and_truncated_or_icmp_events_are_rejected() {
        let mut bytes = [0_u8; EVENT_BYTES];
        bytes[..8].copy_from_slice(&41_u64.to_ne_bytes());
        bytes[8..16].copy_from_slice(&7_u64.to_ne_bytes());
        bytes[16..20].copy_from_slice(&812_u32.to_ne_bytes());
        bytes[24..28].copy_from_slice(&[0, 17, 2, 1]);
        bytes[28..32].copy_from_slice(&53_u32.to_ne_bytes());
        bytes[32..36].copy_from_slice(&(-22_i32).to_ne_bytes());
        bytes[36..40].copy_from_slice(&[127, 0, 0, 1]);
        let event = parse(&bytes).expect("an event");
        assert_eq!(event.stage, BindStage::Asked { shared: true, errno: 22 });
        assert_eq!((event.cookie, event.cgroup, event.pid), (41, 7, 812));
        assert_eq!(event.local, SocketAddr::from(([127, 0, 0, 1], 53)));
        bytes[24] = 1;
        assert_eq!(parse(&bytes).expect("an event").stage, BindStage::Bound);
        bytes[25] = 1;
        assert_eq!(parse(&bytes), None, "ICMP");
        assert_eq!(parse(&bytes[..50]), None);
    }
}
