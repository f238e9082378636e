//! The sockets that a copy binds, and why a copy that ended did not come up.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::ExitStatus;

use linerate_host::bind_hooks::{BindEvent, BindStage};
use linerate_host::stage::socket::SocketProtocol;

use super::name;

/// First port that needs no privilege (`net.ipv4.ip_unprivileged_port_start`).
const UNPRIVILEGED: u16 = 1024;

/// By socket cookie.
#[derive(Debug, Default)]
pub(super) struct CopyBinds(BTreeMap<u64, CopyBind>);

#[derive(Debug)]
struct CopyBind {
    protocol: SocketProtocol,
    port: u16,
    uid: u32,
    shared: bool,
    errno: i32,
    /// Set once the kernel has given it the port.
    local: Option<SocketAddr>,
}

impl CopyBinds {
    pub(super) fn add(&mut self, event: &BindEvent) {
        match event.stage {
            BindStage::Asked { shared, errno } => {
                let (protocol, port) = (event.protocol, event.local.port());
                self.0.insert(
                    event.cookie,
                    CopyBind { protocol, port, uid: event.uid, shared, errno, local: None },
                );
            }
            BindStage::Bound => {
                if let Some(bind) = self.0.get_mut(&event.cookie) {
                    bind.local = Some(event.local);
                }
            }
        }
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Whether the copy has, or wants, this socket.
    pub(super) fn has(&self, cookie: u64) -> bool {
        self.0.contains_key(&cookie)
    }

    pub(super) fn forget(&mut self, cookie: u64) {
        self.0.remove(&cookie);
    }

    /// Only shared sockets matter once the copies serve, and a resolver binds a port per query.
    pub(super) fn forget_unshared(&mut self) {
        self.0.retain(|_, bind| bind.shared);
    }

    /// UDP sockets with a shared port.
    pub(super) fn shared_sockets(&self) -> impl Iterator<Item = (u64, SocketAddr)> {
        let udp = self.0.iter().filter(|(_, bind)| bind.shared && bind.protocol == SocketProtocol::Udp);
        udp.filter_map(|(cookie, bind)| Some((*cookie, bind.local?)))
    }

    /// UDP sockets, shared or not.
    pub(super) fn bound_addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.0.values().filter(|bind| bind.protocol == SocketProtocol::Udp).filter_map(|bind| bind.local)
    }

    /// Why a copy ended before it was ready, as far as its calls of bind(2) show the reason.
    pub(super) fn failure_reason(&self, status: ExitStatus, has_processes: bool) -> String {
        if has_processes {
            return "went to the background: run the server in the foreground (often -n, -f, -F or --foreground), so \
                    that its end is seen"
                .to_owned();
        }
        let refused_bind = self.0.values().rev().find(|bind| bind.local.is_none());
        let Some(refused_bind) = refused_bind else {
            let addresses: Vec<String> =
                self.bound_addresses().map(|local| name(SocketProtocol::Udp, local)).collect();
            let state = match addresses.is_empty() {
                true => "before it bound a UDP port".to_owned(),
                false => format!("after it bound {}", addresses.join(", ")),
            };
            return format!("ended ({status}) {state}: see its lines above, and try the command alone");
        };
        let port = format!("{} port {}", refused_bind.protocol.name(), refused_bind.port);
        if refused_bind.errno != 0 {
            let error = std::io::Error::from_raw_os_error(refused_bind.errno);
            return format!(
                "could not share {port}: the kernel refused SO_REUSEPORT in a BPF program ({error}): it requires Linux 6.1"
            );
        }
        if refused_bind.uid != 0 && refused_bind.port < UNPRIVILEGED {
            return format!(
                "could not bind {port} as user {}: the server changed its user before, or was started as one that may \
                 not bind ports below {UNPRIVILEGED}: let it bind first, or give that user CAP_NET_BIND_SERVICE",
                refused_bind.uid
            );
        }
        if refused_bind.shared {
            return format!(
                "could not bind {port}: a server outside this command, or one of another user, has it: see ss -ulpn \
                 'sport = :{}'",
                refused_bind.port
            );
        }
        format!(
            "could not bind {port}, which another process has and --port does not share: give each copy its own with \
             {} in an argument, or turn that listener off",
            super::PLACEHOLDER
        )
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    fn event(cookie: u64, port: u16, uid: u32, stage: BindStage) -> BindEvent {
        let local = SocketAddr::from(([0, 0, 0, 0], port));
        BindEvent { stage, cookie, cgroup: 1, pid: 2, uid, protocol: SocketProtocol::Udp, local }
    }

    fn failure(events: &[BindEvent]) -> String {
        let mut binds = CopyBinds::default();
        events.iter().for_each(|event| binds.add(event));
        binds.failure_reason(ExitStatus::from_raw(256), false)
    }

    #[test]
    fn only_shared_binds_are_kept_while_copies_serve() {
        let mut binds = CopyBinds::default();
        for cookie in 1..=1_000 {
            let (shared, port) = if cookie == 7 { (true, 53) } else { (false, 20_000) };
            binds.add(&event(cookie, port, 0, BindStage::Asked { shared, errno: 0 }));
            binds.add(&event(cookie, port, 0, BindStage::Bound));
        }
        binds.forget_unshared();
        assert_eq!(binds.0.keys().collect::<Vec<_>>(), [&7]);
    }

    #[test]
    fn startup_failure_names_the_refused_bind() {
        let request = |shared, errno| BindStage::Asked { shared, errno };
        let first_copy = [event(1, 53, 0, request(true, 0)), event(1, 53, 0, BindStage::Bound)];
        assert!(failure(&[]).contains("before it bound a UDP port"));
        assert!(failure(&first_copy).contains("after it bound udp 0.0.0.0:53"));
        let events_with = |event| [first_copy.as_slice(), &[event]].concat();
        assert!(failure(&events_with(event(2, 8953, 0, request(false, 0)))).contains("{replica}"));
        assert!(
            failure(&events_with(event(2, 53, 0, request(true, 0))))
                .contains("a server outside this command")
        );
        assert!(failure(&events_with(event(2, 53, 112, request(true, 0)))).contains("as user 112"));
        assert!(failure(&events_with(event(2, 53, 0, request(false, 22)))).contains("Linux 6.1"));
        assert!(CopyBinds::default().failure_reason(ExitStatus::from_raw(0), true).contains("background"));
    }
}
