//! The sockets of the generator.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;

use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};
use socket2::{Domain, Protocol, Socket, Type};

use crate::error::{GeneratorError, invalid};
use crate::generator::options::GeneratorOptions;
use crate::sys;

// Receive buffer to request, bytes: replies must not be lost here while a thread is delayed.
pub(super) const RECEIVE_BUFFER_BYTES: usize = 4 << 20;

/// Bytes of UDP and IP headers in front of a payload.
const fn headers_bytes(v4: bool) -> usize {
    if v4 { 28 } else { 48 }
}

pub(super) struct SourceAddresses {
    v4: Vec<IpAddr>,
    v6: Vec<IpAddr>,
}

impl SourceAddresses {
    pub(super) fn from_options(options: &GeneratorOptions) -> Self {
        let (v4, v6) = options.sources.iter().copied().partition(IpAddr::is_ipv4);
        SourceAddresses { v4, v6 }
    }
}

/// Opens and connects the socket of a flow.
pub(super) fn open(
    options: &GeneratorOptions,
    sources: &SourceAddresses,
    id: usize,
) -> Result<Socket, GeneratorError> {
    let target = options.targets[id % options.targets.len()];
    let v4 = target.is_ipv4();
    let domain = if v4 { Domain::IPV4 } else { Domain::IPV6 };
    let socket = Socket::new(domain, Type::DGRAM.cloexec(), Some(Protocol::UDP)).map_err(|source| {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
        match source.raw_os_error() {
            Some(libc::EMFILE) => {
                let needed_files = limit.saturating_add(options.flows as u64);
                GeneratorError::too_many_flows(options.flows, needed_files, limit)
            }
            _ => GeneratorError::system(format!("cannot open socket {id} of {}", options.flows), source),
        }
    })?;
    if let Some(local_address) = source_address(options, sources, id, v4)? {
        socket.bind(&local_address.into()).map_err(|source| bind_error(local_address, source))?;
    }
    socket.connect(&target.into()).map_err(|source| {
        GeneratorError::system(
            format!("cannot connect flow {id} of {} to {target}", options.flows),
            connect_error(source),
        )
    })?;
    if options.no_fragment {
        // Datagrams over the path MTU are refused, not cut.
        let forbid_result = if v4 {
            sockopt::set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::DO)
        } else {
            sockopt::set_ipv6_mtu_discover(&socket, Ipv6PathMtuDiscovery::DO)
        };
        forbid_result
            .map_err(|source| GeneratorError::system("cannot forbid fragments (IP_MTU_DISCOVER)", source))?;
        let mtu = if v4 { sockopt::ip_mtu(&socket) } else { sockopt::ipv6_mtu(&socket) };
        let mtu = mtu.map_err(|source| {
            GeneratorError::system(format!("cannot read the path MTU to {target}"), source)
        })?;
        let max_payload = (mtu as usize).saturating_sub(headers_bytes(v4));
        let payload = options.workload.longest_bytes();
        if payload > max_payload {
            return invalid(format!(
                "payload of {payload} bytes does not fit the path MTU of {mtu} bytes to {target} unfragmented: at \
                 most {max_payload} bytes, or allow fragments"
            ));
        }
    }
    // The forced size may exceed net.core.rmem_max but requires CAP_NET_ADMIN. Otherwise take as
    // much as the limit allows; the granted size is reported.
    if sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER_BYTES).is_err() {
        let _ = socket.set_recv_buffer_size(RECEIVE_BUFFER_BYTES);
    }
    sys::request_receive_stamps(socket.as_fd())
        .map_err(|source| GeneratorError::system("cannot ask for receive times (SO_TIMESTAMPNS)", source))?;
    Ok(socket)
}

/// The requested source of a flow, if any; port 0 for any port.
fn source_address(
    options: &GeneratorOptions,
    sources: &SourceAddresses,
    id: usize,
    v4: bool,
) -> Result<Option<SocketAddr>, GeneratorError> {
    let sources: &[IpAddr] = if v4 { &sources.v4 } else { &sources.v6 };
    let Some(ports) = &options.source_ports else {
        // Flows of one target differ by the number of targets, so divide by it first.
        let turn = id / options.targets.len();
        return Ok(turn.checked_rem(sources.len()).map(|index| SocketAddr::new(sources[index], 0)));
    };
    let any_address = [if v4 { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }];
    let sources = if sources.is_empty() { &any_address[..] } else { sources };
    let row = id / sources.len();
    let too_few = || GeneratorError::too_few_ports(options.flows, ports.len(), sources.len());
    let port = ports.clone().nth(row).ok_or_else(too_few)?;
    // The source moves by one per port, otherwise a target would always get the same sources.
    let source = sources[(id + row) % sources.len()];
    Ok(Some(SocketAddr::new(source, port)))
}

