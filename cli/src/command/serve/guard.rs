//! Who is answered: nobody outside the networks given, and nobody who may be a server himself.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use linerate_engine::{Action, Request, Service};
use linerate_measure::destination::{self, Net};

/// Ports below this are servers' (IANA system ports): an answer to one of them could be answered
/// in turn, for ever.
const FIRST_CLIENT_PORT: u16 = 1024;

/// A service behind a check of the source.
pub(super) struct Guarded<S> {
    inner: S,
    allowed: Vec<Net>,
    /// Told after the start, where the kernel chose it.
    own_port: Arc<AtomicU16>,
}

impl<S> Guarded<S> {
    /// Answers loopback, lab, private and link-local sources, or only `allowed` if there are any.
    pub(super) fn new(inner: S, allowed: Vec<Net>, own_port: Arc<AtomicU16>) -> Self {
        Self { inner, allowed, own_port }
    }

    fn admits(&self, source: SocketAddr) -> bool {
        let known = if self.allowed.is_empty() {
            destination::allowed(source.ip())
        } else {
            self.allowed.iter().any(|net| net.contains(source.ip()))
        };
        known && source.port() >= FIRST_CLIENT_PORT && source.port() != self.own_port.load(Ordering::Relaxed)
    }
}

impl<S: Service> Service for Guarded<S> {
    fn answer(&mut self, request: &Request<'_>, reply: &mut [u8]) -> Action {
        if self.admits(request.source()) { self.inner.answer(request, reply) } else { Action::Drop }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_engine::Echo;

    #[test]
    fn strangers_and_servers_get_nothing() {
        let guard = Guarded::new(Echo, Vec::new(), Arc::new(AtomicU16::new(7000)));
        let admits = |text: &str| guard.admits(text.parse().expect("an address"));
        assert!(admits("127.0.0.1:40000") && admits("198.18.0.100:2000") && admits("[fd00::1]:2000"));
        assert!(!admits("8.8.8.8:40000"), "a public address");
        assert!(!admits("127.0.0.1:7"), "another echo service");
        assert!(!admits("127.0.0.1:7000"), "another one of us");
    }

    #[test]
    fn networks_given_replace_the_default() {
        let guard = Guarded::new(
            Echo,
            vec!["192.0.2.0/24".parse().expect("a network")],
            Arc::new(AtomicU16::new(7000)),
        );
        assert!(guard.admits("192.0.2.9:4000".parse().expect("an address")));
        assert!(!guard.admits("127.0.0.1:4000".parse().expect("an address")));
    }
}
