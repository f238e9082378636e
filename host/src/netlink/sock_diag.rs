//! Sockets of a protocol (`SOCK_DIAG_BY_FAMILY`, linux/inet_diag.h).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use netlink_sys::protocols::NETLINK_SOCK_DIAG;
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use super::attribute::{attribute, word};
use super::connection::NetlinkConnection;

// `SOCK_DIAG_BY_FAMILY` of linux/sock_diag.h.
const BY_FAMILY: u16 = 20;

/// Bytes of struct inet_diag_msg.
const MESSAGE_BYTES: usize = 72;

// `INET_DIAG_SKMEMINFO`: an array of words with `SK_MEMINFO_RCVBUF` and `_DROPS` among them
// (linux/sock_diag.h).
const MEMORY: u16 = 7;
const RECEIVE_BUFFER: usize = 1;
const DROPS: usize = 8;

// `INET_DIAG_SKV6ONLY`, of unconnected sockets and listeners of IPv6 (linux/inet_diag.h).
const V6_ONLY: u16 = 11;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum SocketProtocol {
    Udp,
    /// Listeners.
    Tcp,
}

impl SocketProtocol {
    pub fn name(self) -> &'static str {
        self.into()
    }
}

// State bits of the request: `1 << TCP_CLOSE`, the state of an unconnected UDP socket, and `1 <<
// TCP_LISTEN` (include/net/tcp_states.h).
const UNCONNECTED: u32 = 1 << 7;
const LISTENING: u32 = 1 << 10;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiagSocket {
    pub local: SocketAddr,
    pub inode: u64,
    /// `None` if the source does not report it.
    #[serde(default)]
    pub cookie: Option<u64>,
    #[serde(default)]
    pub uid: u32,
    /// Index of the interface it is bound to; 0 for none.
    #[serde(default)]
    pub interface_index: u32,
    /// Memory charged to the receive queue in bytes; for a TCP listener, waiting connections.
    #[serde(default)]
    pub queued: u64,
    #[serde(default)]
    pub receive_buffer_bytes: Option<u64>,
    /// Packets lost because the buffer was full, and for other reasons after the socket was found.
    #[serde(default)]
    pub drops: Option<u64>,
    /// IPV6_V6ONLY of an IPv6 socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub v6_only: Option<bool>,
}

/// The unconnected UDP sockets or the TCP listeners of an address family (`libc::AF_INET`), in the
/// calling thread's network namespace. Kernels before 3.3, and those without the `udp_diag` module,
/// return `ENOENT`.
pub(crate) fn sockets(family: libc::c_int, protocol: SocketProtocol) -> io::Result<Vec<DiagSocket>> {
    let request = request(family, protocol)?;
    let answers = NetlinkConnection::open(NETLINK_SOCK_DIAG)?.dump(BY_FAMILY, &request)?;
    let answers = answers.iter().filter(|answer| answer.kind == BY_FAMILY);
    Ok(answers.filter_map(|answer| parse(&answer.body)).collect())
}

// struct inet_diag_req_v2: family, protocol, extensions, padding, states and an empty struct inet_diag_sockid.
fn request(family: libc::c_int, protocol: SocketProtocol) -> io::Result<Vec<u8>> {
    let (number, states) = match protocol {
        SocketProtocol::Udp => (libc::IPPROTO_UDP, UNCONNECTED),
        SocketProtocol::Tcp => (libc::IPPROTO_TCP, LISTENING),
    };
    let byte = |number: libc::c_int| u8::try_from(number).map_err(io::Error::other);
    let mut bytes = vec![byte(family)?, byte(number)?, 1 << (MEMORY - 1), 0];
    bytes.extend(states.to_ne_bytes());
    bytes.resize(bytes.len() + 48, 0);
    Ok(bytes)
}

// Reads a struct inet_diag_msg and its attributes; `None` if it is incomplete or of another
// family.
pub(crate) fn parse(bytes: &[u8]) -> Option<DiagSocket> {
    let family = libc::c_int::from(*bytes.first()?);
    let address: [u8; 16] = bytes.get(8..24)?.try_into().ok()?;
    let ip = match (family, address) {
        (libc::AF_INET, [a, b, c, d, ..]) => IpAddr::from(Ipv4Addr::new(a, b, c, d)),
        (libc::AF_INET6, address) => IpAddr::from(Ipv6Addr::from(address)),
        _ => return None,
    };
    let number = |offset: usize| word(bytes, offset);
    let cookie = u64::from(number(44)?) | u64::from(number(48)?) << 32;
    let attributes = bytes.get(MESSAGE_BYTES..)?;
    let memory = attribute(attributes, MEMORY).unwrap_or_default();
    let item = |index: usize| word(memory, index * 4);
    Some(DiagSocket {
        local: SocketAddr::new(ip, u16::from_be_bytes(*bytes.get(4..)?.first_chunk()?)),
        interface_index: number(40)?,
        cookie: Some(cookie),
        queued: u64::from(number(56)?),
        uid: number(64)?,
        inode: u64::from(number(68)?),
        receive_buffer_bytes: item(RECEIVE_BUFFER).map(u64::from),
        drops: item(DROPS).map(u64::from),
        v6_only: attribute(attributes, V6_ONLY).and_then(|value| Some(*value.first()? != 0)),
    })
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    fn live(family: i32) -> Option<Vec<DiagSocket>> {
        match sockets(family, SocketProtocol::Udp) {
            Ok(sockets) => Some(sockets),
            Err(error) => {
                linerate_testkit::skip("sock_diag_lists_unconnected_sockets_only", error);
                None
            }
        }
    }

    #[test]
    fn sock_diag_lists_unconnected_sockets_only() {
        for (family, address) in [(libc::AF_INET, "127.0.0.1:0"), (libc::AF_INET6, "[::1]:0")] {
            let Ok(socket) = UdpSocket::bind(address) else { continue };
            let local = socket.local_addr().expect("bound");
            let Some(sockets) = live(family) else { return };
            let found = sockets.iter().find(|found| found.local == local).expect("listed");
            assert!(found.inode != 0 && found.cookie.is_some_and(|cookie| cookie != 0));
            assert_eq!((found.queued, found.drops), (0, Some(0)));
            assert!(found.receive_buffer_bytes.is_some_and(|bytes| bytes > 2000));
            assert_eq!(found.v6_only.is_some(), local.is_ipv6());
            let peer = UdpSocket::bind(local.ip().to_string() + ":0").ok();
            if let Some(peer) = peer {
                peer.connect(local).expect("connected");
                let peer = peer.local_addr().expect("bound");
                let Some(sockets) = live(family) else { return };
                assert!(sockets.iter().all(|found| found.local != peer), "connected sockets are not listed");
            }
        }
    }

    #[test]
    fn truncated_or_non_inet_socket_messages_are_none() {
        let mut message = vec![2_u8, 7, 0, 0, 0, 53, 0, 0, 127, 0, 0, 1];
        message.resize(MESSAGE_BYTES, 0);
        message[68] = 9;
        let socket = parse(&message).expect("a socket");
        assert_eq!((socket.local.to_string().as_str(), socket.inode), ("127.0.0.1:53", 9));
        assert_eq!((socket.drops, socket.receive_buffer_bytes), (None, None));
        assert_eq!(parse(&message[..70]), None);
        message[0] = 1;
        assert_eq!(parse(&message), None);
    }
}