const NO_FREE_PORT: &str =
    "no free source port: fewer flows, more source addresses, or a wider net.ipv4.ip_local_port_range";

fn bind_error(local_address: SocketAddr, source: io::Error) -> GeneratorError {
    let why = match source.raw_os_error() {
        Some(libc::EADDRINUSE) if local_address.port() == 0 => NO_FREE_PORT,
        Some(libc::EADDRNOTAVAIL) => {
            "not an address of this host: add it, or for a whole network `ip route add local NET dev lo`"
        }
        Some(libc::EADDRINUSE) => "another socket has that port: choose other source ports",
        Some(libc::EACCES) => "a port below net.ipv4.ip_unprivileged_port_start needs CAP_NET_BIND_SERVICE",
        _ => return GeneratorError::system(format!("cannot send from {local_address}"), source),
    };
    GeneratorError::system(format!("cannot send from {local_address}"), io::Error::new(source.kind(), why))
}

// EAGAIN from connect means that no source port is left (ip(7)).
fn connect_error(source: io::Error) -> io::Error {
    match source.raw_os_error() {
        Some(libc::EAGAIN | libc::EADDRINUSE) => io::Error::new(source.kind(), NO_FREE_PORT),
        _ => source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn source_of_flow(options: &GeneratorOptions, id: usize) -> Result<Option<SocketAddr>, GeneratorError> {
        source_address(options, &SourceAddresses::from_options(options), id, true)
    }

    fn flow_addresses(options: &GeneratorOptions) -> Vec<(usize, SocketAddr)> {
        let flow = |id| (id % options.targets.len(), source_of_flow(options, id).unwrap().unwrap());
        (0..options.flows).map(flow).collect()
    }

    #[test]
    fn flows_use_each_source_and_port_pair_once_across_all_targets() {
        let targets = vec!["10.0.0.1:7".parse().unwrap(), "10.0.0.2:7".parse().unwrap()];
        let options = GeneratorOptions {
            sources: vec!["10.0.1.1".parse().unwrap(), "10.0.1.2".parse().unwrap()],
            source_ports: Some(5000..=5003),
            flows: 8,
            ..GeneratorOptions::new(targets)
        };
        let flows = flow_addresses(&options);
        let pairs: HashSet<SocketAddr> = flows.iter().map(|(_, from)| *from).collect();
        assert_eq!(pairs.len(), 8, "no pair of source and port is used twice");
        let paths: HashSet<(usize, IpAddr)> = flows.iter().map(|(to, from)| (*to, from.ip())).collect();
        assert_eq!(paths.len(), 4);
        assert!(flows.iter().take(2).all(|(_, from)| from.port() == 5000));
        let error = source_of_flow(&GeneratorOptions { flows: 9, ..options }, 8).unwrap_err().to_string();
        assert!(
            error.contains("9 flows, but 4 source ports on 2 source") && error.contains("8 flows"),
            "{error}"
        );
    }

    #[test]
    fn a_port_in_use_is_reported_only_if_it_was_requested() {
        for (address, words) in [("10.0.0.5:0", "no free source port"), ("10.0.0.5:9", "another socket")] {
            let error = io::Error::from_raw_os_error(libc::EADDRINUSE);
            let text = bind_error(address.parse().unwrap(), error).to_string();
            assert!(text.contains(words), "{text}");
        }
    }

    #[test]
    fn ports_without_sources_leave_the_address_to_the_kernel() {
        let targets = vec!["10.0.0.1:7".parse().unwrap()];
        let options = GeneratorOptions { flows: 2, ..GeneratorOptions::new(targets) };
        assert!(source_of_flow(&options, 0).unwrap().is_none());
        let options = GeneratorOptions { source_ports: Some(9..=10), ..options };
        assert_eq!(flow_addresses(&options)[1].1, "0.0.0.0:10".parse().unwrap());
    }
}
