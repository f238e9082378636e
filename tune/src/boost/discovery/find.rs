//! Finds a server: its sockets and its processes, or one line with the reason why there is none.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use linerate_host::Scope;
use linerate_host::stage::socket::{HostSockets, ServiceSockets, SocketProtocol};
use linerate_host::stage::thread::ThreadState;
use linerate_host::{Host, Known, PacketPath};

use super::limits::{may_trace, namespace};
use super::process_table::ProcessTable;
use super::{DiscoveryError, ServerQuery};

/// Capabilities that a boost requires.
const CAPABILITIES: &str = "CAP_SYS_PTRACE to find and copy its sockets, CAP_NET_ADMIN and CAP_BPF to steer them, \
                            CAP_SYS_NICE to pin its threads";

/// A server that was found.
pub(super) struct FoundServer {
    /// The processes, the parent of the others first.
    pub(super) processes: Vec<u32>,
    /// The sockets, one item per group.
    pub(super) services: Vec<ServiceSockets>,
    /// The packet path to the server.
    pub(super) path: PacketPath,
    /// Addresses on which other servers have sockets, too.
    pub(super) others: Vec<String>,
}

/// Finds the server. Searches once more if a socket or process ends during the search.
pub(super) fn find(
    host: &Host,
    wanted: &ServerQuery,
    processes: &ProcessTable<'_>,
) -> Result<FoundServer, DiscoveryError> {
    match find_at_once(host, wanted, processes) {
        Err(DiscoveryError::Elsewhere(_) | DiscoveryError::NotThere(_)) => {
            find_at_once(host, wanted, processes)
        }
        found => found,
    }
}

fn find_at_once(
    host: &Host,
    wanted: &ServerQuery,
    processes: &ProcessTable<'_>,
) -> Result<FoundServer, DiscoveryError> {
    let ports = match (wanted.port, wanted.pid) {
        (port, Some(pid)) => {
            is_here(host, pid)?;
            let own = ports_of(host, pid, processes)?;
            port.map_or(own, |port| vec![port])
        }
        (Some(port), None) => vec![port],
        (None, None) => {
            return Err(DiscoveryError::NotThere(
                "which server? Name it with --port N, --pid P, or both".to_owned(),
            ));
        }
    };
    interfaces_are_here(host, wanted)?;
    let (first, rest) = ports.split_first().unwrap_or((&0, &[]));
    let scope = |port: u16| Scope { interfaces: wanted.interfaces.clone(), port: Some(port), pid: None };
    let mut path = PacketPath::observe(host, &scope(*first));
    let mut services = services(host, &path.socket)?;
    for port in rest {
        services.extend(self::services(host, &HostSockets::observe(host, &scope(*port)))?);
    }
    if services.is_empty() {
        let port = *first;
        return Err(DiscoveryError::NotThere(match scope(port).check_sockets(&path.socket) {
            Err(error) => error.to_string(),
            Ok(()) => {
                format!("no socket was seen on port {port}, and not all of the kernel's lists could be read")
            }
        }));
    }
    let server = choose(wanted, processes, &services)?;
    let (own, others): (Vec<ServiceSockets>, Vec<ServiceSockets>) =
        services.into_iter().partition(|service| is_held(service, &server));
    let others = others.iter().map(ServiceSockets::name).collect();
    path.socket.services = Known::Value(own.clone());
    path.thread = ThreadState::observe(host, &path.socket);
    Ok(FoundServer { processes: processes.ordered(&processes.kin(&server)), services: own, path, others })
}

/// Whether the process exists, in the observed network namespace.
fn is_here(host: &Host, pid: u32) -> Result<(), DiscoveryError> {
    let scope = Scope { pid: Some(pid), ..Scope::default() };
    scope.check(host).map_err(|error| DiscoveryError::NotThere(error.to_string()))?;
    match (namespace(host, "thread-self"), namespace(host, &pid.to_string())) {
        (Some(here), Some(there)) if here != there => Err(DiscoveryError::Elsewhere(format!(
            "process {pid} is in another network namespace: linerate boost --netns {pid} --pid {pid}"
        ))),
        (_, None) if !may_trace(host) => Err(DiscoveryError::NotPermitted {
            what: format!("looking at process {pid}"),
            capability: CAPABILITIES,
        }),
        _ => Ok(()),
    }
}

/// Whether the host has each named interface.
fn interfaces_are_here(host: &Host, wanted: &ServerQuery) -> Result<(), DiscoveryError> {
    let Ok(names) = host.list("/sys/class/net") else { return Ok(()) };
    match wanted.interfaces.iter().find(|name| !names.contains(name)) {
        Some(strange) => {
            Err(DiscoveryError::NotThere(format!("no interface '{strange}': there are {}", names.join(", "))))
        }
        None => Ok(()),
    }
}

