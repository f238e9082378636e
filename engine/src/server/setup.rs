//! The part of a server that its reports show, and its accessors.

use std::net::SocketAddr;
use std::sync::Weak;

use crate::backend::XdpReport;
use crate::overload::AttachedGuard;
use crate::socket::{Fallback, SocketReport};
use crate::steer::CpuTable;
use crate::sys::xsk::XskSocket;

/// The result of the settings, which a server reports before and after its start.
#[derive(Debug)]
pub(crate) struct ServerSetup {
    // At least one.
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) reports: Vec<SocketReport>,
    pub(crate) fallbacks: Vec<Fallback>,
    pub(crate) guard: Option<AttachedGuard>,
    pub(crate) xdp: Option<XdpReport>,
    // The workers own them, so that a queue without a worker is left to the stack.
    pub(crate) xdp_sockets: Vec<Weak<XskSocket>>,
}

pub(super) struct ServerPlan {
    pub(super) workers: usize,
    /// The CPU of each worker of each address, if pinned.
    pub(super) placement: Vec<Option<u32>>,
    pub(super) table: Option<CpuTable>,
}

/// Methods of a type with a [`ServerSetup`].
macro_rules! setup_accessors {
    () => {
        /// The address of the server, with the port that the kernel chose for port 0; the first of several.
        #[must_use]
        pub fn local_addr(&self) -> SocketAddr {
            self.setup.addresses[0]
        }

        /// All addresses of the server.
        #[must_use]
        pub fn local_addrs(&self) -> &[SocketAddr] {
            &self.setup.addresses
        }

        /// The sockets of the server, in bind order.
        #[must_use]
        pub fn sockets(&self) -> &[SocketReport] {
            &self.setup.reports
        }

        /// Settings that could not be applied.
        #[must_use]
        pub fn fallbacks(&self) -> &[Fallback] {
            &self.setup.fallbacks
        }

        /// The guard and its counts; `None` without a guard.
        #[must_use]
        pub fn guard(&self) -> Option<GuardReport> {
            self.setup.guard.as_ref().map(AttachedGuard::report)
        }

        /// The interfaces that AF_XDP serves; `None` if it is not in use.
        #[must_use]
        pub fn xdp(&self) -> Option<&XdpReport> {
            self.setup.xdp.as_ref()
        }
    };
}
pub(crate) use setup_accessors;
