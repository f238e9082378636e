//! A server program that runs already: found by its port, and never started, restarted or stopped.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use linerate_host::stage::socket::SocketProtocol;
use linerate_host::stage::thread::TaskStat;
use linerate_host::{Host, PacketPath};
use linerate_load::workload::WorkloadContents;
use linerate_tune::boost::ObservedServer;
use linerate_tune::boost::discovery::{ObservationOptions, ServerQuery};

use crate::ladder::configuration::PortSharing;
use crate::ladder::error::HostRunError;
use crate::ladder::error::TestbedError;
use crate::ladder::program_server::refusal_of_source;
use crate::ladder::step::LadderStep;
use crate::program::ServerRecipe;

/// Enough time to find the server. Its readers are found later, under load.
const OBSERVATION: Duration = Duration::from_millis(50);

/// A running server and its workload.
#[derive(Debug, Clone)]
pub struct RunningServerConfig {
    /// UDP port of the server.
    pub port: u16,
    pub workload: WorkloadContents,
}

#[derive(Debug, Clone)]
pub(crate) struct RunningProgram {
    pub(crate) name: String,
    /// The first process: the parent of the other processes.
    pub(crate) pid: u32,
    started: u64,
    pub(crate) processes: Vec<u32>,
    pub(crate) query: ServerQuery,
    pub(crate) recipe: ServerRecipe,
}

impl RunningProgram {
    /// The server on the port, the address of the interface at which it answers, and its packet path.
    pub(crate) fn find(
        host: &Host,
        config: &RunningServerConfig,
        interface: &str,
        addresses: &[IpAddr],
    ) -> Result<(Self, SocketAddr, PacketPath), HostRunError> {
        let port = config.port;
        let query = ServerQuery {
            port: Some(port),
            interfaces: vec![interface.to_owned()],
            ..ServerQuery::default()
        };
        let options = ObservationOptions { duration: OBSERVATION, datagrams: false };
        let (server, path) = ObservedServer::observe(host, &query, options, &|| false)?;
        let groups = server.groups.iter().filter(|group| group.protocol == SocketProtocol::Udp);
        let bound_addresses: Vec<IpAddr> = groups.map(|group| group.local.ip()).collect();
        let is_v6_only = |ip: IpAddr| {
            let local = SocketAddr::new(ip, port);
            path.socket.services().iter().any(|service| service.local == local && service.v6_only)
        };
        let is_served =
            |address: &&IpAddr| bound_addresses.iter().any(|ip| is_reached(*ip, is_v6_only(*ip), **address));
        let Some(address) = addresses.iter().find(is_served) else {
            let join_addresses =
                |ips: &[IpAddr]| ips.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            return Err(HostRunError::ListensElsewhere {
                server: server.name,
                port,
                bound: join_addresses(&bound_addresses),
                interface: interface.to_owned(),
                known: join_addresses(addresses),
            });
        };
        let (pid, started) =
            server.processes.first().map_or((0, 0), |process| (process.pid, process.started));
        let recipe = ServerRecipe::of_running(&server.name, port, &config.workload.source.to_string());
        let processes = server.processes.iter().map(|process| process.pid).collect();
        let program = Self { name: server.name, pid, started, processes, query, recipe };
        Ok((program, SocketAddr::new(*address, port), path))
    }

    /// # Errors
    /// [`TestbedError::RunEnded`] if the server has ended.
    pub(crate) fn check(&self, host: &Host) -> Result<(), TestbedError> {
        let runs = TaskStat::of_process(host, self.pid).is_ok_and(|task| task.started == Some(self.started));
        if runs {
            return Ok(());
        }
        Err(TestbedError::RunEnded(format!("{} (process {}) has ended", self.name, self.pid)))
    }

    /// Why a step is not possible from outside.
    pub(crate) fn refusal(&self, step: &LadderStep) -> Option<String> {
        if step.configuration().sharing == PortSharing::Reuseport {
            let name = &self.name;
            return Some(format!(
                "{name} runs and is not restarted: its configuration has the number of sockets"
            ));
        }
        refusal_of_source(step)
    }
}

/// Whether a socket on the bound address gets the packets to `address`.
fn is_reached(bound: IpAddr, v6_only: bool, address: IpAddr) -> bool {
    let is_family = bound.is_ipv4() == address.is_ipv4() || bound.is_ipv6() && !v6_only;
    bound == address || bound.is_unspecified() && is_family
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sockets_that_are_not_limited_to_ipv6_get_ipv4_packets() {
        for (bound, v6_only, address, expected) in [
            ("10.0.0.1", false, "10.0.0.1", true),
            ("10.0.0.1", false, "10.0.0.2", false),
            ("0.0.0.0", false, "10.0.0.1", true),
            ("0.0.0.0", false, "fd00::1", false),
            ("::", false, "10.0.0.1", true),
            ("::", true, "10.0.0.1", false),
            ("::", true, "fd00::1", true),
        ] {
            let [bound_ip, address_ip] = [bound, address].map(|ip: &str| ip.parse().expect("an address"));
            assert_eq!(is_reached(bound_ip, v6_only, address_ip), expected, "{bound} {v6_only} {address}");
        }
    }
}
