//! Errors of a scope: no such interface or process, or no socket on the port.

use crate::Scope;
use crate::stage::link::is_interface_name;
use crate::{Host, Known};

use super::HostSockets;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ScopeError(String);

impl Scope {
    /// Whether the interfaces and the process of this scope exist, before anything else is read.
    pub fn check(&self, host: &Host) -> Result<(), ScopeError> {
        if let Ok(mut interfaces) = host.list("/sys/class/net") {
            interfaces.retain(|name| is_interface_name(name));
            if let Some(interface) = self.interfaces.iter().find(|name| !interfaces.contains(name)) {
                let others = interfaces.join(", ");
                return Err(ScopeError(format!("no interface '{interface}': there are {others}")));
            }
        }
        match self.pid {
            Some(pid) if self.process_is_gone(host) => {
                Err(ScopeError(format!("no process {pid}: it is gone, or was never there")))
            }
            _ => Ok(()),
        }
    }

    /// Whether the process of this scope does not exist. One that cannot be read exists.
    pub fn process_is_gone(&self, host: &Host) -> bool {
        self.pid.is_some_and(|pid| host.list(&format!("/proc/{pid}")).is_err_and(|error| error.is_missing()))
    }

    /// Whether any socket matches the port and process of this scope. Unknown sockets are not an
    /// error.
    pub fn check_sockets(&self, sockets: &HostSockets) -> Result<(), ScopeError> {
        let Known::Value(services) = &sockets.services else { return Ok(()) };
        if !services.is_empty() || sockets.lists.values().any(|list| list.value().is_none()) {
            return Ok(());
        }
        Err(ScopeError(match (self.pid, self.port) {
            (Some(pid), port) => {
                let on_port = port.map(|port| format!(" on port {port}")).unwrap_or_default();
                format!(
                    "process {pid} holds no unconnected UDP socket and no TCP listener{on_port} in this network namespace \
                     (its own: --netns {pid})"
                )
            }
            (None, Some(port)) => format!(
                "nobody listens on port {port}: no unconnected UDP socket and no TCP listener is bound to it in this network \
                 namespace (a container has its own: --netns PID)"
            ),
            (None, None) => return Ok(()),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_process_in_scope_is_an_error_with_its_pid() {
        let host = Host::scripted([("/proc/12/comm", "echo\n")]);
        let scope = |pid| Scope { pid: Some(pid), ..Scope::default() };
        assert_eq!(scope(12).check(&host), Ok(()));
        let error = scope(13).check(&host).expect_err("gone");
        assert_eq!(error.to_string(), "no process 13: it is gone, or was never there");
    }

    #[test]
    fn a_missing_interface_in_scope_is_an_error_with_the_names_of_others() {
        let paths = ["bonding_masters", "eth0/ifindex", "lo/ifindex"];
        let host = Host::scripted(paths.map(|path| (format!("/sys/class/net/{path}"), "1\n")));
        let check = |name: &str| Scope { interfaces: vec![name.to_owned()], ..Scope::default() }.check(&host);
        assert_eq!(check("eth0"), Ok(()));
        for name in ["eth1", "bonding_masters"] {
            let error = check(name).expect_err("no interface").to_string();
            assert_eq!(error, format!("no interface '{name}': there are eth0, lo"));
        }
    }

    #[test]
    fn an_unused_port_is_an_error_only_if_all_sockets_are_known() {
        let host =
            Host::scripted([("/calls/sock_diag/udp4.json", "[]"), ("/calls/sock_diag/udp6.json", "[]")]);
        let scope = Scope { port: Some(53), ..Scope::default() };
        let sockets = HostSockets::observe(&host, &scope);
        assert_eq!(scope.check_sockets(&sockets), Ok(()), "TCP is unknown: {sockets:?}");
        let empty =
            ["udp4", "udp6", "tcp4", "tcp6"].map(|key| (format!("/calls/sock_diag/{key}.json"), "[]"));
        let sockets = HostSockets::observe(&Host::scripted(empty), &scope);
        let error = scope.check_sockets(&sockets).expect_err("no listener");
        assert!(error.to_string().starts_with("nobody listens on port 53: "), "{error}");
        let scope = Scope { pid: Some(1), ..scope };
        let error = scope.check_sockets(&sockets).expect_err("no listener");
        let expected = "process 1 holds no unconnected UDP socket and no TCP listener on port 53";
        assert!(error.to_string().starts_with(expected), "{error}");
    }
}
