//! The sockets for one address, or an adopted socket.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use socket2::{Protocol, Socket, Type};

use super::setup::ServerPlan;
use crate::error::ServerError;
use crate::socket::{self, Fallback, SocketReport, SocketSetup};
use crate::sys::{interface, option};

/// Sockets that are bound.
pub(super) struct BoundSockets {
    pub(super) address: SocketAddr,
    pub(super) sockets: Vec<Socket>,
}

/// A multicast group to join.
#[derive(Debug, Clone)]
pub(super) struct MulticastGroup {
    pub(super) group: IpAddr,
    /// The name of the interface.
    pub(super) interface: String,
}

impl BoundSockets {
    // `shared`: the number of sockets that share the port, or `None` for one that does not.
    pub(super) fn bind(
        asked: SocketAddr,
        shared: Option<usize>,
        options: &SocketSetup,
        fallbacks: &mut Vec<Fallback>,
    ) -> Result<Self, ServerError> {
        let first = options.open(asked, shared.is_some(), fallbacks)?;
        let address = socket::local_address(&first, asked)?;
        let mut sockets = vec![first];
        while sockets.len() < shared.unwrap_or(1) {
            sockets.push(options.open(address, true, fallbacks)?);
        }
        Ok(Self { address, sockets })
    }

    /// A socket that is bound already.
    pub(super) fn adopt(
        socket: &OwnedFd,
        options: &SocketSetup,
        fallbacks: &mut Vec<Fallback>,
    ) -> Result<Self, ServerError> {
        let refused = |why| ServerError::Adopted { why };
        let socket = socket.try_clone().map_err(|_| refused("no file descriptor is left to duplicate it"))?;
        let socket = Socket::from(socket);
        let address = socket.local_addr().ok().and_then(|address| address.as_socket());
        let address = address.ok_or_else(|| refused("it is not an IP socket"))?;
        let udp = socket.r#type().is_ok_and(|found| found == Type::DGRAM)
            && socket.protocol().is_ok_and(|found| found == Some(Protocol::UDP));
        if !udp {
            return Err(refused("it is not a UDP socket"));
        }
        if address.port() == 0 {
            return Err(refused("it is not bound: bind it first"));
        }
        options.adopt(&socket, address, fallbacks)?;
        Ok(Self { address, sockets: vec![socket] })
    }

    // The options that the kernel granted; `before` workers serve other addresses.
    pub(super) fn reports(&self, before: usize, plan: &ServerPlan) -> Result<Vec<SocketReport>, ServerError> {
        let several = self.sockets.len() > 1;
        let report = |(index, socket)| {
            let (receive_buffer_bytes, send_buffer_bytes) = socket::buffers(socket, self.address)?;
            let workers =
                if several { vec![before + index] } else { (before..before + plan.workers).collect() };
            let cpus = plan.table.as_ref().map(|table| table.cpus_of(index)).unwrap_or_default();
            let address = self.address;
            Ok(SocketReport { address, workers, cpus, receive_buffer_bytes, send_buffer_bytes })
        };
        self.sockets.iter().enumerate().map(report).collect()
    }

    /// Whether datagrams to the group come to its sockets.
    fn receives_group(&self, group: IpAddr) -> bool {
        let own = self.address.ip();
        own == group || (own.is_unspecified() && own.is_ipv4() == group.is_ipv4())
    }
}

// Linux 4.20 (include/uapi/linux/in6.h).
const IPV6_MULTICAST_ALL: i32 = 29;

/// Joins each group by one socket of each listener whose address receives it.
pub(super) fn join(groups: &[MulticastGroup], listeners: &[BoundSockets]) -> Result<(), ServerError> {
    if groups.is_empty() {
        return Ok(());
    }
    for socket in listeners.iter().flat_map(|listener| &listener.sockets) {
        // The second call fails on IPv4 sockets, which do not need it.
        let done = option::set(socket, libc::IPPROTO_IP, libc::IP_MULTICAST_ALL, 0);
        let _ = option::set(socket, libc::IPPROTO_IPV6, IPV6_MULTICAST_ALL, 0);
        done.map_err(|source| ServerError::Group {
            group: groups[0].group,
            why: format!("setting IP_MULTICAST_ALL: {source}"),
        })?;
    }
    for (number, MulticastGroup { group, interface }) in groups.iter().enumerate() {
        let failed = |why: String| ServerError::Group { group: *group, why };
        if !group.is_multicast() {
            return Err(failed("it is no multicast address".to_owned()));
        }
        let index = interface::index(interface)
            .map_err(|error| failed(format!("there is no interface {interface}: {error}")))?;
        let hearing: Vec<&BoundSockets> =
            listeners.iter().filter(|listener| listener.receives_group(*group)).collect();
        if hearing.is_empty() {
            let family = if group.is_ipv4() { "0.0.0.0" } else { "[::]" };
            return Err(failed(format!(
                "datagrams to it come to no address served: bind {family} or the group itself"
            )));
        }
        for listener in hearing {
            let socket = &listener.sockets[number % listener.sockets.len()];
            let joined = match group {
                IpAddr::V4(v4) => {
                    socket.join_multicast_v4_n(v4, &socket2::InterfaceIndexOrAddress::Index(index))
                }
                IpAddr::V6(v6) => socket.join_multicast_v6(v6, index),
            };
            joined.map_err(|source| failed(format!("joining it on {interface}: {source}")))?;
        }
    }
    Ok(())
}
