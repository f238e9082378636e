//! Reads the sockets in scope, and groups them into services.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use libc::{AF_INET, AF_INET6};

use super::options::options;
use super::proc_net::{PortRange, port_range, proc_net_sockets};
use super::steering::{sort_by_place, steering};
use super::{HostSockets, ServiceSockets, SocketOwner, SocketProtocol, SocketState, is_loopback};
use crate::Scope;
use crate::known::{UnknownReason, number};
use crate::netlink::{DiagSocket, diag_sockets};
use crate::process::owners::DescriptorOwners;
use crate::reuseport::ChooserReader;
use crate::{Host, Known};

/// A socket list of the kernel: one protocol and address family.
struct SocketList {
    name: &'static str,
    protocol: SocketProtocol,
    family: libc::c_int,
    /// The file with the same list.
    path: &'static str,
}

const LISTS: [SocketList; 4] = [
    SocketList { name: "udp4", protocol: SocketProtocol::Udp, family: AF_INET, path: "/proc/net/udp" },
    SocketList { name: "udp6", protocol: SocketProtocol::Udp, family: AF_INET6, path: "/proc/net/udp6" },
    SocketList { name: "tcp4", protocol: SocketProtocol::Tcp, family: AF_INET, path: "/proc/net/tcp" },
    SocketList { name: "tcp6", protocol: SocketProtocol::Tcp, family: AF_INET6, path: "/proc/net/tcp6" },
];

struct OwnedSocket {
    service: ServiceKey,
    owners: Known<Vec<u32>>,
    socket: SocketState,
    v6_only: bool,
    read_from: &'static str,
}

/// Sockets with the same key belong to one service.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct ServiceKey {
    protocol: SocketProtocol,
    local: SocketAddr,
    interface_index: u32,
    uid: u32,
    group: SocketGroup,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum SocketGroup {
    /// A reuseport group, no matter which processes hold its sockets.
    Reuseport,
    /// Sockets of the same processes.
    Processes(Option<Vec<u32>>),
}

impl HostSockets {
    pub fn observe(host: &Host, scope: &Scope) -> Self {
        Self::observe_ports(host, scope, scope.port.as_slice())
    }

    /// As [`HostSockets::observe`], with several ports instead of the port of the scope.
    pub(in crate::stage) fn observe_ports(host: &Host, scope: &Scope, ports: &[u16]) -> Self {
        let mut lists = BTreeMap::new();
        let mut listed_sockets = Vec::new();
        for list in &LISTS {
            let count = match list.read(host) {
                Ok((sockets, read_from)) => {
                    let count = sockets.len();
                    listed_sockets
                        .extend(sockets.into_iter().map(|socket| (list.protocol, socket, read_from)));
                    Known::Value(u32::try_from(count).unwrap_or(u32::MAX))
                }
                Err(reason) => Known::unknown(reason),
            };
            lists.insert(list.name.to_owned(), count);
        }
        let services = match lists.get("udp4") {
            Some(Known::Unknown { why }) => Known::unknown(why.clone()),
            _ => services(host, scope, ports, listed_sockets),
        };
        Self {
            services,
            lists,
            udp_in_use: super::memory::udp_in_use(host).into(),
            receive_buffer_max_bytes: read_sysctl(host, "rmem_max"),
            receive_buffer_default_bytes: read_sysctl(host, "rmem_default"),
            udp_memory: super::memory::udp_memory(host).into(),
            local_ports: local_ports(host),
        }
    }
}

impl SocketList {
    fn read(&self, host: &Host) -> Result<(Vec<DiagSocket>, &'static str), String> {
        let action = format!("listing {} sockets (sock_diag)", self.name);
        let list = || diag_sockets(self.family, self.protocol);
        let diag_error = match host.call(&format!("sock_diag/{}", self.name), &action, list) {
            Ok(sockets) => return Ok((sockets, "sock_diag")),
            Err(error) => error.to_string(),
        };
        let path = self.path;
        match host.read_parsed(path, |text| proc_net_sockets(text, self.protocol)) {
            Ok(sockets) => Ok((sockets, path)),
            // A kernel without IPv6, or with IPv6 disabled, has no such file.
            Err(error) if error.is_missing() && self.family == AF_INET6 => Ok((Vec::new(), path)),
            Err(error) => Err(format!("{error}; {diag_error}")),
        }
    }
}

/// UDP sockets of both address families that are bound and not connected.
pub(crate) fn udp_sockets(host: &Host) -> Result<Vec<DiagSocket>, String> {
    let mut sockets = Vec::new();
    for list in LISTS.iter().filter(|list| list.protocol == SocketProtocol::Udp) {
        sockets.extend(list.read(host)?.0);
    }
    Ok(sockets)
}

