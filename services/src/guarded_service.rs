//! A check of the source: replies go only to the given networks, and to no port that may be a
//! server's.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use linerate_engine::{Action, Request, Service};
use linerate_networks::Net;

use crate::refusals::{RefusalCounters, RefusalReason};

/// Lower ports are servers' ports (IANA system ports). A server could answer a reply in turn, and
/// so on forever.
const FIRST_CLIENT_PORT: u16 = 1024;

/// A service behind a check of the source.
#[derive(Debug, Clone)]
pub struct GuardedService<S> {
    inner: S,
    allowed: Vec<Net>,
    // Whether requests from servers' ports are answered, too.
    servers: bool,
    // Whether the service never replies.
    silent: bool,
    // Set after the start if the kernel chose the port.
    own_port: Arc<AtomicU16>,
    refusals: Arc<RefusalCounters>,
}

impl<S> GuardedService<S> {
    /// Answers loopback, lab, private and link-local sources, or only `allowed` if there are any.
    pub fn new(inner: S, allowed: Vec<Net>, own_port: Arc<AtomicU16>) -> Self {
        Self { inner, allowed, servers: false, silent: false, own_port, refusals: Arc::default() }
    }

    /// Counts refused requests in `refusals`.
    #[must_use]
    pub fn with_refusals(mut self, refusals: Arc<RefusalCounters>) -> Self {
        self.refusals = refusals;
        self
    }

    /// Answers servers' ports, too. For protocols that never mistake a reply for a request, and whose servers query each
    /// other: an NTP server sends from port 123, a RADIUS proxy from the port on which it listens.
    #[must_use]
    pub fn with_servers(mut self) -> Self {
        self.servers = true;
        self
    }

    /// Passes datagrams without a source address (0.0.0.0, such as those of DHCP clients), too. For services that never reply.
    #[must_use]
    pub fn without_replies(mut self) -> Self {
        self.silent = true;
        self
    }

    fn refusal(&self, source: SocketAddr) -> Option<RefusalReason> {
        let is_allowed = if self.allowed.is_empty() {
            linerate_networks::is_near(source.ip())
        } else {
            self.allowed.iter().any(|net| net.contains(source.ip()))
        };
        // The kernel sends to 0.0.0.0 and :: by loopback, so the reply would reach this host.
        let is_allowed = is_allowed && (self.silent || !source.ip().to_canonical().is_unspecified());
        let is_client_port =
            source.port() >= FIRST_CLIENT_PORT && source.port() != self.own_port.load(Ordering::Relaxed);
        match (is_allowed, is_client_port || self.servers) {
            (false, _) => Some(RefusalReason::Network),
            (true, false) => Some(RefusalReason::Port),
            (true, true) => None,
        }
    }
}

impl<S: Service> Service for GuardedService<S> {
    fn answer(&mut self, request: &Request<'_>, reply: &mut [u8]) -> Action {
        match self.refusal(request.source()) {
            None => self.inner.answer(request, reply),
            Some(refusal) => {
                self.refusals.add(refusal);
                Action::Drop
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_engine::Echo;

    #[test]
    fn sources_with_public_addresses_or_service_ports_are_refused() {
        let guard = GuardedService::new(Echo, Vec::new(), Arc::new(AtomicU16::new(7000)));
        let refusal = |text: &str| guard.refusal(text.parse().expect("an address"));
        for near in ["127.0.0.1:40000", "198.18.0.100:2000", "[fd00::1]:2000"] {
            assert_eq!(refusal(near), None, "{near}");
        }
        assert_eq!(refusal("8.8.8.8:40000"), Some(RefusalReason::Network), "a public address");
        assert_eq!(refusal("127.0.0.1:7"), Some(RefusalReason::Port), "another echo service");
        assert_eq!(refusal("127.0.0.1:7000"), Some(RefusalReason::Port), "another linerate server");
    }

    #[test]
    fn with_servers_admits_service_ports_but_not_public_addresses() {
        let guard = GuardedService::new(Echo, Vec::new(), Arc::new(AtomicU16::new(123))).with_servers();
        assert_eq!(guard.refusal("127.0.0.1:123".parse().expect("an address")), None);
        assert!(guard.refusal("8.8.8.8:123".parse().expect("an address")).is_some());
    }

    #[test]
    fn sources_without_an_address_get_no_reply_in_any_network() {
        let networks = ["0.0.0.0/0", "::/0"].map(|net| net.parse().expect("a network"));
        let guard = GuardedService::new(Echo, networks.into(), Arc::new(AtomicU16::new(7000)));
        for source in ["0.0.0.0:4000", "[::]:4000", "[::ffff:0.0.0.0]:4000"] {
            let source = source.parse().expect("an address");
            assert_eq!(guard.refusal(source), Some(RefusalReason::Network), "{source}");
            assert_eq!(guard.clone().without_replies().refusal(source), None, "{source}");
        }
    }

    #[test]
    fn given_networks_replace_the_default_networks() {
        let guard = GuardedService::new(
            Echo,
            vec!["192.0.2.0/24".parse().expect("a network")],
            Arc::new(AtomicU16::new(7000)),
        );
        assert_eq!(guard.refusal("192.0.2.9:4000".parse().expect("an address")), None);
        assert!(guard.refusal("127.0.0.1:4000".parse().expect("an address")).is_some());
    }
}
