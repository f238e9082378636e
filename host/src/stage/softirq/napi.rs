//! NAPI instances, as the kernel tells of them.

use super::NapiInstance;
use crate::netlink::napi;
use crate::{Host, Known};

impl NapiInstance {
    /// All of the network namespace; none where the kernel does not tell.
    pub(in crate::stage) fn all(host: &Host) -> Known<Option<Vec<NapiInstance>>> {
        Known::offered(host.call("netdev/napi", "listing NAPI instances", napi::instances))
    }
}
