//! Finds a server: its sockets and its processes, or one line with the reason why there is none.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use linerate_host::Scope;
use linerate_host::stage::socket::{HostSockets, ServiceSockets, SocketProtocol};
use linerate_host::stage::thread::ThreadState;
use linerate_host::{Host, Known, PacketPath};

use super::limits::may_trace;
use super::process_table::ProcessTable;
use super::{DiscoveryError, ServerQuery};
use crate::transaction::namespace_inode;

pub(super) struct FoundServer {
    /// The processes, the parent of the others first.
    pub(super) processes: Vec<u32>,
    /// The sockets, one item per group.
    pub(super) services: Vec<ServiceSockets>,
    pub(super) path: PacketPath,
    /// Addresses on which other servers have sockets, too.
    pub(super) others: Vec<String>,
}

/// Finds the server. Searches once more if a socket or process ends during the search.
pub(super) fn find(
    host: &Host,
    query: &ServerQuery,
    processes: &ProcessTable<'_>,
) -> Result<FoundServer, DiscoveryError> {
    match find_at_once(host, query, processes) {
        Err(DiscoveryError::NotThere(_)) => find_at_once(host, query, processes),
        result => result,
    }
}

fn find_at_once(
    host: &Host,
    query: &ServerQuery,
    processes: &ProcessTable<'_>,
) -> Result<FoundServer, DiscoveryError> {
    let ports = match (query.port, query.pid) {
        (port, Some(pid)) => {
            check_process(host, pid)?;
            let process_ports = ports_of(host, pid, processes)?;
            port.map_or(process_ports, |port| vec![port])
        }
        (Some(port), None) => vec![port],
        (None, None) => {
            return Err(DiscoveryError::NotThere(
                "which server? Name it with --port N, --pid P, or both".to_owned(),
            ));
        }
    };
    let (first_port, other_ports) = ports.split_first().unwrap_or((&0, &[]));
    let scope = |port: u16| Scope { interfaces: query.interfaces.clone(), port: Some(port), pid: None };
    check_scope(host, &scope(*first_port))?;
    let mut path = PacketPath::observe(host, &scope(*first_port));
    let mut services = services(host, &path.socket)?;
    for port in other_ports {
        services.extend(self::services(host, &HostSockets::observe(host, &scope(*port)))?);
    }
    if services.is_empty() {
        let port = *first_port;
        return Err(DiscoveryError::NotThere(match scope(port).check_sockets(&path.socket) {
            Err(error) => error.to_string(),
            Ok(()) => {
                format!("no socket was seen on port {port}, and not all of the kernel's lists could be read")
            }
        }));
    }
    let server = choose(query, processes, &services)?;
    let (own_services, others): (Vec<ServiceSockets>, Vec<ServiceSockets>) =
        services.into_iter().partition(|service| is_held(service, &server));
    let others = others.iter().map(ServiceSockets::name).collect();
    path.socket.services = Known::Value(own_services.clone());
    path.thread = ThreadState::observe(host, &path.socket);
    Ok(FoundServer {
        processes: processes.sort_by_depth(&processes.kin(&server)),
        services: own_services,
        path,
        others,
    })
}

fn check_process(host: &Host, pid: u32) -> Result<(), DiscoveryError> {
    check_scope(host, &Scope { pid: Some(pid), ..Scope::default() })?;
    match (namespace_inode(host, "thread-self"), namespace_inode(host, &pid.to_string())) {
        (Some(own_namespace), Some(process_namespace)) if own_namespace != process_namespace => {
            Err(DiscoveryError::NotThere(format!(
                "process {pid} is in another network namespace: linerate boost --netns {pid} --pid {pid}"
            )))
        }
        (_, None) if !may_trace(host) => {
            Err(DiscoveryError::NotPermitted(format!("looking at process {pid}")))
        }
        _ => Ok(()),
    }
}

fn check_scope(host: &Host, scope: &Scope) -> Result<(), DiscoveryError> {
    scope.check(host).map_err(|error| DiscoveryError::NotThere(error.to_string()))
}

/// The ports on which the process or its kin listens.
fn ports_of(host: &Host, pid: u32, processes: &ProcessTable<'_>) -> Result<Vec<u16>, DiscoveryError> {
    let mut candidates: Vec<u32> = processes.kin(&BTreeSet::from([pid])).into_iter().collect();
    candidates.sort_by_key(|kin| *kin != pid);
    let mut first_error = None;
    for kin in candidates {
        let scope = Scope { pid: Some(kin), ..Scope::default() };
        let sockets = HostSockets::observe(host, &scope);
        let services = services(host, &sockets)?;
        if !services.is_empty() {
            return Ok(chosen_ports(&services, &sockets.local_ports));
        }
        first_error = first_error.or_else(|| scope.check_sockets(&sockets).err());
    }
    let no_socket = || format!("process {pid} holds no socket that was seen to listen");
    Err(DiscoveryError::NotThere(first_error.map_or_else(no_socket, |error| error.to_string())))
}

