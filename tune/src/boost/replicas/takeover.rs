//! Handing a port over from a running server to its copies, without losing a datagram.
//!
//! Before the copies start, the old sockets get a steering program, so that new sockets of the
//! group receive nothing. A socket without SO_REUSEPORT becomes such a group. When the copies read
//! their sockets, the table is replaced in one step.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use linerate_host::setting::SettingValue;
use linerate_host::socket_redirect::{make_group, set_reuseport};
use linerate_host::stage::socket::SocketProtocol;
use linerate_host::{Host, Setting};

use super::buffers::HandoverBuffers;
use super::cgroup::SwitchLock;
use super::drain::OldProcess;
use super::steering::CopyPlacement;
use super::{ReplicaCgroup, ReplicaError, groups, name};
use crate::boost::ObservedServer;
use crate::boost::discovery::{ObservationOptions, ServerGroup, ServerQuery};

#[derive(Default)]
pub(super) struct ServerTakeover {
    pub(super) port: u16,
    groups: Vec<HeldGroup>,
    /// Old sockets, by cookie, with the datagrams that found each buffer full so far.
    pub(super) sockets: BTreeMap<u64, Option<u64>>,
    pub(super) processes: Vec<OldProcess>,
    /// Copies of sockets that may share their address only for the hand-over. They keep the sockets
    /// open, and are closed before the server ends.
    pub(super) shared: Vec<OwnedFd>,
    buffers: HandoverBuffers,
    /// The control group of the old server, if its copies are supervised.
    supervised: Option<ReplicaCgroup>,
    /// The same, if its supervisor was killed.
    pub(super) leftover: Option<ReplicaCgroup>,
    /// Whether datagrams may go to the new copies.
    is_switched: bool,
}

struct HeldGroup {
    local: SocketAddr,
    setting: Setting,
    /// The table that keeps the datagrams on the old sockets; after the switch, the last before it.
    table: SettingValue,
    /// Whether no program steered them before.
    is_new: bool,
}

fn observe_briefly(host: &Host, query: &ServerQuery) -> Result<ObservedServer, ReplicaError> {
    let options = ObservationOptions { duration: Duration::ZERO, datagrams: false };
    Ok(ObservedServer::observe(host, query, options, &|| false)?.0)
}

impl ServerTakeover {
    /// Finds the server on the port, and keeps its datagrams for its own sockets.
    pub(super) fn prepare(
        host: &Host,
        placement: &CopyPlacement,
        own_group: &ReplicaCgroup,
        (port, pid): (u16, Option<u32>),
    ) -> Result<Self, ReplicaError> {
        let server = observe_briefly(host, &ServerQuery { port: Some(port), pid, ..ServerQuery::default() })?;
        // The group of this process has the port already, and groups that are replaced are handing
        // it over.
        let is_other = |group: &ReplicaCgroup| !group.is_same(own_group) && !group.is_replaced();
        let mut groups = groups(host, Some(port))?;
        groups.retain(is_other);
        if let Some(group) = groups.iter().find(|group| group.is_taking_over() && group.is_supervised(host)) {
            return Err(ReplicaError::Refused(format!(
                "linerate process {} is taking port {port} over: try again when the takeover is complete",
                group.supervisor
            )));
        }
        let old_group = groups.into_iter().find(|group| group.has_server(&server));
        let (supervised, leftover) = match old_group {
            Some(group) if group.is_supervisor_visible(host) => (Some(group), None),
            Some(group) if group.is_supervised(host) => return Err(group.conflict(host, port)),
            group => (None, group),
        };
        let pids = match (&supervised, &leftover) {
            (Some(group), _) => vec![group.supervisor],
            (None, Some(group)) => group.processes(),
            (None, None) => top_processes(&server),
        };
        if pids.contains(&1) {
            return Err(ReplicaError::Refused(format!(
                "process 1 has port {port}, and the host or container would stop if it ended: free the port first \
                 (systemctl stop NAME.socket, if systemd holds the socket)"
            )));
        }
        let processes = pids.into_iter().map(OldProcess::open).collect::<Result<Vec<_>, _>>();
        let processes = processes.map_err(ReplicaError::io("open the processes of the old server"))?;
        let mut takeover = Self { port, processes, supervised, leftover, ..Self::default() };
        let result = takeover.steer_old_groups(host, placement, &server);
        if result.is_err() {
            takeover.release(host);
        }
        result.map(|()| takeover)
    }

    fn steer_old_groups(
        &mut self,
        host: &Host,
        placement: &CopyPlacement,
        server: &ObservedServer,
    ) -> Result<(), ReplicaError> {
        let port = self.port;
        let groups_on_port = || server.groups.iter().filter(|group| group.local.port() == port);
        if !groups_on_port().any(|group| group.protocol == SocketProtocol::Udp) {
            return Err(ReplicaError::Refused(format!(
                "the server on port {port} has no UDP socket there, and boost replace hands over datagrams: check --port \
                 (ss -ulpn lists UDP ports)"
            )));
        }
        for group in groups_on_port() {
            let (namespace, local) = (server.namespace, group.local);
            if !group.reuseport {
                self.share_address(host, group)?;
            }
            if group.protocol == SocketProtocol::Tcp {
                continue;
            }
            let setting = Setting::Steering { namespace, protocol: SocketProtocol::Udp, local };
            let steering = group.steering.value().map_or("unknown", String::as_str);
            let is_new = steering == "none";
            let table = match is_new {
                true => SettingValue::new(placement.same_for_all(group.cookies()).to_string()),
                false => SettingValue::new(steering),
            };
            let result = match is_new {
                true => setting.write(host, &table).map_err(|error| error.to_string()),
                false if group.table().is_some() => Ok(()),
                false => Err(format!("{local} is steered by another program ({steering})")),
            };
            result.map_err(|why| ReplicaError::NotSteered { why })?;
            self.groups.push(HeldGroup { local, setting, table, is_new });
            group.members.iter().for_each(|member| self.buffers.enlarge(host, member.socket));
            self.sockets.extend(group.members.iter().map(|member| (member.socket.cookie, member.drops)));
        }
        Ok(())
    }

