//! Recognizes a restarted server.

use linerate_host::Host;
use linerate_tune::boost::ObservedServer;
use linerate_tune::boost::discovery::{ObservationOptions, ServerQuery};
use std::time::Duration;

use super::arguments::BoostTargetArgs;

/// The properties of a server that stay the same after a restart: its port, unit and program.
pub(super) struct KnownServer {
    pub(super) port: u16,
    unit: Option<String>,
    program: Option<String>,
}

impl KnownServer {
    pub(super) fn from_observed(host: &Host, server: &ObservedServer) -> Self {
        let pid = server.processes.first().map(|process| process.pid).unwrap_or_default();
        Self {
            port: server.udp_ports().first().copied().unwrap_or_default(),
            unit: unit(host, pid),
            program: program(host, pid),
        }
    }

    /// A process of the server of the same unit or program on its port.
    pub(super) fn find(&self, host: &Host, target: &BoostTargetArgs) -> Option<u32> {
        let options = ObservationOptions { duration: Duration::ZERO, datagrams: false };
        let interfaces = target.interfaces.clone();
        let query = ServerQuery { port: Some(self.port), pid: None, interfaces };
        let (server, _) = ObservedServer::observe(host, &query, options, &|| false).ok()?;
        let current = Self::from_observed(host, &server);
        let is_same = |known_name: &Option<String>, current_name: &Option<String>| {
            known_name.is_some() && known_name == current_name
        };
        let is_known = is_same(&self.unit, &current.unit) || is_same(&self.program, &current.program);
        server.processes.first().filter(|_| is_known).map(|process| process.pid)
    }
}

/// The systemd unit of a process: the last service in the path of its control group.
fn unit(host: &Host, pid: u32) -> Option<String> {
    let groups = host.read(&format!("/proc/{pid}/cgroup")).ok()?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    path.rsplit('/').find(|part| part.ends_with(".service") && !part.starts_with("user@")).map(str::to_owned)
}

/// The file of the process' program, also if a newer file has replaced it.
fn program(host: &Host, pid: u32) -> Option<String> {
    let file = host.read_link(&format!("/proc/{pid}/exe")).ok()?;
    Some(file.trim_end_matches(" (deleted)").to_owned())
}