fn services(
    host: &Host,
    scope: &Scope,
    ports: &[u16],
    listed_sockets: Vec<(SocketProtocol, DiagSocket, &'static str)>,
) -> Known<Vec<ServiceSockets>> {
    let is_unscoped = ports.is_empty() && scope.pid.is_none();
    let in_scope = |socket: &DiagSocket| match ports {
        [] => !(is_unscoped && is_loopback(socket.local)),
        ports => ports.contains(&socket.local.port()),
    };
    let listed_sockets: Vec<_> =
        listed_sockets.into_iter().filter(|(_, socket, _)| in_scope(socket)).collect();
    if listed_sockets.is_empty() {
        return Known::Value(Vec::new());
    }
    let owners = DescriptorOwners::observe(host);
    let mut owned_sockets = Vec::new();
    for (protocol, socket, read_from) in listed_sockets {
        let descriptors = owners.descriptors_of(socket.inode);
        match (scope.pid, &descriptors) {
            (Some(pid), Known::Value(holders)) if !holders.iter().any(|(holder, _)| *holder == pid) => {}
            (Some(_), Known::Unknown { why }) => return Known::unknown(why.clone()),
            _ => owned_sockets.push(OwnedSocket::new(
                host,
                protocol,
                &socket,
                descriptors,
                read_from,
                !is_unscoped,
            )),
        }
    }
    Known::Value(group_sockets(host, &owners, owned_sockets, !is_unscoped))
}

impl OwnedSocket {
    fn new(
        host: &Host,
        protocol: SocketProtocol,
        diag_socket: &DiagSocket,
        descriptors: Known<Vec<(u32, u32)>>,
        read_from: &'static str,
        named: bool,
    ) -> Self {
        let reads_options = protocol == SocketProtocol::Udp || named;
        let options = match &descriptors {
            Known::Value(holders) => match holders.first() {
                Some(holder) if reads_options => options(host, diag_socket.inode, *holder).map(Some).into(),
                _ => Known::Value(None),
            },
            Known::Unknown { why } => Known::unknown(why.clone()),
        };
        let buffer_size = options.value().and_then(|options| options.as_ref()?.receive_buffer_bytes);
        let owners = descriptors.clone().map(|holders| {
            let mut pids: Vec<u32> = holders.iter().map(|(pid, _)| *pid).collect();
            pids.sort_unstable();
            pids.dedup();
            pids
        });
        let socket = SocketState {
            inode: diag_socket.inode,
            cookie: diag_socket.cookie,
            uid: diag_socket.uid,
            queued_bytes: diag_socket.queued,
            receive_buffer_bytes: diag_socket.receive_buffer_bytes.or(buffer_size),
            // The kernel does not count losses of a listener in this field.
            drops: diag_socket.drops.filter(|_| protocol == SocketProtocol::Udp),
            options,
            descriptors: descriptors.into_value().unwrap_or_default(),
        };
        let group = match socket.known_options() {
            Some(options) if options.reuseport => SocketGroup::Reuseport,
            _ => SocketGroup::Processes(owners.value().cloned()),
        };
        let DiagSocket { local, interface_index, uid, .. } = *diag_socket;
        let service = ServiceKey { protocol, local, interface_index, uid, group };
        let v6_only = diag_socket.v6_only == Some(true);
        OwnedSocket { service, owners, socket, v6_only, read_from }
    }
}

fn group_sockets(
    host: &Host,
    owners: &DescriptorOwners,
    owned_sockets: Vec<OwnedSocket>,
    named: bool,
) -> Vec<ServiceSockets> {
    let mut groups: BTreeMap<ServiceKey, Vec<OwnedSocket>> = BTreeMap::new();
    for socket in owned_sockets {
        groups.entry(socket.service.clone()).or_default().push(socket);
    }
    let mut names = BTreeMap::new();
    let choosers = ChooserReader::new(host);
    let service = |(key, mut members): (ServiceKey, Vec<OwnedSocket>)| {
        // Cookies are assigned on first use, so they do not show the order of creation.
        members.sort_by_key(|member| member.socket.inode);
        let processes = processes(host, &members, &mut names).into();
        let read_from = members.first().map_or("", |member| member.read_from).to_owned();
        let v6_only = members.iter().all(|member| member.v6_only);
        let mut sockets: Vec<SocketState> = members.into_iter().map(|member| member.socket).collect();
        let ordered = sort_by_place(&choosers, key.protocol, &mut sockets);
        ServiceSockets {
            protocol: key.protocol,
            local: key.local,
            steering: steering(host, owners, &choosers, (key.protocol, &processes), &sockets),
            processes,
            sockets,
            ordered,
            v6_only,
            named,
            read_from,
        }
    };
    groups.into_iter().map(service).collect()
}

/// The processes of all these sockets; unknown if the processes of one socket are unknown.
fn processes(
    host: &Host,
    members: &[OwnedSocket],
    names: &mut BTreeMap<u32, String>,
) -> Result<Vec<SocketOwner>, UnknownReason> {
    let mut all_pids = BTreeSet::new();
    for member in members {
        all_pids.extend(member.owners.known()?);
    }
    let owner = |pid: u32| {
        let name = names.entry(pid).or_insert_with(|| {
            host.read(&format!("/proc/{pid}/comm")).map_or_else(
                // The process ended after its descriptors were read.
                |_| "?".to_owned(),
                |name| name.trim_end().to_owned(),
            )
        });
        SocketOwner { pid, name: name.clone() }
    };
    Ok(all_pids.into_iter().map(owner).collect())
}

/// A sysctl of `net.core`. In network namespaces other than the first, older kernels do not show
/// global sysctls (net/core/sysctl_net_core.c), and the directory exists without the file.
fn read_sysctl(host: &Host, name: &str) -> Known<Option<u64>> {
    let path = format!("/proc/sys/net/core/{name}");
    match host.read_optional(&path, number) {
        Known::Value(None) if host.read("/proc/sys/net/core/somaxconn").is_err() => {
            host.read_known(&path, number).map(Some)
        }
        value => value,
    }
}

fn local_ports(host: &Host) -> Known<PortRange> {
    let parse = |text: &str| port_range(text).ok_or("not two ports");
    host.read_known("/proc/sys/net/ipv4/ip_local_port_range", parse)
}