/// The ports that the process chose, if there are any. Ports that the kernel assigned come and go,
/// for example the ports of a resolver's own queries.
fn chosen_ports(services: &[ServiceSockets], ephemeral_range: &Known<(u16, u16)>) -> Vec<u16> {
    let all_ports: BTreeSet<u16> = services.iter().map(|service| service.local.port()).collect();
    let is_ephemeral =
        |port: &u16| ephemeral_range.value().is_some_and(|(first, last)| (*first..=*last).contains(port));
    let chosen_ports: Vec<u16> = all_ports.iter().copied().filter(|port| !is_ephemeral(port)).collect();
    if chosen_ports.is_empty() { all_ports.into_iter().collect() } else { chosen_ports }
}

fn services(host: &Host, sockets: &HostSockets) -> Result<Vec<ServiceSockets>, DiscoveryError> {
    let services = match &sockets.services {
        Known::Value(services) => services.clone(),
        Known::Unknown { why } => return Err(unreadable_error(host, "finding its sockets", why)),
    };
    for service in &services {
        let read_error = service
            .processes
            .why()
            .or_else(|| service.sockets.iter().find_map(|socket| socket.options.why()));
        if let Some(why) = read_error {
            return Err(unreadable_error(host, &format!("looking whose {} is", service.name()), why));
        }
    }
    Ok(services)
}

fn unreadable_error(host: &Host, action: &str, reason: &str) -> DiscoveryError {
    if may_trace(host) {
        DiscoveryError::NotThere(format!("{action}: {reason}"))
    } else {
        DiscoveryError::NotPermitted(action.to_owned())
    }
}

fn is_held(service: &ServiceSockets, server: &BTreeSet<u32>) -> bool {
    service.sockets.iter().any(|socket| socket.descriptors.iter().any(|(pid, _)| server.contains(pid)))
}

fn address(service: &ServiceSockets) -> (SocketProtocol, SocketAddr) {
    (service.protocol, service.local)
}

/// The processes of the requested server.
fn choose(
    query: &ServerQuery,
    processes: &ProcessTable<'_>,
    services: &[ServiceSockets],
) -> Result<BTreeSet<u32>, DiscoveryError> {
    let mut servers = processes.servers(services);
    if let Some(pid) = query.pid {
        let kin = processes.kin(&BTreeSet::from([pid]));
        servers.sort_by_key(|server| !server.contains(&pid));
        servers.retain(|server| !server.is_disjoint(&kin));
        servers.truncate(1);
    }
    // A web server's TCP listener may have the port of a UDP server.
    let has_udp = |server: &BTreeSet<u32>| {
        services.iter().any(|service| service.protocol == SocketProtocol::Udp && is_held(service, server))
    };
    if servers.iter().filter(|server| has_udp(server)).count() == 1 {
        servers.retain(has_udp);
    }
    match servers.as_slice() {
        [server] => {
            // Sockets of one address are one group, whichever process holds them.
            let addresses: BTreeSet<_> =
                services.iter().filter(|service| is_held(service, server)).map(address).collect();
            let mut group_services = services.iter().filter(|service| addresses.contains(&address(service)));
            group_services.find_map(hidden_sockets_error).map_or_else(|| Ok(server.clone()), Err)
        }
        [] => Err(services.iter().find_map(hidden_sockets_error).unwrap_or_else(|| {
            let port = query.port.map_or_else(String::new, |port| format!(" on port {port}"));
            let pid = query.pid.map_or_else(String::new, |pid| format!("process {pid} "));
            DiscoveryError::NotThere(format!("{pid}holds no socket{port}"))
        })),
        several => Err(DiscoveryError::NotThere(ambiguity_message(processes, services, several))),
    }
}

/// The error for sockets that no visible process holds.
fn hidden_sockets_error(service: &ServiceSockets) -> Option<DiscoveryError> {
    let hidden_count = service.sockets.iter().filter(|socket| socket.descriptors.is_empty()).count();
    let subject = match (hidden_count, service.sockets.len()) {
        (0, _) => return None,
        (hidden_count, total) if hidden_count < total => {
            format!("{hidden_count} of the {total} sockets of {} are", service.name())
        }
        _ => format!("{} is", service.name()),
    };
    Some(DiscoveryError::NotThere(format!(
        "{subject} held by no process that is visible here: the server is in another PID namespace, as a container's: run \
         linerate on the host, or where `ps` shows it"
    )))
}

fn ambiguity_message(
    processes: &ProcessTable<'_>,
    services: &[ServiceSockets],
    servers: &[BTreeSet<u32>],
) -> String {
    let mut server_names: BTreeMap<u32, String> = BTreeMap::new();
    for server in servers {
        let pid = processes.sort_by_depth(server).first().copied().unwrap_or_default();
        let own_services = services.iter().filter(|service| is_held(service, server));
        let addresses: BTreeSet<String> = own_services.map(|service| service.local.to_string()).collect();
        let addresses: Vec<String> = addresses.into_iter().collect();
        server_names.insert(pid, format!("{} ({}, --pid {pid})", processes.name(pid), addresses.join(" ")));
    }
    let server_names: Vec<String> = server_names.into_values().collect();
    format!("several servers are on this port: {}: choose one with --pid", server_names.join(" and "))
}
