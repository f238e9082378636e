//! NAPI instances, as the kernel tells of them.

use super::Napi;
use crate::netlink::napi;
use crate::{Host, Known};

impl Napi {
    /// All of the network namespace; none where the kernel does not tell.
    pub(in crate::stage) fn all(host: &Host) -> Known<Option<Vec<Napi>>> {
        Known::offered(host.call("netdev/napi", "listing NAPI instances", napi::instances))
    }
}