    /// Lets the copies bind the address of a server that has a single socket on it.
    fn share_address(&mut self, host: &Host, group: &ServerGroup) -> Result<(), ReplicaError> {
        let group_name = name(group.protocol, group.local);
        let [member] = group.members.as_slice() else {
            return Err(ReplicaError::Refused(format!(
                "several sockets are bound to {group_name} without SO_REUSEPORT, and the kernel makes no group of them: \
                 start the server with linerate boost run once, then it can be replaced"
            )));
        };
        let to_error = ReplicaError::io("set SO_REUSEPORT on the socket of the old server");
        let socket = member.socket.copy(host).map_err(&to_error)?;
        let owner = rustix::fs::fstat(&socket).map_err(|errno| to_error(errno.into()))?.st_uid;
        if owner != rustix::process::geteuid().as_raw() {
            return Err(ReplicaError::Refused(format!(
                "the socket of {group_name} is that of user {owner}, and the kernel lets only sockets of one user share a \
                 port: let the server bind as root and change its user after, or start it with linerate boost run once"
            )));
        }
        let result = match group.protocol {
            SocketProtocol::Udp => make_group(&socket, group.local),
            SocketProtocol::Tcp => set_reuseport(&socket, true),
        };
        result.map_err(&to_error)?;
        self.shared.push(socket);
        Ok(())
    }

    /// Call it before datagrams are steered to the new copies. The supervisor of the old server
    /// steers nothing until the lock is dropped.
    pub(super) fn begin_switch(&mut self, host: &Host) -> Result<Option<SwitchLock>, ReplicaError> {
        let lock = self.supervised.as_ref().map(ReplicaCgroup::lock_steering).transpose();
        let lock = lock.map_err(ReplicaError::io("lock the control group of the old copies"))?;
        if !std::mem::replace(&mut self.is_switched, true) {
            // The supervisor of the old server steers copies that it restarts.
            for group in self.groups.iter_mut().filter(|group| !group.is_new) {
                group.table = group.setting.read(host).unwrap_or_else(|_| group.table.clone());
            }
        }
        Ok(lock)
    }

    /// Directs the datagrams to the old sockets again, and lets the old supervisor restart copies.
    /// Before the switch that supervisor may have a newer table.
    pub(super) fn undo_switch(&self, host: &Host) {
        if !self.is_switched {
            return;
        }
        // The server may be gone.
        let lock = self.supervised.as_ref().and_then(|group| group.lock_steering().ok());
        for group in &self.groups {
            let _ = group.setting.write(host, &group.table);
        }
        let _ = lock.map(|lock| lock.clear_replaced());
    }

    /// Undoes [`ServerTakeover::prepare`]. The new copies have ended.
    pub(super) fn release(&self, host: &Host) {
        for group in self.groups.iter().filter(|group| group.is_new) {
            // The server may be gone.
            let _ = group.setting.write(host, &SettingValue::new("none"));
        }
        self.buffers.restore(host);
        for socket in &self.shared {
            let _ = set_reuseport(socket, false);
        }
    }

    pub(super) fn has_socket(&self, cookie: u64) -> bool {
        self.sockets.contains_key(&cookie)
    }

    pub(super) fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.groups.iter().map(|group| group.local)
    }
}

/// The processes of a server whose parents do not belong to the server.
fn top_processes(server: &ObservedServer) -> Vec<u32> {
    let is_own = |pid: u32| server.processes.iter().any(|process| process.pid == pid);
    let roots = server.processes.iter().filter(|process| !process.parent.is_some_and(is_own));
    roots.map(|process| process.pid).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undone_switch_restores_the_table_of_the_old_supervisor_at_the_switch() {
        let host = Host::scripted([("/calls/steering/udp/127.0.0.1:53.json", "\"by-cpu 0:41 1:43\"")]);
        let local = "127.0.0.1:53".parse().expect("an address");
        let setting = Setting::Steering { namespace: 1, protocol: SocketProtocol::Udp, local };
        let table = SettingValue::new("by-cpu 0:41 1:42");
        let group = HeldGroup { local, setting: setting.clone(), table, is_new: false };
        let mut takeover = ServerTakeover { groups: vec![group], ..ServerTakeover::default() };
        for new_table in ["by-cpu 0:51 1:51", "by-cpu 0:51 1:52"] {
            assert!(takeover.begin_switch(&host).expect("no supervisor").is_none());
            setting.write(&host, &SettingValue::new(new_table)).expect("scripted");
        }
        takeover.undo_switch(&host);
        assert_eq!(setting.read(&host).expect("scripted").as_str(), "by-cpu 0:41 1:43");
    }
}