/// The ports on which the process or its kin listens.
fn ports_of(host: &Host, pid: u32, processes: &ProcessTable<'_>) -> Result<Vec<u16>, DiscoveryError> {
    let mut asked: Vec<u32> = processes.kin(&BTreeSet::from([pid])).into_iter().collect();
    asked.sort_by_key(|kin| *kin != pid);
    let mut nothing = None;
    for kin in asked {
        let scope = Scope { pid: Some(kin), ..Scope::default() };
        let sockets = HostSockets::observe(host, &scope);
        let services = services(host, &sockets)?;
        if !services.is_empty() {
            return Ok(lasting(&services, &sockets.local_ports));
        }
        nothing = nothing.or_else(|| scope.check_sockets(&sockets).err());
    }
    let lacking = || format!("process {pid} holds no socket that was seen to listen");
    Err(DiscoveryError::NotThere(nothing.map_or_else(lacking, |error| error.to_string())))
}

/// The ports that the process chose, if there are any. Ports that the kernel assigned come and go,
/// for example the ports of a resolver's own queries.
fn lasting(services: &[ServiceSockets], given: &Known<(u16, u16)>) -> Vec<u16> {
    let all: BTreeSet<u16> = services.iter().map(|service| service.local.port()).collect();
    let is_given = |port: &u16| given.value().is_some_and(|(first, last)| (*first..=*last).contains(port));
    let chosen: Vec<u16> = all.iter().copied().filter(|port| !is_given(port)).collect();
    if chosen.is_empty() { all.into_iter().collect() } else { chosen }
}

fn services(host: &Host, sockets: &HostSockets) -> Result<Vec<ServiceSockets>, DiscoveryError> {
    let services = match &sockets.services {
        Known::Value(services) => services.clone(),
        Known::Unknown { why } => return Err(untold(host, "finding its sockets", why)),
    };
    for service in &services {
        let unknown = service
            .processes
            .why()
            .or_else(|| service.sockets.iter().find_map(|socket| socket.options.why()));
        if let Some(why) = unknown {
            return Err(untold(host, &format!("looking whose {} is", service.name()), why));
        }
    }
    Ok(services)
}

fn untold(host: &Host, what: &str, why: &str) -> DiscoveryError {
    if may_trace(host) {
        DiscoveryError::NotThere(format!("{what}: {why}"))
    } else {
        DiscoveryError::NotPermitted { what: what.to_owned(), capability: CAPABILITIES }
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
    wanted: &ServerQuery,
    processes: &ProcessTable<'_>,
    services: &[ServiceSockets],
) -> Result<BTreeSet<u32>, DiscoveryError> {
    let mut servers = processes.servers(services);
    if let Some(pid) = wanted.pid {
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
            let own: BTreeSet<_> =
                services.iter().filter(|service| is_held(service, server)).map(address).collect();
            let mut together = services.iter().filter(|service| own.contains(&address(service)));
            together.find_map(hidden).map_or_else(|| Ok(server.clone()), Err)
        }
        [] => Err(services.iter().find_map(hidden).unwrap_or_else(|| {
            let port = wanted.port.map_or_else(String::new, |port| format!(" on port {port}"));
            let pid = wanted.pid.map_or_else(String::new, |pid| format!("process {pid} "));
            DiscoveryError::NotThere(format!("{pid}holds no socket{port}"))
        })),
        several => Err(DiscoveryError::NotThere(ambiguous(processes, services, several))),
    }
}

/// The error for sockets that no visible process holds.
fn hidden(service: &ServiceSockets) -> Option<DiscoveryError> {
    let hidden = service.sockets.iter().filter(|socket| socket.descriptors.is_empty()).count();
    let which = match (hidden, service.sockets.len()) {
        (0, _) => return None,
        (hidden, all) if hidden < all => format!("{hidden} of the {all} sockets of {} are", service.name()),
        _ => format!("{} is", service.name()),
    };
    Some(DiscoveryError::Elsewhere(format!(
        "{which} held by no process that is visible here: the server is in another PID namespace, as a container's: run \
         linerate on the host, or where `ps` shows it"
    )))
}

fn ambiguous(processes: &ProcessTable<'_>, services: &[ServiceSockets], servers: &[BTreeSet<u32>]) -> String {
    let mut named: BTreeMap<u32, String> = BTreeMap::new();
    for server in servers {
        let pid = processes.ordered(server).first().copied().unwrap_or_default();
        let own = services.iter().filter(|service| is_held(service, server));
        let addresses: BTreeSet<String> = own.map(|service| service.local.to_string()).collect();
        let addresses: Vec<String> = addresses.into_iter().collect();
        named.insert(pid, format!("{} ({}, --pid {pid})", processes.name(pid), addresses.join(" ")));
    }
    let named: Vec<String> = named.into_values().collect();
    format!("several servers are on this port: {}: choose one with --pid", named.join(" and "))
}
