//! The sockets for one address, or an adopted socket.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use socket2::{Protocol, Socket, Type};

use super::setup::ServerPlan;
use crate::error::ServerError;
use crate::socket::{self, Fallback, SocketReport, SocketSetup};
use crate::sys::{interface, option};

pub(super) struct BoundSockets {
    pub(super) address: SocketAddr,
    pub(super) sockets: Vec<Socket>,
}

#[derive(Debug, Clone)]
pub(super) struct MulticastGroup {
    pub(super) group: IpAddr,
    pub(super) interface: String,
}

impl BoundSockets {
    // `socket_count`: the number of sockets that share the port, or `None` for one that does not.
    pub(super) fn bind(
        requested_address: SocketAddr,
        socket_count: Option<usize>,
        options: &SocketSetup,
        fallbacks: &mut Vec<Fallback>,
    ) -> Result<Self, ServerError> {
        let first = options.open(requested_address, socket_count.is_some(), fallbacks)?;
        let address = socket::local_address(&first, requested_address)?;
        let mut sockets = vec![first];
        while sockets.len() < socket_count.unwrap_or(1) {
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
        let adopt_error = |why| ServerError::Adopted { why };
        let socket =
            socket.try_clone().map_err(|_| adopt_error("no file descriptor is left to duplicate it"))?;
        let socket = Socket::from(socket);
        let address = socket.local_addr().ok().and_then(|address| address.as_socket());
        let address = address.ok_or_else(|| adopt_error("it is not an IP socket"))?;
        let is_udp = socket.r#type().is_ok_and(|value| value == Type::DGRAM)
            && socket.protocol().is_ok_and(|value| value == Some(Protocol::UDP));
        if !is_udp {
            return Err(adopt_error("it is not a UDP socket"));
        }
        if address.port() == 0 {
            return Err(adopt_error("it is not bound: bind it first"));
        }
        options.adopt(&socket, address, fallbacks)?;
        Ok(Self { address, sockets: vec![socket] })
    }

    // The options that the kernel granted; the workers before `first_worker` serve other addresses.
    pub(super) fn reports(
        &self,
        first_worker: usize,
        plan: &ServerPlan,
    ) -> Result<Vec<SocketReport>, ServerError> {
        let has_several = self.sockets.len() > 1;
        let report = |(index, socket)| {
            let (receive_buffer_bytes, send_buffer_bytes) = socket::buffers(socket, self.address)?;
            let workers = if has_several {
                vec![first_worker + index]
            } else {
                (first_worker..first_worker + plan.workers).collect()
            };
            let cpus = plan.table.as_ref().map(|table| table.cpus_of(index)).unwrap_or_default();
            let address = self.address;
            Ok(SocketReport { address, workers, cpus, receive_buffer_bytes, send_buffer_bytes })
        };
        self.sockets.iter().enumerate().map(report).collect()
    }

    /// Whether datagrams to the group come to its sockets.
    fn receives_group(&self, group: IpAddr) -> bool {
        let own_ip = self.address.ip();
        own_ip == group || (own_ip.is_unspecified() && own_ip.is_ipv4() == group.is_ipv4())
    }
}

// Linux 4.20 (include/uapi/linux/in6.h).
const IPV6_MULTICAST_ALL: i32 = 29;

/// Joins each group by one socket of each listener whose address receives it. Without groups, the first socket receives those
/// that other programs joined. No other socket receives a copy.
pub(super) fn join_groups(groups: &[MulticastGroup], listeners: &[BoundSockets]) -> Result<(), ServerError> {
    let first_without = usize::from(groups.is_empty());
    for socket in listeners.iter().flat_map(|listener| &listener.sockets[first_without..]) {
        // The second call fails on IPv4 sockets, which do not need it.
        let set_result = option::set(socket, libc::IPPROTO_IP, libc::IP_MULTICAST_ALL, 0);
        let _ = option::set(socket, libc::IPPROTO_IPV6, IPV6_MULTICAST_ALL, 0);
        if let (Err(source), Some(MulticastGroup { group, .. })) = (set_result, groups.first()) {
            let why = format!("setting IP_MULTICAST_ALL: {source}");
            return Err(ServerError::Group { group: *group, why });
        }
    }
    for (number, MulticastGroup { group, interface }) in groups.iter().enumerate() {
        let group_error = |why: String| ServerError::Group { group: *group, why };
        if !group.is_multicast() {
            return Err(group_error("it is no multicast address".to_owned()));
        }
        let index = interface::index(interface)
            .map_err(|error| group_error(format!("there is no interface {interface}: {error}")))?;
        let receiving_listeners: Vec<&BoundSockets> =
            listeners.iter().filter(|listener| listener.receives_group(*group)).collect();
        if receiving_listeners.is_empty() {
            let family = if group.is_ipv4() { "0.0.0.0" } else { "[::]" };
            return Err(group_error(format!(
                "datagrams to it come to no address served: bind {family} or the group itself"
            )));
        }
        for listener in receiving_listeners {
            let socket = &listener.sockets[number % listener.sockets.len()];
            let join_result = match group {
                IpAddr::V4(v4) => {
                    socket.join_multicast_v4_n(v4, &socket2::InterfaceIndexOrAddress::Index(index))
                }
                IpAddr::V6(v6) => socket.join_multicast_v6(v6, index),
            };
            join_result.map_err(|source| group_error(format!("joining it on {interface}: {source}")))?;
        }
    }
    Ok(())
}
