//! Recognizes a restarted server.

use linerate_host::Host;
use linerate_tune::boost::ObservedServer;
use linerate_tune::boost::discovery::ObservationOptions;
use std::time::Duration;

use super::arguments::BoostTargetArgs;

/// The properties of a server that stay the same after a restart: its port, unit and program.
pub(super) struct KnownServer {
    port: u16,
    unit: Option<String>,
    program: Option<String>,
}

impl KnownServer {
    pub(super) fn of(host: &Host, server: &ObservedServer) -> Self {
        let pid = server.processes.first().map(|process| process.pid).unwrap_or_default();
        Self {
            port: server.udp_ports().first().copied().unwrap_or_default(),
            unit: unit(host, pid),
            program: program(host, pid),
        }
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Whether a server of the same unit or program is on its port.
    pub(super) fn is_there(&self, host: &Host, target: &BoostTargetArgs) -> bool {
        let glance = ObservationOptions { duration: Duration::ZERO, datagrams: false };
        let found = target
            .wanted()
            .ok()
            .and_then(|wanted| ObservedServer::observe(host, &wanted, glance, &|| false).ok());
        found.is_some_and(|(server, _)| {
            let now = Self::of(host, &server);
            let same = |before: &Option<String>, now: &Option<String>| before.is_some() && before == now;
            same(&self.unit, &now.unit) || same(&self.program, &now.program)
        })
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
